"""Looking back: read what is new, keep its digests, analyse all of them, write the analysis.

Work follows what is new: an export whose mark is known is not opened, a conversation whose bytes are
known is not decoded, a session whose files did not change is not read.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from flightlog.archive import Archive
from flightlog.model.damage import UNREADABLE, Damage, Incident
from flightlog.model.pages import Redacted
from flightlog.model.session import Session
from flightlog.retro import chats, events, feedback, sessions
from flightlog.retro.analysis.findings import findings
from flightlog.retro.digest import Digest
from flightlog.retro.judging import KIND, extended
from flightlog.retro.layout import analysis_page
from flightlog.retro.noticing import notice
from flightlog.retro.room import DIGESTS, Room, preferences, stamp
from flightlog.retro.state import VERSION, Analysis, Meta, Snapshot
from flightlog.sources.exports import reading
from flightlog.sources.exports.chat import Chat, addressed
from flightlog.store import lines, pages

Progress = Callable[[int, int], None]
_DECODER = msgspec.json.Decoder(Digest)


class Read(Struct, frozen=True):
    """What a look found: new or changed, known already, damaged."""

    new: int = 0
    known: int = 0
    damaged: int = 0

    def __add__(self, other: "Read") -> "Read":
        """Both together."""
        return Read(self.new + other.new, self.known + other.known, self.damaged + other.damaged)


def kept(room: Room) -> dict[str, Digest]:
    """Return every conversation's last digest, by id."""
    found: dict[str, Digest] = {}
    with suppress(FileNotFoundError):
        for line in lines.read(room.root / DIGESTS):
            if not isinstance(line, Damage):
                with suppress(*UNREADABLE):
                    digest = _DECODER.decode(line.data)
                    found[digest.id] = digest
    return found


def read_export(room: Room, path: Path, progress: Progress | None = None) -> Read:
    """Keep what an export says that was not known."""
    mark = reading.mark(path)
    before = [each for each in room.happened() if isinstance(each, events.ExportRead)]
    if any(each.fingerprint == mark.fingerprint for each in before):
        return Read(known=next(each.conversations for each in before if each.fingerprint == mark.fingerprint))
    known = {digest.version for digest in kept(room).values()}
    new = same = damaged = 0
    source, size, done = "chatgpt", path.stat().st_size, 0
    for element in reading.elements(path):
        source = element.source
        done += len(element.data)
        if progress is not None:
            progress(min(done, size), size)
        version = element.digest
        if version in known:
            same += 1
            continue
        chat = reading.decoded(element)
        if isinstance(chat, Damage):
            damaged += 1
            continue
        digest = chats.digest_of(chat, version, path.name, (element.member, element.offset))
        lines.append(room.root / DIGESTS, msgspec.json.encode(digest))
        new += 1
    names = tuple(reading.account_names(path))
    vendor: Literal["claude", "chatgpt"] = "claude" if source == "claude" else "chatgpt"
    read = events.ExportRead(mark.fingerprint, mark.file_hash, vendor, new + same, damaged, names)
    room.journal.append(read, durable=True)
    return Read(new, same, damaged)


def read_archive(
    room: Room, archive: Archive, redact: Callable[[Session], Redacted[Session]], progress: Progress | None = None
) -> Read:
    """Keep what recorded sessions say that was not known; what may be published of it is redacted by `redact`."""
    known = {digest.id: digest.version for digest in kept(room).values()}
    new = same = 0
    wrong = []
    for done, recording in enumerate(archive.recordings.values()):
        if progress is not None:
            progress(done, len(archive.recordings))
        state = "|".join(f"{file.path}:{file.size}:{file.changed_ns}" for file in recording.files)
        version = hashlib.blake2b(state.encode("utf-8", "replace"), digest_size=12).hexdigest()
        if known.get(recording.session) == version:
            same += 1
            continue
        session = archive.session(recording.session)
        if session.damage:
            wrong.append(_damaged(session, room.now_ms()))
        lines.append(room.root / DIGESTS, msgspec.json.encode(sessions.digest_of(session, version, redact)))
        new += 1
    notice(room, wrong)
    return Read(new, same, len(wrong))


def _damaged(session: Session, now_ms: int) -> Incident:
    size = sum(each.length for each in session.damage)
    return Incident("damaged recording", now_ms, "store", (session.id,), {"spans": len(session.damage), "bytes": size})


def analyse(room: Room, zone: tzinfo) -> Analysis:
    """Analyse everything kept and write `state/analysis.json`."""
    before = room.analysis()
    digests = sorted(kept(room).values(), key=lambda digest: (digest.started_ms, digest.id))
    happened = list(room.happened())
    given = [each for each in happened if isinstance(each, events.FeedbackGiven)]
    wants = preferences(iter(happened))
    found = extended(findings(digests, zone, wants, feedback.averages(given)), happened)
    now = stamp(room.now_ms())
    exports = [each for each in happened if isinstance(each, events.ExportRead)]
    analysis = Analysis(
        VERSION,
        Meta(
            before.meta.created if before else now,
            now,
            len(digests),
            _range(digests),
            exports[-1].format if exports else None,
            exports[-1].file_hash if exports else None,
        ),
        found,
        wants,
        tuple(Snapshot(each.date, each.artifact) for each in happened if isinstance(each, events.Drawn)),
    )
    pages.publish(room.root, [analysis_page(analysis)])
    return analysis


def renamed(room: Room, analysis: Analysis) -> Analysis:
    """Write the analysis again with what an analyst called its findings and added to them."""
    counted = [each for each in analysis.patterns if each.kind != KIND]
    told = msgspec.structs.replace(analysis, patterns=extended(counted, room.happened()))
    pages.publish(room.root, [analysis_page(told)])
    return told


def opened(digest: Digest, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield a conversation of an export again: address, role, words; what was kept of it if the export is gone."""
    path = folder / digest.export
    if digest.export and path.is_file():
        element = reading.element_at(path, digest.member, digest.offset)
        chat = reading.decoded(element) if element is not None else None
        if isinstance(chat, Chat) and chat.id == digest.id:
            yield from ((address, said.role, said.text) for address, said in addressed(chat))
            return
    yield from ((prompt.address, "user", prompt.text) for prompt in digest.prompts)


def _range(digests: Iterable[Digest]) -> tuple[str, str] | None:
    times = [ms for digest in digests for ms in (digest.started_ms, digest.ended_ms) if ms]
    if not times:
        return None
    first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (min(times), max(times)))
    return f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"
