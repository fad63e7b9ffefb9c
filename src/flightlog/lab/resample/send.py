"""One call, rate limit, stopping rule.

Both live on one event loop, whoever sends: the senders on other machines wait for their turn here.

The key stands in the header and nowhere else: what comes back is freed of it before anybody sees it.
Knows HTTP; when to send, and whether to send again, is decided in `batch`.

Reads each answer once, when it is first asked about after that came.
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
from flightlog.agents.capture.upstream import proxy_for
from flightlog.lab.resample.state import SampleTarget
from flightlog.lab.statistics.groups import action_of_response
from flightlog.lab.statistics.inference import has_enough_samples

NOT_SENT = 0
_ERROR_CHARS_MAX = 500
_CONNECT_S = 30.0


class RateLimiter:
    """Gives out turns: no more than so many a minute, and none while the API asks to wait."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        """Begin at once; no rate is as fast as it goes."""
        self._every_s = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0

    async def wait_turn(self) -> None:
        """Wait for a turn."""
        now = self._clock()
        at = max(self._next, now)
        self._next = at + self._every_s
        while at > now:
            await asyncio.sleep(at - now)
            now = self._clock()

    def delay_turns(self, seconds: float) -> None:
        """Give nobody a turn for so long."""
        self._next = max(self._next, self._clock() + seconds)


class BatchBudget:
    """A budget that is kept: what is on its way counts as much as the dearest answer so far."""

    def __init__(self, limit_usd: float | None, spent_usd: float) -> None:
        """Begin with what earlier processes spent."""
        self._limit = limit_usd
        self.spent_usd = spent_usd
        self._promised = 0.0
        self._returned = asyncio.Event()

    async def reserve_cost(self, expected: Callable[[], float]) -> float | None:
        """Set aside what a sample is expected to cost, when that may be spent; None when it never may."""
        while True:
            usd = expected()
            if self._limit is None or self.spent_usd + self._promised + usd <= self._limit:
                self._promised += usd
                return usd
            if not self._promised:
                return None
            self._returned.clear()
            await self._returned.wait()

    def commit(self, promised: float, usd: float | None) -> None:
        """Count what a sample did cost, in place of what was set aside."""
        self._promised = max(self._promised - promised, 0.0) if self._promised - promised > 1e-12 else 0.0
        self.spent_usd += usd or 0.0
        self._returned.set()


class SampleCall(Struct, frozen=True):
    """Where a request goes and how; its body travels beside it."""

    url: str
    headers: dict[str, str]
    provider: str
    timeout_s: float
    needs_key: bool = True


class SampleResult(Struct, frozen=True):
    """What came back. Status 0: nothing did, and `error` says why; `is_final` says that trying again is no use."""

    status: int
    body: bytes = b""
    error: str = ""
    retry_after_s: float | None = None
    is_final: bool = False


# Made while only one thread imports: the first use of a type by two threads at once ends the process.
read_ask = msgspec.json.Decoder(SampleCall).decode
read_came = msgspec.json.Decoder(SampleResult).decode


def credential_headers(provider: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers that say who pays, from the environment of this moment."""
    if provider == "openrouter":
        key = environ.get("OPENROUTER_API_KEY", "")
        return {"authorization": f"Bearer {key}"} if key else {}
    if key := environ.get("ANTHROPIC_API_KEY", ""):
        return {"x-api-key": key}
    token = environ.get("ANTHROPIC_AUTH_TOKEN", "")
    return {"authorization": f"Bearer {token}"} if token else {}


def open_client() -> aiohttp.ClientSession:
    """Open what requests are sent with."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


async def send_request(
    http: aiohttp.ClientSession, ask: SampleCall, body: bytes, environ: Mapping[str, str]
) -> SampleResult:
    """Send a request once and return what came; nothing is raised for what a network does."""
    paying = credential_headers(ask.provider, environ)
    if not paying and ask.needs_key:
        return SampleResult(
            NOT_SENT, error="there is no key in the environment of the place it is sent from", is_final=True
        )
    scrubber = _key_scrubber(*paying.items())
    timeout = aiohttp.ClientTimeout(total=ask.timeout_s, sock_connect=min(_CONNECT_S, ask.timeout_s))
    url = URL(ask.url, encoded=True)
    try:
        async with http.post(
            url,
            data=body,
            headers=ask.headers | paying,
            timeout=timeout,
            allow_redirects=False,
            proxy=proxy_for(ask.url, environ) or None,
        ) as answer:
            came = await answer.read()
            return SampleResult(
                answer.status,
                scrubber.clean_bytes(came),
                retry_after_s=_parse_seconds(answer.headers.get("retry-after")),
            )
    except TimeoutError:
        # It may be paid for by now, so it is not sent again.
        return SampleResult(NOT_SENT, error=f"no answer within {ask.timeout_s:g} s", is_final=True)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        return SampleResult(NOT_SENT, error=scrubber.clean_text(said)[:_ERROR_CHARS_MAX])


def run_send_job(payload: bytes, body: bytes, environ: Mapping[str, str]) -> bytes:
    """The same as a job on another machine: bytes in, bytes out, a connection of its own."""

    async def once() -> SampleResult:
        async with open_client() as http:
            return await send_request(http, read_ask(payload), body, environ)

    return msgspec.json.encode(asyncio.run(once()))


@functools.lru_cache(maxsize=4)
def _key_scrubber(*paying: tuple[str, str]) -> Scrubber:
    """What finds a key in an answer; made once for each key, as it is not cheap."""
    scrubber = Scrubber()
    scrubber.learn_credentials(dict(paying))
    return scrubber


def _parse_seconds(said: str | None) -> float | None:
    try:
        return max(float(said), 0.0) if said is not None else None
    except ValueError:
        return None


class StoppingRule:
    """The counts of each target so far."""

    def __init__(self, run: Path, width: float, work_dir: str) -> None:
        """Look at the answers of the run at `run`."""
        self._run = run
        self._width = width
        self._work_dir = work_dir
        self._seen: dict[SampleTarget, set[str]] = {}
        self._counts: dict[SampleTarget, Counter[str]] = {}

    def needs_more_samples(self, target: SampleTarget) -> bool:
        """Whether another sample would tell something."""
        seen = self._seen.setdefault(target, set())
        counts = self._counts.setdefault(target, Counter())
        for item in target.items:
            if item.answer_file not in seen and (key := self._read_action_key(item.answer_file)):
                seen.add(item.answer_file)
                counts[key] += 1
        return not has_enough_samples(counts.values(), self._width)

    def _read_action_key(self, file: str) -> str:
        try:
            said = json.loads((self._run / file).read_bytes())
        except (OSError, ValueError):
            return ""
        content = said.get("content") if isinstance(said, dict) else None
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        return action_of_response(blocks, str(said.get("stop_reason") or ""), self._work_dir).key if blocks else ""
