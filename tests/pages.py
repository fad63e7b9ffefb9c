"""The real server on a real port, for one test: ask it as a browser would, or send a browser.

`running(config_dir)` serves the recordings below a directory until the block ends.
"""

import asyncio
import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from flightlog.app import now_ms
from flightlog.app.sharing import redact_session
from flightlog.archive import Archive
from flightlog.privacy.redact import Redactor
from flightlog.web.data import Sources
from flightlog.web.server import Serving, run

TOKEN = "t" * 43


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
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def door(self) -> str:
        return f"{self.root}/?token={TOKEN}"

    @property
    def cookie(self) -> str:
        return f"flightlog-{self.port}={TOKEN}"

    def ask(self, path: str, method: str = "GET", *, signed_in: bool = True, body: str = "", **headers: str) -> Answer:
        """Send one request; header names are written with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"Host": f"127.0.0.1:{self.port}"}
        if signed_in:
            sent["Cookie"] = self.cookie
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            sent |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body))}
        connection.putrequest(method, path, skip_host=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body.encode() or None)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        return Answer(answer.status, answer.headers, text)


@contextmanager
def running(
    config_dir: Path, *, read_only: bool = False, clock: Callable[[], int] = now_ms, live: object = None
) -> Iterator[Pages]:
    """Serve what is below `config_dir`, at the time `clock` says."""
    dirs = [str(config_dir)]
    sources = Sources(
        lambda: Archive(dirs, str(config_dir / "home")),
        UTC,
        clock,
        redact=lambda archive, session: redact_session(archive, session, Redactor(b"k" * 32)),
        live=live,
    )
    told: list[str] = []
    up = threading.Event()
    loop = asyncio.new_event_loop()

    def ready(address: str) -> None:
        told.append(address)
        up.set()

    async def serve() -> None:
        await run(Serving(sources, TOKEN, read_only=read_only), ready)

    task = loop.create_task(serve())
    task.add_done_callback(lambda _: loop.stop())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert up.wait(20), "the server did not start"
    try:
        yield Pages(int(told[0].split(":")[2].split("/")[0]))
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
        loop.close()
