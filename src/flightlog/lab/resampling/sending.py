"""One try at one sample: the request on the wire, with the key of the place it is sent from.

The key stands in the header and nowhere else: what comes back is freed of it before anybody sees it.
Knows HTTP; when to send, and whether to send again, is decided in `batch`.
"""

import asyncio
import functools
from collections.abc import Mapping

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from flightlog.sources.api.scrub import Scrubber
from flightlog.sources.api.upstream import proxy_for

NOT_SENT = 0
_ERROR_CHARS_MAX = 500
_CONNECT_S = 30.0


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
