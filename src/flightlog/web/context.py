"""WebContext, navigation sections, background processes.

Holds them as long as the server runs; those that still run when it ends are interrupted, as Ctrl-C
would, and leave what can be taken up again.

Knows no page. `web/pages/` has one file for each family, and the table that lists them.
"""

import asyncio
import contextlib
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from aiohttp import web
from jinja2 import Environment
from msgspec import Struct

from flightlog.model.errors import Conflict, NotFound
from flightlog.model.runtime import Runtime
from flightlog.web.data import WebData
from flightlog.web.live_updates import UpdateHub

AT_ONCE = 4
LINES_KEPT = 200
KEPT = 100
PATIENCE_S = 10.0
ACTIVE_MS = 120_000
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class BackgroundProcess:
    """One process."""

    def __init__(self, number: int, about: object, process: "subprocess.Popen[str]") -> None:
        """Listen to what it says."""
        self.number = number
        self.about = about
        self.said: deque[str] = deque(maxlen=LINES_KEPT)
        self._process = process
        self._thread = threading.Thread(target=self._read_stderr, name=f"errand-{number}", daemon=True)
        self._thread.start()

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._thread.is_alive() else self._process.returncode

    def stop(self) -> None:
        """Interrupt it."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Interrupt it and wait; one that does not end in time is killed."""
        self.stop()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join(PATIENCE_S)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None, "its talk is piped"
        for line in self._process.stderr:
            self.said.append(line.rstrip("\n")[:1000])
        self._process.stderr.close()
        self._process.wait()


class BackgroundProcesses:
    """Those of one server."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._all: dict[int, BackgroundProcess] = {}
        self._last = 0

    def start_process(self, about: object, begin: "Callable[[], subprocess.Popen[str]]") -> BackgroundProcess:
        """Start one, unless too many run."""
        with self._lock:
            if sum(each.exit_code is None for each in self._all.values()) >= AT_ONCE:
                raise Conflict(f"{AT_ONCE} replays are running already", hint="wait until one of them ended")
            self._last += 1
            errand = self._all[self._last] = BackgroundProcess(self._last, about, begin())
            ended = [number for number, each in self._all.items() if each.exit_code is not None]
            for number in ended[: max(len(self._all) - KEPT, 0)]:
                del self._all[number]
            return errand

    def find_process(self, number: int) -> BackgroundProcess:
        """The one with this number."""
        found = self._all.get(number)
        if found is None:
            raise NotFound(f"no replay {number} was started by this server", hint="flightlog lab list")
        return found

    def list_processes(self) -> list[BackgroundProcess]:
        """Those it knows, the latest first."""
        return list(self._all.values())[::-1]

    def close_all(self) -> None:
        """End what runs."""
        for each in self.list_processes():
            each.stop()
        for each in self.list_processes():
            each.close()


class NavSection(Struct, frozen=True):
    """Some pages that belong together; `templates` are those it is the current entry for."""

    title: str
    address: str
    templates: tuple[str, ...]
    routes: tuple[web.RouteDef, ...]


class WebContext(Struct, frozen=True):
    """The parts of one running server."""

    data: WebData
    templates: Environment
    hub: UpdateHub
    families: tuple[NavSection, ...]
    errands: BackgroundProcesses
    read_only: bool = False
    root: str = ""
    sample: bool = False

    @property
    def runtime(self) -> Runtime:
        """The machine whose sessions are shown."""
        return self.data.runtime

    def render_html(self, template: str, **values: Any) -> str:
        """Fill a template."""
        common = {
            "read_only": self.read_only,
            "sample": self.sample,
            "families": self.families,
            "page": template.partition(".")[0],
            "offline": False,
            "prefix": "",
        }
        return self.templates.get_template(template).render({**common, **values})

    async def render_response(self, template: str, **values: Any) -> web.Response:
        """Fill a template, away from the event loop."""
        return html_response(await run_blocking(self.render_html, template, **values))

    async def answer_with(self, template: str, work: Callable[..., dict[str, Any]], *given: Any) -> web.Response:
        """Fill a template with what `work` returns for this runtime, away from the event loop."""
        return await self.render_response(template, **await run_blocking(work, self.runtime, *given))


DESK = web.AppKey("desk", WebContext)


async def run_blocking(work: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
    """Do blocking work in a thread."""
    return await asyncio.to_thread(work, *given, **named)


def redirect_to(request: web.Request, path: str) -> web.HTTPSeeOther:
    """Return the redirect to a page of this server, to be raised after a change."""
    return web.HTTPSeeOther(request.app[DESK].root + path)


def html_response(html: str, status: int = 200) -> web.Response:
    """Answer with HTML."""
    return web.Response(text=html, content_type="text/html", charset="utf-8", status=status)
