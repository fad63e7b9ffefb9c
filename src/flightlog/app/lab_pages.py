"""What the lab's pages need of this machine: the runs of the project, and a replay as a process of its own."""

import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from flightlog.agents.namespace import parent_death_prefix
from flightlog.app import lab
from flightlog.lab import book as books
from flightlog.lab.book import RunStore
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.store.files import contained_in_project

COUNT_MAX = 20


class ReplayRequest(Struct, frozen=True):
    """A replay somebody asks for on a page."""

    run: str
    session: int
    replicate: int
    turn: int
    prompt: str = ""
    count: int = 1


def runs_dir(runtime: Runtime) -> Path:
    """Where the runs of the project are that the pages are served from."""
    return contained_in_project(runtime, Path(runtime.cwd) / lab.RUNS)


def all_runs(runtime: Runtime) -> tuple[list[RunStore], list[str]]:
    """Every run of the project, and what is wrong with those that cannot be read."""
    return lab.open_readable_runs(runtime, runs_dir(runtime))


def find_run(runtime: Runtime, name: str) -> RunStore:
    """The run of exactly this name."""
    path = next((each for each in books.list_run_paths(runs_dir(runtime)) if each.name == name), None)
    if path is None:
        raise NotFound(f"no such run: {name[:60]!r}", hint="flightlog lab list")
    return RunStore(path, now=runtime.clock.timestamp, new_id=runtime.new_id)


def start_replay(runtime: Runtime, wanted: ReplayRequest) -> "subprocess.Popen[str]":
    """Carry a replay out in a process of its own, as the command line would; it tells what happens on its stderr.

    Ctrl-C in the server's terminal is the server's to pass on, once; a server that is killed takes it along.
    """
    words = ["lab", "replay", wanted.run, "--session", str(wanted.session), "--turn", str(wanted.turn)]
    words += ["--replicate", str(wanted.replicate)] if wanted.replicate else []
    words += ["--count", str(wanted.count), f"--prompt={wanted.prompt}", "--runs-dir", str(runs_dir(runtime)), "--json"]
    return subprocess.Popen(
        [*parent_death_prefix(runtime.program_path), sys.executable, "-m", "flightlog", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
