"""Wiring of the lab: what a run is given of this machine, and where runs are."""

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flightlog import __version__
from flightlog.agents.namespace import leash, probe
from flightlog.agents.scripted.scenario import load
from flightlog.app.consent import permit_run, remember_run
from flightlog.app.jobs import LOCAL
from flightlog.lab import book as books
from flightlog.lab.book import Book
from flightlog.lab.config import RunConfig, parse
from flightlog.lab.running.setting import Setting, Tell
from flightlog.model.errors import FlightlogError, NotFound
from flightlog.store.files import process_tag

RUNS = "runs"
Permit = Callable[[Mapping[str, str], RunConfig, Path, str], None]


def setting(tell: Tell, environ: Mapping[str, str] | None = None, permit: Permit = permit_run) -> Setting:
    """What a run is given of this machine."""
    given = dict(os.environ if environ is None else environ)
    path = given.get("PATH", os.defpath)
    return Setting(
        environ=given,
        home=Path(given.get("HOME") or Path.home()),
        now_s=time.time,
        now=clock,
        new_id=new_id,
        process=process_tag(),
        is_root=os.geteuid() == 0,
        means=probe(path),
        leash=leash(path),
        tell=tell,
        version=__version__,
        permit=partial(permit, given),
        remember=partial(remember_run, environ=given),
    )


@contextmanager
def spread(given: Setting, on: str) -> Iterator[Setting]:
    """Have sessions that can run together carried out at a place, for the length of a block."""
    if on == LOCAL:
        yield given
        return
    from flightlog.app.jobs.desk import desk  # noqa: PLC0415 - an extra

    with desk(on) as submit:
        yield replace(given, elsewhere=submit)


def read_config(path: Path, overrides: Mapping[str, Any]) -> RunConfig:
    """Read a run's configuration; relative paths in it are meant from where the person is."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"no such configuration: {path}", hint="write one as in docs/how-to/run-an-experiment.md"
        ) from None
    config = parse(text, overrides, scenario=lambda name: load(path.parent / name))
    work_dir = Path(config.work_dir).expanduser()
    if not work_dir.is_dir():
        raise NotFound(f"work_dir is not a directory: {work_dir}", hint="name the directory the agent is to work in")
    return replace(config, work_dir=str(work_dir.resolve()))


def run_name(config: RunConfig) -> str:
    """A name for a run that has none: the time, and the model."""
    slug = re.sub(r"[^a-z0-9]+", "-", config.model.lower()).strip("-")[:40]
    return config.run_name or f"{datetime.now(tz=UTC):%Y%m%dT%H%M%SZ}_{slug}"


def permit(book: Book) -> None:
    """Refuse a run that the person neither began here nor allowed."""
    permit_run(os.environ, book.config, book.path, book.config_digest)


def open_book(runs_dir: Path, written: str) -> Book:
    """Open a run for reading, or to take it up."""
    return Book(books.find(runs_dir, written), now=clock, new_id=new_id)


def open_books(runs_dir: Path) -> list[Book]:
    """Open every run of a directory."""
    return [Book(path, now=clock, new_id=new_id) for path in books.paths(runs_dir)]


def readable(runs_dir: Path) -> tuple[list[Book], list[str]]:
    """Open every run of a directory that can be read, and say of each other one what is wrong."""
    opened, broken = [], []
    for path in books.paths(runs_dir):
        try:
            opened.append(Book(path, now=clock, new_id=new_id))
        except (FlightlogError, OSError) as error:
            broken.append(f"{path.name}: {error}")
    return opened, broken


def programs() -> str:
    """Where programs are looked for."""
    return os.environ.get("PATH", os.defpath)


def new_id() -> str:
    """A new id."""
    return str(uuid.uuid4())


def clock() -> str:
    """The time as journals write it."""
    return datetime.now(tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
