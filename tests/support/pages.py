"""The real server on a real port, for one test: ask it as a browser would, or send a browser.

`running(config_dir)` serves the recordings below a directory until the block ends.
"""

import asyncio
import http.client
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from flightlog.app.runtime import open_runtime
from flightlog.model.runtime import Runtime
from flightlog.web.server import ServerConfig, run_server

TOKEN = "t" * 43
WEB_ROOT = "/" + "5e" * 16
_ADDRESSES = re.compile(r'(?:href|src|action|hx-[a-z-]+)="(/[^"]*)')


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    text: str


@dataclass(frozen=True)
class Pages:
    """A running server."""

    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def root(self) -> str:
        return self.origin + WEB_ROOT

    @property
    def door(self) -> str:
        return f"{self.root}/?token={TOKEN}"

    @cached_property
    def cookie(self) -> str:
        """Sign in once; return the cookie a browser would send."""
        return self.ask(f"/?token={TOKEN}", signed_in=False).headers["Set-Cookie"].partition(";")[0]

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        signed_in: bool = True,
        body: str = "",
        **headers: str,
    ) -> Answer:
        """Send one request below `WEB_ROOT`; header names are written with underscores.

        Every address in the answer has to begin with `WEB_ROOT`, which is then removed: tests write paths without it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"Host": f"127.0.0.1:{self.port}"}
        if signed_in:
            sent["Cookie"] = self.cookie
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            sent |= {
                "Content-Type": "application/x-www-form-urlencoded",
                "Content-Length": str(len(body)),
            }
        connection.putrequest(method, WEB_ROOT + path.removeprefix(WEB_ROOT), skip_host=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body.encode() or None)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        addresses = [*_ADDRESSES.findall(text), *answer.headers.get_all("Location", [])]
        outside = [address for address in addresses if not address.startswith(f"{WEB_ROOT}/")]
        assert outside == [], f"{path} has addresses that are not below the root"
        return Answer(answer.status, answer.headers, text.replace(f"{WEB_ROOT}/", "/"))


def make_runtime(config_dir: Path, clock: Callable[[], int] | None = None) -> Runtime:
    """Return this machine with the recordings below `config_dir`, in UTC, at the time `clock` says."""
    here = open_runtime({**os.environ, "CLAUDE_CONFIG_DIR": str(config_dir)})
    return replace(here, zone=UTC, clock=replace(here.clock, now_ms=clock or here.clock.now_ms))


@contextmanager
def running(
    config_dir: Path,
    *,
    read_only: bool = False,
    clock: Callable[[], int] | None = None,
    data_dir: Path | None = None,
) -> Iterator[Pages]:
    """Serve what is below `config_dir`, at the time `clock` says."""
    runtime = make_runtime(config_dir, clock)
    runtime = replace(runtime, data_dir=str(data_dir)) if data_dir else runtime
    addresses: list[str] = []
    up = threading.Event()
    loop = asyncio.new_event_loop()

    def ready(address: str) -> None:
        addresses.append(address)
        up.set()

    async def serve() -> None:
        await run_server(ServerConfig(runtime, TOKEN, WEB_ROOT, read_only=read_only), ready)

    task = loop.create_task(serve())
    task.add_done_callback(lambda _: loop.stop())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert up.wait(20), "the server did not start"
    try:
        yield Pages(int(addresses[0].split(":")[2].split("/")[0]))
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
        loop.close()
