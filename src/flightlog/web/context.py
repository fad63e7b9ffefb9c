"""The web context, navigation sections and background processes.

Background processes that still run when the server ends are interrupted as with Ctrl-C, so that
they can be resumed.
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
from msgspec import Struct, field

from flightlog.model.errors import Conflict, NotFound
from flightlog.model.runtime import Runtime
from flightlog.web.auth import Handler
from flightlog.web.data import WebData
from flightlog.web.live_updates import UpdateHub

RUNNING_MAX = 4  # replays that may run at the same time; each runs an agent
OUTPUT_LINES_MAX = 200  # output lines of one process
FINISHED_MAX = 100  # finished processes that stay listed
PATIENCE_S = 10.0  # wait after SIGINT, then SIGKILL
SIGN_OF_LIFE_S = 0.8  # slower work is shown as running within a second
ACTIVE_MS = 120_000  # a session with a record of the last two minutes counts as active
Params = ParamSpec("Params")
Result = TypeVar("Result")


class BackgroundProcess:
    """A process that the server started, with its last output lines."""

    def __init__(self, number: int, about: object, process: "subprocess.Popen[str]") -> None:
        self.number = number
        self.about = about
        self.output: deque[str] = deque(maxlen=OUTPUT_LINES_MAX)
        self._process = process
        name = f"process-{number}"
        self._thread = threading.Thread(target=self._read_stderr, name=name, daemon=True)
        self._thread.start()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return None if self._thread.is_alive() else self._process.returncode

    def stop(self) -> None:
        """Send SIGINT."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Send SIGINT, wait, and send SIGKILL if it does not end in time."""
        self.stop()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join(PATIENCE_S)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None, "stderr is a pipe"
        for line in self._process.stderr:
            self.output.append(line.rstrip("\n")[:1000])
        self._process.stderr.close()
        self._process.wait()


class BackgroundProcesses:
    """All background processes of one server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[int, BackgroundProcess] = {}
        self._last = 0

    def start_process(
        self, about: object, begin: "Callable[[], subprocess.Popen[str]]"
    ) -> BackgroundProcess:
        """Start a process, or raise `Conflict` if too many run."""
        with self._lock:
            if sum(process.exit_code is None for process in self._all.values()) >= RUNNING_MAX:
                hint = "wait until one of them has ended"
                raise Conflict(f"{RUNNING_MAX} replays are running already", hint=hint)
            self._last += 1
            started = self._all[self._last] = BackgroundProcess(self._last, about, begin())
            ended = [key for key, process in self._all.items() if process.exit_code is not None]
            for number in ended[: max(len(self._all) - FINISHED_MAX, 0)]:
                del self._all[number]
            return started

    def find_process(self, number: int) -> BackgroundProcess:
        """Return the process with this number."""
        process = self._all.get(number)
        if process is None:
            hint = "flightlog lab list"
            raise NotFound(f"no replay {number} was started by this server", hint=hint)
        return process

    def list_processes(self) -> list[BackgroundProcess]:
        """Return all known processes, newest first."""
        return list(self._all.values())[::-1]

    def close_all(self) -> None:
        """Stop all running processes."""
        for process in self.list_processes():
            process.stop()
        for process in self.list_processes():
            process.close()


class SlowWork:
    """Work that may take longer than a person waits for a page; each piece runs once at a time."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def wait_for(self, name: str, work: Callable[[], Result]) -> Result | None:
        """Return the result of `work`, which runs in a thread; None if it is not there yet.

        A later call with the same name continues to wait for it.
        """
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.create_task(asyncio.to_thread(work))
        done, _ = await asyncio.wait([task], timeout=SIGN_OF_LIFE_S)
        if not done:
            return None
        self._tasks.pop(name, None)
        result: Result = task.result()
        return result


class NavSection(Struct, frozen=True):
    """A group of pages in the navigation; `templates` are those that highlight it.

    One with a sentence `about` it is below More.
    """

    title: str
    address: str
    templates: tuple[str, ...]
    routes: tuple[web.RouteDef, ...]
    about: str = ""


class WebContext(Struct, frozen=True):
    """The parts of one running server."""

    data: WebData
    templates: Environment
    hub: UpdateHub
    sections: tuple[NavSection, ...]
    processes: BackgroundProcesses
    read_only: bool = False
    root: str = ""
    sample: bool = False
    slow: SlowWork = field(default_factory=SlowWork)

    @property
    def runtime(self) -> Runtime:
        """Return the runtime of the server."""
        return self.data.runtime

    def render_html(self, template: str, **values: Any) -> str:
        """Render a template."""
        common = {
            "read_only": self.read_only,
            "sample": self.sample,
            "sections": self.sections,
            "page": template.partition(".")[0],
            "offline": False,
            "prefix": "",
        }
        return self.templates.get_template(template).render({**common, **values})

    async def render_response(self, template: str, **values: Any) -> web.Response:
        """Render a template in a thread."""
        return html_response(await run_blocking(self.render_html, template, **values))


CONTEXT = web.AppKey("context", WebContext)


def make_page(
    template: str, work: Callable[[web.Request], dict[str, Any]] = lambda _: {}
) -> Handler:
    """Return a handler that renders `template` with the values of `work`, both in a thread."""

    async def show(request: web.Request) -> web.Response:
        render = request.app[CONTEXT].render_html
        return html_response(await run_blocking(lambda: render(template, **work(request))))

    return show


async def run_blocking(
    work: Callable[Params, Result], *args: Params.args, **options: Params.kwargs
) -> Result:
    """Run blocking work in a thread."""
    return await asyncio.to_thread(work, *args, **options)


def redirect_to(request: web.Request, path: str) -> web.HTTPSeeOther:
    """Return the redirect to a page of this server, to be raised after a change."""
    return web.HTTPSeeOther(request.app[CONTEXT].root + path)


def html_response(html: str, status: int = 200) -> web.Response:
    """Return an HTML response."""
    return web.Response(text=html, content_type="text/html", charset="utf-8", status=status)
