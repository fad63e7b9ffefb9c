"""Read new exports and sessions into digests, analyze all digests, write the analysis.

The work is proportional to what is new: an export with a known fingerprint is not opened, a
conversation with known bytes is not decoded, a session with unchanged files is not read.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from flightlog.analysis.context_parts import describe_part
from flightlog.analysis.service import analyze_archive
from flightlog.archive.archive import Archive, SessionFiles
from flightlog.model.errors import UNREADABLE, Damage, Incident, IncidentCount
from flightlog.model.output_files import Redacted
from flightlog.model.session import Session
from flightlog.model.text import format_utc_ms, pluralize
from flightlog.retro import actions, events, state
from flightlog.retro.analysis import digests, session_digests
from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analysis.findings import collect_findings, is_shown
from flightlog.retro.analyst import KIND, extend_findings
from flightlog.retro.issues.workflow import draft_incidents
from flightlog.retro.layout import analysis_page, summarize
from flightlog.retro.recommendations import RecommendationInput, SessionWaste, recommend
from flightlog.retro.state import (
    VERSION,
    AnalysisMeta,
    AppliedRecommendation,
    ArtifactRecord,
    Pattern,
    RetroAnalysis,
)
from flightlog.retro.store import DIGESTS, ROOT, RetroStore, read_preferences
from flightlog.sources.chat_exports import reader
from flightlog.sources.chat_exports.conversation import Conversation, iter_addressed_messages
from flightlog.sources.workers import map_forked
from flightlog.store import jsonl, output_files
from flightlog.usage.digest import costs_by_model

Progress = Callable[[int, int], None]
LoopSessions = Callable[[str], frozenset[str]]  # ids of the sessions that a project's loops started
DIGEST_VERSION = 6  # changes when digests of unchanged conversations must be made again
WASTEFUL = frozenset({"memory", "tools", "tool_result"})  # blocks of context that can be avoided
IDS_MAX = 2000  # bounds `state/analysis.json` for a pattern that most conversations share
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
    """Return the digests that analysis looks at: not those of empty and of an analyst's sessions."""
    digests = load_digests(store).values()
    return [digest for digest in digests if not (digest.is_own or digest.is_empty)]


def read_export(store: RetroStore, path: Path, progress: Progress | None = None) -> ReadCounts:
    """Append the digests of an export's new conversations; report bytes read to `progress`."""
    export = reader.fingerprint_export(path)
    for event in store.iter_events():
        if (
            isinstance(event, events.ExportRead)
            and event.fingerprint == export.fingerprint
            and event.digest_version == DIGEST_VERSION
        ):
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
        version = f"{DIGEST_VERSION}:{element.content_hash}"
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
        digest = digests.digest_chat(chat, version, str(path), (element.member, element.offset))
        jsonl.append_line(store.root / DIGESTS, msgspec.json.encode(digest))
        new += 1
    names = tuple(reader.account_names(path))
    vendor: Literal["claude", "chatgpt"] = "claude" if source == "claude" else "chatgpt"
    event = events.ExportRead(
        export.fingerprint, export.file_hash, vendor, new + same, damaged, names, DIGEST_VERSION
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
    archive.usage_pipeline.save()
    costs = {digest.session: costs_by_model(digest) for digest in usage}
    versions = {
        recording.session: _session_version(recording, costs.get(recording.session, {}))
        for recording in archive.recordings.values()
    }
    stale = [name for name, version in versions.items() if known.get(name) != version]

    def digest(name: str) -> _ReadSession:
        session = archive.read_session(name)
        size = sum(span.length for span in session.damage)
        made = session_digests.digest_session(session, versions[name], redact, costs.get(name, {}))
        return _ReadSession(made, len(session.damage), size)

    incidents, own = [], 0
    sizes = {name: archive.recordings[name].size for name in stale}
    results = map_forked(sizes, digest, _decode_read, lambda read: read.digest.id)
    for done, read in enumerate(results):
        if progress is not None:
            progress(done, len(stale))
        made = read.digest
        if read.damaged_spans:
            incidents.append(_damage_incident(read, store.now_ms()))
        if ROOT in Path(made.project).parts:
            made = ConversationDigest(made.id, made.source, made.version, is_own=True)
            own += 1
        elif made.id in loop_sessions(made.project):
            # A program wrote the prompts of this session.
            made = msgspec.structs.replace(
                made, title="", prompts=(), costs=(), instructions=(), corrections=(), follow_ups=0
            )
        jsonl.append_line(store.root / DIGESTS, msgspec.json.encode(made))
    draft_incidents(store, incidents)
    return ReadCounts(len(stale) - own, len(versions) - len(stale), len(incidents))


class _ReadSession(Struct, frozen=True):
    """What a worker sends back: the digest of a session, and its damage."""

    digest: ConversationDigest
    damaged_spans: int
    damaged_bytes: int


_decode_read = msgspec.msgpack.Decoder(_ReadSession).decode


def _session_version(recording: SessionFiles, model_costs: Mapping[str, float | None]) -> str:
    """Return a name of the state of a session's files and costs.

    The costs belong to it: a session found later may own responses of this one.
    """
    stamps = f"{DIGEST_VERSION}|{model_costs}|" + "|".join(
        f"{file.path}:{file.size}:{file.changed_ns}" for file in recording.files
    )
    return hashlib.blake2b(stamps.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _damage_incident(read: _ReadSession, now_ms: int) -> Incident:
    counts: dict[IncidentCount, int] = {"spans": read.damaged_spans, "bytes": read.damaged_bytes}
    return Incident("damaged recording", now_ms, "store", (read.digest.id,), counts)


def list_waste(archive: Archive) -> list[SessionWaste]:
    """Return what cache misses and blocks of context cost in the sessions of the archive."""
    waste = []
    for session in analyze_archive(archive):
        waste += [
            SessionWaste(session.session, miss.address, "cache", cause, miss.extra_cost_usd)
            for miss in session.cache
            # A miss with several causes is paid once: the first is the client's own first.
            for cause in miss.causes[:1]
            if miss.extra_cost_usd
        ]
        waste += [
            SessionWaste(
                session.session,
                block.address,
                "context",
                describe_part(block.kind, block.name),
                block.carrying_cost_usd,
            )
            for block in session.context.blocks
            if block.carrying_cost_usd and block.kind in WASTEFUL and block.name != "built-in"
        ]
    return waste


def analyze(
    store: RetroStore, homes: Mapping[str, str] | None = None, waste: Sequence[SessionWaste] = ()
) -> RetroAnalysis:
    """Analyze all digests and write `state/analysis.json`.

    `homes` are the directories of agents for files that concern all projects; `waste` is what
    cache misses and context cost, session by session.
    """
    before = store.load_analysis()
    digests = sorted(
        load_analyzed_digests(store), key=lambda digest: (digest.started_ms, digest.id)
    )
    history = list(store.iter_events())
    ratings = state.average_ratings(
        event for event in history if isinstance(event, events.FeedbackGiven)
    )
    preferences = read_preferences(history)
    patterns = extend_findings(collect_findings(digests, preferences, ratings), history)
    shown = [digest for digest in digests if is_shown(digest, preferences)]
    applied = actions.find_applied(store)
    low_rated = {name for name, rating in ratings.items() if rating <= state.LOW_RATED}
    given = RecommendationInput(shown, store.clean_text, waste, {*applied, *low_rated})
    shown_actions = (
        actions.show_action(store, one, homes or {}) for one in recommend(patterns, given)
    )
    # A file that has it already needs no change.
    recommended = tuple(one for one in shown_actions if one.action.diff or not one.action.file)
    meta = _describe_input(store, digests, history)
    analysis = RetroAnalysis(
        VERSION,
        msgspec.structs.replace(meta, created=before.meta.created) if before else meta,
        tuple(
            msgspec.structs.replace(one, conversation_ids=one.conversation_ids[:IDS_MAX])
            for one in patterns
        ),
        preferences,
        tuple(
            ArtifactRecord(event.date, event.artifact)
            for event in history
            if isinstance(event, events.ArtifactDrawn)
        ),
        summarize(shown, recommended, meta.date_range),
        recommended,
        tuple(_measure_applied(one, patterns, shown) for one in applied.values()),
    )
    output_files.write_output_files(store.root, [analysis_page(analysis)])
    return analysis


def _describe_input(
    store: RetroStore, digests: Sequence[ConversationDigest], history: Sequence[events.Event]
) -> AnalysisMeta:
    now = format_utc_ms(store.now_ms())
    exports = [event for event in history if isinstance(event, events.ExportRead)]
    last = (exports[-1].format, exports[-1].file_hash) if exports else (None, None)
    return AnalysisMeta(now, now, len(digests), _date_range(digests), *last)


def _measure_applied(
    applied: events.RecommendationApplied,
    patterns: Sequence[Pattern],
    digests: Sequence[ConversationDigest],
) -> AppliedRecommendation:
    """Count the conversations with what was recommended before and since it was applied."""
    same = [pattern for pattern in patterns if pattern.id == applied.recommendation]
    ids = {name for pattern in same for name in pattern.conversation_ids}
    typed = [digest for digest in digests if digest.prompts]
    sides = (
        [digest.id in ids for digest in typed if (digest.started_ms >= applied.at_ms) is is_since]
        for is_since in (False, True)
    )
    before, since = (state.estimate_share(sum(side), len(side)) for side in sides)
    at = format_utc_ms(applied.at_ms)
    return AppliedRecommendation(
        applied.recommendation, applied.title, applied.file, at, before, since
    )


def apply_analyst_names(store: RetroStore, analysis: RetroAnalysis) -> RetroAnalysis:
    """Write the analysis with the names and findings that analysts gave."""
    counted = [pattern for pattern in analysis.patterns if pattern.kind != KIND]
    patterns = extend_findings(counted, store.iter_events())
    analysis = msgspec.structs.replace(analysis, patterns=patterns)
    output_files.write_output_files(store.root, [analysis_page(analysis)])
    return analysis


def iter_conversation(digest: ConversationDigest, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield address, role and text of an export's conversation.

    If the export is gone, and not in `folder` either, yield the prompts that the digest holds.
    """
    places = (Path(digest.export), folder / Path(digest.export).name)
    path = next((path for path in places if digest.export and path.exists()), None)
    if path is not None:
        element = reader.element_at(path, digest.member, digest.offset)
        chat = reader.decode_element(element) if element is not None else None
        if isinstance(chat, Conversation) and chat.id == digest.id:
            messages = iter_addressed_messages(chat)
            yield from ((address, message.role, message.text) for address, message in messages)
            return
    yield from ((prompt.address, "user", prompt.text) for prompt in digest.prompts)


def _date_range(digests: Iterable[ConversationDigest]) -> tuple[str, str] | None:
    times = [ms for digest in digests for ms in (digest.started_ms, digest.ended_ms) if ms]
    if not times:
        return None
    first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (min(times), max(times)))
    return f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"
