"""Sessions: every file of one session adopted and sealed together, under one lock.

`meta.json` remembers what the sources looked like. It is written after the data is durable and can
be lost: then files are compared again. Knows names and bytes, not what an agent writes in them.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, json

from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import FlightlogError, NotFound
from flightlog.store.adoption import Adopted, Seen, adopt
from flightlog.store.files import ensure_dir, inside, lock, quarantine, replace, told
from flightlog.store.kept import REWRITTEN, session_dir
from flightlog.store.recordings import generation, generations, seal, segments

META = "meta.json"
_LOCK = ".lock"
_SEAL_BYTES_MIN = 16 << 10


class Meta(Struct):
    """What `meta.json` of a session says."""

    agent: str
    session: str
    files: dict[str, Seen] = {}
    v: int = 1


class Settled(Struct, frozen=True):
    """What the adoption of a session did, and which of its files could not be adopted now."""

    adopted: tuple[Adopted, ...]
    failed: tuple[tuple[str, FlightlogError], ...] = ()


def adopt_session(home: Path, agent: str, session: str, sources: Mapping[str, Path]) -> Settled:
    """Adopt every file of a session; `sources` maps names like `subagents/agent-1.jsonl` to the agent's files.

    A source that is gone leaves our copy as it is.
    """
    root = session_dir(home, agent, session)
    adopted, failed = [], []
    with lock(root / _LOCK, who=f"process {os.getpid()}, adopting"):
        meta = read_meta(root) or Meta(agent, session)
        before = dict(meta.files)
        for name, source in sources.items():
            assert name not in {META, _LOCK}, "these names are ours"
            try:
                done = adopt(source, inside(root, name), meta.files.get(name))
            except FileNotFoundError:
                continue
            except FlightlogError as error:
                failed.append((name, error))
                continue
            adopted.append(done)
            meta.files[name] = done.seen
        if any(done.seen.generation > 1 for done in adopted):
            _mark_rewritten(root)
        if meta.files != before:
            replace(root / META, json.format(json.encode(meta)) + b"\n")
    return Settled(tuple(adopted), tuple(failed))


def seal_session(home: Path, agent: str, session: str, *, at_least: int = _SEAL_BYTES_MIN) -> list[Path]:
    """Seal the adopted files of a session that have `at_least` so many bytes live."""
    root = session_dir(home, agent, session)
    if not root.is_dir():
        raise NotFound(f"no such session: {session}", hint="flightlog session list")
    made: list[Path] = []
    with lock(root / _LOCK, who=f"process {os.getpid()}, sealing"):
        meta = read_meta(root) or Meta(agent, session)
        for name in sorted(meta.files):
            path = inside(root, name)
            for number in generations(path):
                each = generation(path, number)
                live = sum(part.path.stat().st_size for part in segments(each) if not part.is_sealed)
                made += seal(each) if live >= at_least else []
    return made


def _mark_rewritten(root: Path) -> None:
    """Leave a mark beside the sessions, so that a report need not look into each of them for old generations."""
    ensure_dir(root.parent / REWRITTEN / root.name)


def read_meta(root: Path) -> Meta | None:
    """Read a session's `meta.json`; a damaged one is set aside, for it can be made again."""
    with suppress(FileNotFoundError), told(root / META):
        try:
            return json.decode((root / META).read_bytes(), type=Meta)
        except UNREADABLE:
            quarantine(root / META)
    return None
