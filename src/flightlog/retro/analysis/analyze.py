"""Read new exports and sessions into digests, analyze all digests, write the analysis.

The work is proportional to what is new: an export with a known fingerprint is not opened, a
conversation with known bytes is not decoded, a session with unchanged files is not read.
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
from flightlog.model.text import pluralize
from flightlog.retro import events, state
from flightlog.retro.analysis import digests, session_digests
from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analysis.findings import collect_findings
from flightlog.retro.analyst import KIND, extend_findings
from flightlog.retro.issues.workflow import draft_incidents
from flightlog.retro.layout import analysis_page
from flightlog.retro.state import VERSION, AnalysisMeta, ArtifactRecord, RetroAnalysis
from flightlog.retro.store import (
    DIGESTS,
    ROOT,
    RetroStore,
    format_utc_timestamp,
    read_preferences,
)
from flightlog.sources.chat_exports import reader
from flightlog.sources.chat_exports.conversation import Conversation, iter_addressed_messages
from flightlog.store import jsonl, output_files
from flightlog.usage.digest import costs_by_model

Progress = Callable[[int, int], None]
LoopSessions = Callable[[str], frozenset[str]]  # ids of the sessions that a project's loops started
DIGEST_VERSION = 3  # changes when digests of unchanged sessions must be made again
PATHS_MAX = 3  # fields named for each conversation
_DECODER = msgspec.json.Decoder(ConversationDigest)


class ReadCounts(Struct, frozen=True):
    """Conversations that were new or changed, already known, and damaged; what was wrong."""

    new: int = 0
    unchanged: int = 0
    damaged_files: int = 0
    problems: tuple[str, ...] = ()

    def __add__(self, other: "ReadCounts") -> "ReadCounts":
        """Return the sums of both."""
        return ReadCounts(
            self.new + other.new,
            self.unchanged + other.unchanged,
            self.damaged_files + other.damaged_files,
            self.problems + other.problems,
        )


def load_digests(store: RetroStore) -> dict[str, ConversationDigest]:
    """Return the last digest of every conversation, by id."""
    digests: dict[str, ConversationDigest] = {}
    with suppress(FileNotFoundError):
        for line in jsonl.read_lines(store.root / DIGESTS):
            if not isinstance(line, Damage):
                with suppress(*UNREADABLE):
                    digest = _DECODER.decode(line.data)
                    digests[digest.id] = digest
    return digests


def load_analyzed_digests(store: RetroStore) -> list[ConversationDigest]:
    """Return the digests that analysis looks at: all but those of an analyst's sessions."""
    return [digest for digest in load_digests(store).values() if not digest.is_own]


def read_export(store: RetroStore, path: Path, progress: Progress | None = None) -> ReadCounts:
    """Append the digests of an export's new conversations; report bytes read to `progress`."""
    export = reader.fingerprint_export(path)
    for event in store.iter_events():
        if isinstance(event, events.ExportRead) and event.fingerprint == export.fingerprint:
            return ReadCounts(unchanged=event.conversations)
    known = {digest.version for digest in load_digests(store).values()}
    new = same = damaged = 0
    source, size, done = "chatgpt", reader.export_size(path), 0
    problems: list[str] = []
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
            problems.append(f"{chat.path} at byte {chat.offset}: {chat.reason}")
            continue
        if chat.left_out:
            count, paths = pluralize(len(chat.left_out), "field"), chat.left_out[:PATHS_MAX]
            problems.append(f"{chat.id}: {count} of another type left out: {', '.join(paths)}")
        digest = digests.digest_chat(chat, version, path.name, (element.member, element.offset))
        jsonl.append_line(store.root / DIGESTS, msgspec.json.encode(digest))
        new += 1
    names = tuple(reader.account_names(path))
    vendor: Literal["claude", "chatgpt"] = "claude" if source == "claude" else "chatgpt"
    event = events.ExportRead(
        export.fingerprint, export.file_hash, vendor, new + same, damaged, names
    )
    store.journal.append(event, durable=True)
    return ReadCounts(new, same, damaged, tuple(problems))


def read_archive(
    store: RetroStore,
    archive: Archive,
    redact: Callable[[Session], Redacted[Session]],
    loop_sessions: LoopSessions,
    progress: Progress | None = None,
) -> ReadCounts:
    """Append digests of new or changed recorded sessions.

    `redact` makes the text of failures publishable. Sessions with damage become draft issues. The
    prompts of a loop's sessions are no person's, and an analyst's sessions are left out.
    """
    known = {digest.id: digest.version for digest in load_digests(store).values()}
    usage = archive.usage_pipeline.session_digests(archive.recordings)
    costs = {digest.session: costs_by_model(digest) for digest in usage}
    new = same = 0
    incidents = []
    for done, recording in enumerate(archive.recordings.values()):
        if progress is not None:
            progress(done, len(archive.recordings))
        # The costs belong to it: a session found later may own responses of this one.
        model_costs = costs.get(recording.session, {})
        stamps = f"{DIGEST_VERSION}|{model_costs}|" + "|".join(
            f"{file.path}:{file.size}:{file.changed_ns}" for file in recording.files
        )
        version = hashlib.blake2b(stamps.encode("utf-8", "replace"), digest_size=12).hexdigest()
        if known.get(recording.session) == version:
            same += 1
            continue
        session = archive.read_session(recording.session)
        if session.damage:
            incidents.append(_damage_incident(session, store.now_ms()))
        digest = session_digests.digest_session(session, version, redact, model_costs)
        if ROOT in Path(session.cwd).parts:
            digest = ConversationDigest(digest.id, digest.source, version, is_own=True)
        elif session.id in loop_sessions(session.cwd):
            digest = msgspec.structs.replace(digest, title="", prompts=(), costs=())
        jsonl.append_line(store.root / DIGESTS, msgspec.json.encode(digest))
        new += 1
    draft_incidents(store, incidents)
    return ReadCounts(new, same, len(incidents))


def _damage_incident(session: Session, now_ms: int) -> Incident:
    size = sum(span.length for span in session.damage)
    return Incident(
        "damaged recording",
        now_ms,
        "store",
        (session.id,),
        {"spans": len(session.damage), "bytes": size},
    )


def analyze(store: RetroStore, zone: tzinfo) -> RetroAnalysis:
    """Analyze all digests and write `state/analysis.json`."""
    before = store.load_analysis()
    digests = sorted(
        load_analyzed_digests(store), key=lambda digest: (digest.started_ms, digest.id)
    )
    history = list(store.iter_events())
    ratings = state.average_ratings(
        event for event in history if isinstance(event, events.FeedbackGiven)
    )
    preferences = read_preferences(history)
    patterns = extend_findings(collect_findings(digests, zone, preferences, ratings), history)
    now = format_utc_timestamp(store.now_ms())
    exports = [event for event in history if isinstance(event, events.ExportRead)]
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
        patterns,
        preferences,
        tuple(
            ArtifactRecord(event.date, event.artifact)
            for event in history
            if isinstance(event, events.ArtifactDrawn)
        ),
    )
    output_files.write_output_files(store.root, [analysis_page(analysis)])
    return analysis


def apply_analyst_names(store: RetroStore, analysis: RetroAnalysis) -> RetroAnalysis:
    """Write the analysis with the names and findings that analysts gave."""
    counted = [pattern for pattern in analysis.patterns if pattern.kind != KIND]
    analysis = msgspec.structs.replace(
        analysis, patterns=extend_findings(counted, store.iter_events())
    )
    output_files.write_output_files(store.root, [analysis_page(analysis)])
    return analysis


def iter_conversation(digest: ConversationDigest, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield address, role and text of an export's conversation.

    If the export in `folder` is gone, yield the prompts that the digest holds.
    """
    path = folder / digest.export
    if digest.export and path.exists():
        element = reader.element_at(path, digest.member, digest.offset)
        chat = reader.decode_element(element) if element is not None else None
        if isinstance(chat, Conversation) and chat.id == digest.id:
            yield from (
                (address, message.role, message.text)
                for address, message in iter_addressed_messages(chat)
            )
            return
    yield from ((prompt.address, "user", prompt.text) for prompt in digest.prompts)


def _date_range(digests: Iterable[ConversationDigest]) -> tuple[str, str] | None:
    times = [ms for digest in digests for ms in (digest.started_ms, digest.ended_ms) if ms]
    if not times:
        return None
    first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (min(times), max(times)))
    return f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"
