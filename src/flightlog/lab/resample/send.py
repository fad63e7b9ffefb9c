"""Send one request; limit the rate and the budget; decide when a target has enough samples.

Rate and budget are kept on one event loop, also for senders on other machines, which wait for their
turn here. The key is only ever in a request header: it is scrubbed from everything that comes back.
When to send, and whether to retry, is decided in `batch`.
"""

import asyncio
import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from flightlog.agents.capture.sanitize import Scrubber
from flightlog.agents.capture.server import certificate_files, proxy_for, trust_certificates
from flightlog.lab.resample.state import SampleTarget
from flightlog.lab.statistics.groups import action_of_response
from flightlog.lab.statistics.inference import has_enough_samples

NOT_SENT = 0  # the status of a request without a response
_ERROR_CHARS_MAX = 500
_CONNECT_S = 30.0  # nothing is paid yet, so this may fail early and be tried again


class RateLimiter:
    """Limits requests to a rate per minute, and pauses all while the API asks to wait."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        self._every_s = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0

    async def wait_turn(self) -> None:
        now = self._clock()
        turn = max(self._next, now)
        self._next = turn + self._every_s
        while turn > now:
            await asyncio.sleep(turn - now)
            now = self._clock()

    def delay_turns(self, seconds: float) -> None:
        """Pause all senders for `seconds`."""
        self._next = max(self._next, self._clock() + seconds)


class BatchBudget:
    """A budget that also counts requests in flight, each as the most expensive answer so far."""

    def __init__(self, limit_usd: float | None, spent_usd: float) -> None:
        self._limit = limit_usd
        self.spent_usd = spent_usd
        self._reserved = 0.0
        self._returned = asyncio.Event()

    async def reserve_cost(self, expected: Callable[[], float]) -> float | None:
        """Reserve the expected cost of a sample, waiting if needed; None if it can never fit."""
        while True:
            usd = expected()
            if self._limit is None or self.spent_usd + self._reserved + usd <= self._limit:
                self._reserved += usd
                return usd
            if not self._reserved:
                return None
            self._returned.clear()
            await self._returned.wait()

    def commit(self, reserved: float, usd: float | None) -> None:
        """Replace a reservation by the real cost."""
        left = self._reserved - reserved
        self._reserved = left if left > 1e-12 else 0.0
        self.spent_usd += usd or 0.0
        self._returned.set()


class SampleCall(Struct, frozen=True):
    """Where and how a request is sent; its body is passed beside it."""

    url: str
    headers: dict[str, str]
    provider: str
    timeout_s: float
    needs_key: bool = True


class SampleResult(Struct, frozen=True):
    """The result of a request. Status 0 means no response; `is_final` means do not retry."""

    status: int
    body: bytes = b""
    error: str = ""
    retry_after_s: float | None = None
    is_final: bool = False
    is_keyless: bool = False


# Built at import, by one thread: msgspec crashes if two threads use a type first at the same time.
decode_call = msgspec.json.Decoder(SampleCall).decode
decode_result = msgspec.json.Decoder(SampleResult).decode


def credential_headers(provider: str, environ: Mapping[str, str]) -> dict[str, str]:
    is_anthropic = provider != "openrouter"
    if is_anthropic and (key := environ.get("ANTHROPIC_API_KEY", "")):
        return {"x-api-key": key}
    token = environ.get("ANTHROPIC_AUTH_TOKEN" if is_anthropic else "OPENROUTER_API_KEY", "")
    return {"authorization": f"Bearer {token}"} if token else {}


def open_client() -> aiohttp.ClientSession:
    """Return an HTTP client without cookies and without proxies from the environment."""
    connector = aiohttp.TCPConnector(limit=0)
    cookie_jar = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(connector=connector, cookie_jar=cookie_jar, trust_env=False)


async def send_request(
    http: aiohttp.ClientSession, call: SampleCall, body: bytes, environ: Mapping[str, str]
) -> SampleResult:
    """Send a request once and return the result; network errors are results, not exceptions."""
    credentials = credential_headers(call.provider, environ)
    if not credentials and call.needs_key:
        why = "there is no key in the environment of the sending machine"
        return SampleResult(NOT_SENT, error=why, is_final=True, is_keyless=True)
    scrubber = _key_scrubber(*credentials.items())
    sock_connect = min(_CONNECT_S, call.timeout_s)
    timeout = aiohttp.ClientTimeout(total=call.timeout_s, sock_connect=sock_connect)
    try:
        async with http.post(
            URL(call.url, encoded=True),
            data=body,
            headers=call.headers | credentials,
            timeout=timeout,
            allow_redirects=False,
            proxy=proxy_for(call.url, environ) or None,
            ssl=trust_certificates(certificate_files(environ)),
        ) as response:
            data = scrubber.clean_bytes(await response.read())
            delay_s = _parse_seconds(response.headers.get("retry-after"))
            return SampleResult(response.status, data, retry_after_s=delay_s)
    except TimeoutError:
        # The model may have answered and charged by now, so it is not sent again.
        return SampleResult(NOT_SENT, error=f"no answer within {call.timeout_s:g} s", is_final=True)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        message = f"{type(error).__name__}: {error}"
        return SampleResult(NOT_SENT, error=scrubber.clean_text(message)[:_ERROR_CHARS_MAX])


def run_send_job(payload: bytes, body: bytes, environ: Mapping[str, str]) -> bytes:
    """Send a request as a job on another machine, over a connection of its own."""

    async def once() -> SampleResult:
        async with open_client() as http:
            return await send_request(http, decode_call(payload), body, environ)

    return msgspec.json.encode(asyncio.run(once()))


@functools.lru_cache(maxsize=4)
def _key_scrubber(*credentials: tuple[str, str]) -> Scrubber:
    """Return a scrubber for a key; cached, as building one is slow."""
    scrubber = Scrubber()
    scrubber.learn_credentials(dict(credentials))
    return scrubber


def _parse_seconds(header: str | None) -> float | None:
    try:
        return max(float(header), 0.0) if header is not None else None
    except ValueError:
        return None


class StoppingRule:
    """Decides from the answers so far whether a target needs more samples."""

    def __init__(self, run: Path, width: float, work_dir: str) -> None:
        """Read the answers of the run at `run`, each once."""
        self._run = run
        self._width = width
        self._work_dir = work_dir
        self._seen: dict[SampleTarget, set[str]] = {}
        self._counts: dict[SampleTarget, Counter[str]] = {}

    def needs_more_samples(self, target: SampleTarget) -> bool:
        """Return whether the interval of some action is still wider than wanted."""
        seen = self._seen.setdefault(target, set())
        counts = self._counts.setdefault(target, Counter())
        for item in target.items:
            if item.answer_file not in seen and (key := self._read_action_key(item.answer_file)):
                seen.add(item.answer_file)
                counts[key] += 1
        return not has_enough_samples(counts.values(), self._width)

    def _read_action_key(self, file: str) -> str:
        try:
            answer = json.loads((self._run / file).read_bytes())
        except (OSError, ValueError):
            return ""
        content = answer.get("content") if isinstance(answer, dict) else None
        listed = content if isinstance(content, list) else []
        blocks = [block for block in listed if isinstance(block, dict)]
        reason = str(answer.get("stop_reason") or "")
        return action_of_response(blocks, reason, self._work_dir).key if blocks else ""
