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

from flightlog.archive.archive import Archive
from flightlog.model.errors import UNREADABLE, Damage, Incident
from flightlog.model.output_files import Redacted
from flightlog.model.session import Session
from flightlog.retro import events, state
from flightlog.retro.analysis import digests, session_digests
from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analysis.findings import collect_findings
from flightlog.retro.analyst import KIND, extend_findings
from flightlog.retro.issues.workflow import draft_incidents
from flightlog.retro.layout import analysis_page
from flightlog.retro.state import VERSION, AnalysisMeta, ArtifactRecord, RetroAnalysis
from flightlog.retro.store import DIGESTS, RetroStore, format_utc_timestamp, read_preferences
from flightlog.sources.chat_exports import reader
from flightlog.sources.chat_exports.conversation import Conversation, iter_addressed_messages
from flightlog.store import jsonl, output_files

Progress = Callable[[int, int], None]
_DECODER = msgspec.json.Decoder(ConversationDigest)


class ReadCounts(Struct, frozen=True):
    """What a look found: new or changed, known already, damaged."""

    new: int = 0
    known: int = 0
    damaged: int = 0

    def __add__(self, other: "ReadCounts") -> "ReadCounts":
        """Both together."""
        return ReadCounts(self.new + other.new, self.known + other.known, self.damaged + other.damaged)


def load_digests(room: RetroStore) -> dict[str, ConversationDigest]:
    """Return every conversation's last digest, by id."""
    found: dict[str, ConversationDigest] = {}
    with suppress(FileNotFoundError):
        for line in jsonl.read_lines(room.root / DIGESTS):
            if not isinstance(line, Damage):
                with suppress(*UNREADABLE):
                    digest = _DECODER.decode(line.data)
                    found[digest.id] = digest
    return found


def read_export(room: RetroStore, path: Path, progress: Progress | None = None) -> ReadCounts:
    """Keep what an export says that was not known."""
    mark = reader.fingerprint_export(path)
    before = [each for each in room.iter_events() if isinstance(each, events.ExportRead)]
    if any(each.fingerprint == mark.fingerprint for each in before):
        return ReadCounts(known=next(each.conversations for each in before if each.fingerprint == mark.fingerprint))
    known = {digest.version for digest in load_digests(room).values()}
    new = same = damaged = 0
    source, size, done = "chatgpt", path.stat().st_size, 0
    for element in reader.iter_elements(path):
        source = element.source
        done += len(element.data)
        if progress is not None:
            progress(min(done, size), size)
        version = element.content_hash
        if version in known:
            same += 1
            continue
        chat = reader.decode_element(element)
        if isinstance(chat, Damage):
            damaged += 1
            continue
        digest = digests.digest_chat(chat, version, path.name, (element.member, element.offset))
        jsonl.append_line(room.root / DIGESTS, msgspec.json.encode(digest))
        new += 1
    names = tuple(reader.account_names(path))
    vendor: Literal["claude", "chatgpt"] = "claude" if source == "claude" else "chatgpt"
    read = events.ExportRead(mark.fingerprint, mark.file_hash, vendor, new + same, damaged, names)
    room.journal.append(read, durable=True)
    return ReadCounts(new, same, damaged)


def read_archive(
    room: RetroStore, archive: Archive, redact: Callable[[Session], Redacted[Session]], progress: Progress | None = None
) -> ReadCounts:
    """Keep what recorded sessions say that was not known; what may be published of it is redacted by `redact`."""
    known = {digest.id: digest.version for digest in load_digests(room).values()}
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
        session = archive.read_session(recording.session)
        if session.damage:
            wrong.append(_damage_incident(session, room.now_ms()))
        jsonl.append_line(
            room.root / DIGESTS, msgspec.json.encode(session_digests.digest_session(session, version, redact))
        )
        new += 1
    draft_incidents(room, wrong)
    return ReadCounts(new, same, len(wrong))


def _damage_incident(session: Session, now_ms: int) -> Incident:
    size = sum(each.length for each in session.damage)
    return Incident("damaged recording", now_ms, "store", (session.id,), {"spans": len(session.damage), "bytes": size})


def analyze(room: RetroStore, zone: tzinfo) -> RetroAnalysis:
    """Analyse everything kept and write `state/analysis.json`."""
    before = room.load_analysis()
    digests = sorted(load_digests(room).values(), key=lambda digest: (digest.started_ms, digest.id))
    happened = list(room.iter_events())
    given = [each for each in happened if isinstance(each, events.FeedbackGiven)]
    wants = read_preferences(iter(happened))
    found = extend_findings(collect_findings(digests, zone, wants, state.average_ratings(given)), happened)
    now = format_utc_timestamp(room.now_ms())
    exports = [each for each in happened if isinstance(each, events.ExportRead)]
    analysis = RetroAnalysis(
        VERSION,
        AnalysisMeta(
            before.meta.created if before else now,
            now,
            len(digests),
            _date_range(digests),
            exports[-1].format if exports else None,
            exports[-1].file_hash if exports else None,
        ),
        found,
        wants,
        tuple(ArtifactRecord(each.date, each.artifact) for each in happened if isinstance(each, events.ArtifactDrawn)),
    )
    output_files.write_output_files(room.root, [analysis_page(analysis)])
    return analysis


def apply_analyst_names(room: RetroStore, analysis: RetroAnalysis) -> RetroAnalysis:
    """Write the analysis again with what an analyst called its findings and added to them."""
    counted = [each for each in analysis.patterns if each.kind != KIND]
    told = msgspec.structs.replace(analysis, patterns=extend_findings(counted, room.iter_events()))
    output_files.write_output_files(room.root, [analysis_page(told)])
    return told


def iter_conversation(digest: ConversationDigest, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield a conversation of an export again: address, role, words; what was kept of it if the export is gone."""
    path = folder / digest.export
    if digest.export and path.is_file():
        element = reader.element_at(path, digest.member, digest.offset)
        chat = reader.decode_element(element) if element is not None else None
        if isinstance(chat, Conversation) and chat.id == digest.id:
            yield from ((address, said.role, said.text) for address, said in iter_addressed_messages(chat))
            return
    yield from ((prompt.address, "user", prompt.text) for prompt in digest.prompts)


def _date_range(digests: Iterable[ConversationDigest]) -> tuple[str, str] | None:
    times = [ms for digest in digests for ms in (digest.started_ms, digest.ended_ms) if ms]
    if not times:
        return None
    first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (min(times), max(times)))
    return f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"
