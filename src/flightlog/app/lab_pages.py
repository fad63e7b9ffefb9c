"""What the lab's pages need of this machine: the runs of the project, and a replay as a process of its own."""

import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from flightlog.agents.namespace import leash
from flightlog.app import lab
from flightlog.app.paths import contained
from flightlog.lab import book as books
from flightlog.lab.book import Book
from flightlog.model.errors import NotFound

COUNT_MAX = 20


class Wanted(Struct, frozen=True):
    """A replay somebody asks for on a page."""

    run: str
    session: int
    replicate: int
    turn: int
    prompt: str = ""
    count: int = 1


def runs_dir() -> Path:
    """Where the runs of the project are that the pages are served from."""
    return contained(Path.cwd() / lab.RUNS)


def all_runs() -> tuple[list[Book], list[str]]:
    """Every run of the project, and what is wrong with those that cannot be read."""
    return lab.readable(runs_dir())


def run_named(name: str) -> Book:
    """The run of exactly this name."""
    path = next((each for each in books.paths(runs_dir()) if each.name == name), None)
    if path is None:
        raise NotFound(f"no such run: {name[:60]!r}", hint="flightlog lab list")
    return Book(path, now=lab.clock, new_id=lab.new_id)


def start_replay(wanted: Wanted) -> "subprocess.Popen[str]":
    """Carry a replay out in a process of its own, as the command line would; it tells what happens on its stderr.

    Ctrl-C in the server's terminal is the server's to pass on, once; a server that is killed takes it along.
    """
    words = ["lab", "replay", wanted.run, "--session", str(wanted.session), "--turn", str(wanted.turn)]
    words += ["--replicate", str(wanted.replicate)] if wanted.replicate else []
    words += ["--count", str(wanted.count), f"--prompt={wanted.prompt}", "--runs-dir", str(runs_dir()), "--json"]
    return subprocess.Popen(
        [*leash(lab.programs()), sys.executable, "-m", "flightlog", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
