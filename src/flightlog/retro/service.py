"""One sitting of retro: begin, read, analyse, draw, say what one thinks, end.

A session's id is on disk before anything else happens, so that a crash in its first moment can be resumed.
"""

import shlex
import shutil
from datetime import tzinfo
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog import __version__
from flightlog.agents.claude_code.driver import ClaudeCode, clean_environment, find
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.process import CommandDriver, scripted_driver
from flightlog.agents.sandbox import IsolationMode, parent_death_prefix, probe_isolation, read_only_prefix
from flightlog.archive.archive import open_archive
from flightlog.archive.sharing import redact_session
from flightlog.model.addresses import check_id, parse_address
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.output_files import OutputFile, Redacted, Tier
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session
from flightlog.retro import events, logs
from flightlog.retro.analysis import analyze
from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analyst import Analyst, AnalystEnvironment, AnalystTurn, build_prompt
from flightlog.retro.layout import feedback_page, render_artifact, render_markdown
from flightlog.retro.state import GAPS, QUESTIONS, RetroAnalysis, parse_rating
from flightlog.retro.store import RetroStore, format_utc_timestamp, load_tag_key
from flightlog.store import files, output_files

RESUME = "resume-session.json"
LATEST = "latest"
OUTPUTS = "outputs"


class NewConversations(Struct, frozen=True):
    """What was read, and whether a new analysis is due."""

    read: analyze.ReadCounts
    anything: bool

    def load_analysis(self, room: RetroStore, zone: tzinfo) -> RetroAnalysis:
        """Return the analysis: the last one where nothing is new."""
        last = None if self.anything else room.load_analysis()
        return last or analyze.analyze(room, zone)


def start_session(runtime: Runtime, room: RetroStore, resume: str = "") -> str:
    """Begin a session, or go on with one, and say so on disk before anything else."""
    session = check_id(resume) if resume and resume != LATEST else current_session(room) if resume else runtime.new_id()
    body = msgspec.json.encode({"session_id": session}).decode() + "\n"
    output_files.write_output_files(room.root, [OutputFile(RESUME, Tier.PRIVATE, body)])
    return session


def current_session(room: RetroStore) -> str:
    """Return the session to resume."""
    try:
        said = msgspec.json.decode((room.root / RESUME).read_bytes(), type=dict[str, str])
        return check_id(said["session_id"])
    except (FileNotFoundError, msgspec.DecodeError, KeyError):
        raise NotFound("there is no session to resume", hint="flightlog retro EXPORT") from None


def read_new_input(
    runtime: Runtime, room: RetroStore, export: Path | None, progress: analyze.Progress, *, sessions: bool
) -> NewConversations:
    """Read what is new."""
    read = analyze.ReadCounts()
    if export is not None:
        read += analyze.read_export(room, export.absolute(), progress)
    if sessions:
        archive = open_archive(runtime)

        def redact(session: Session) -> Redacted[Session]:
            return redact_session(runtime, archive, session)[0].map(lambda document: document.session)

        read += analyze.read_archive(room, archive, redact, progress)
    last = (room.root / "state" / "analysis.json").is_file()
    told = [
        each
        for each in room.iter_events()
        if isinstance(each, events.PreferenceSet | events.FeedbackGiven | events.AnalystRan)
    ]
    stale = bool(told) and _has_changed(room)
    return NewConversations(read, bool(read.new) or not last or stale)


def _has_changed(room: RetroStore) -> bool:
    """Whether the journal grew after the last analysis was written."""
    analysis, journal = room.root / "state" / "analysis.json", room.root / "state" / "journal.jsonl"
    return not analysis.is_file() or journal.stat().st_mtime_ns > analysis.stat().st_mtime_ns


def draw_artifact(room: RetroStore, analysis: RetroAnalysis, zone: tzinfo, form: str = "html") -> Path:
    """Write the pictures of an analysis into `outputs/`, or its words as Markdown."""
    now = format_utc_timestamp(room.now_ms())
    name = f"{OUTPUTS}/retro_{now[:19].replace(':', '').replace('-', '')}.{form}"
    body = (
        render_markdown(analysis)
        if form == "md"
        else render_artifact(analysis, list(analyze.load_digests(room).values()), zone, name)
    )
    output_files.write_output_files(room.root, [OutputFile(name, Tier.PRIVATE, body)], durable=False)
    room.journal.append(events.ArtifactDrawn(now[:10], name))
    return room.root / name


def make_analyst(runtime: Runtime, room: RetroStore, written: str, session: str) -> Analyst:
    """Sit down with an analyst: `claude-code`, `scripted`, or the words of any program with `{prompt}` among them."""
    path = runtime.program_path
    environment = clean_environment(runtime.environ) | _login_environment(runtime)
    if written == AGENT_NAME:
        client = ClaudeCode(find(runtime.environ.get("FLIGHTLOG_CLAUDE", ""), path))
        return Analyst(
            room,
            client,
            session,
            AnalystEnvironment(environment, load_tag_key(runtime), room.root / "tmp", parent_death_prefix(path)),
        )
    words = shlex.split(written)
    if written != "scripted" and (not words or shutil.which(words[0], path=path) is None):
        raise NotFound(
            f"no such analyst: {written[:60]!r}", hint="one of: claude-code, scripted, a command with {prompt} in it"
        )
    means = probe_isolation(path)
    if means is IsolationMode.NONE:
        raise Unavailable(
            "a program cannot be kept from writing here: there are no mount namespaces", hint="--analyst claude-code"
        )
    driver = scripted_driver("claude-opus-5-5", __version__) if written == "scripted" else CommandDriver(tuple(words))
    place = room.root / "state" / "agent"
    files.ensure_dir(place)
    own = {"TMPDIR": str(place), "CLAUDE_CONFIG_DIR": str(place)}
    return Analyst(
        room,
        driver,
        session,
        AnalystEnvironment(environment | own, load_tag_key(runtime), place, read_only_prefix(means, place)),
    )


def ask_analyst(sitting: Analyst, analysis: RetroAnalysis, said: str) -> AnalystTurn:
    """Hand the findings over, or say something in a conversation that was begun."""
    if said and sitting.has_started:
        return sitting.send_prompt(said, analysis)
    first = sitting.send_prompt(build_prompt(analysis), analysis)
    return sitting.send_prompt(said, analysis) if said else first


def _login_environment(runtime: Runtime) -> dict[str, str]:
    """What a person set for their own agent, and a surrounding session did not."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "CHAT_RETRO_DEBUG")
    return {name: runtime.environ[name] for name in names if name in runtime.environ}


def end_session(runtime: Runtime, room: RetroStore) -> None:
    """End a session: scripts go, numbers stay."""
    logs.empty_tmp(room.root)
    session = logs.pseudonymize_session(current_session(room), load_tag_key(runtime))
    logs.append_metrics(room.root, logs.SessionMetrics(session, 0.0, logs.SessionTokens()))


def read_evidence(runtime: Runtime, room: RetroStore, written: str, folder: Path) -> list[tuple[str, str, str]]:
    """Return what stands at an address: of an export's conversation, or of a recorded session."""
    address = parse_address(written)
    digest = find_digest(room, written)
    if digest.source == AGENT_NAME:
        told = open_archive(runtime).read_session(digest.id)
        rows = [(f"{told.id}#{turn.number}", "user", turn.text) for turn in told.turns]
    else:
        rows = list(analyze.iter_conversation(digest, folder))
    wanted = str(msgspec.structs.replace(address, session=digest.id))
    exact = [row for row in rows if row[0] == wanted or row[0].startswith(f"{wanted}.")]
    return exact or (rows if address.turn == 0 else [row for row in rows if wanted.startswith(f"{row[0]}.")])


def find_digest(room: RetroStore, written: str) -> ConversationDigest:
    """Return the one conversation an address begins."""
    name = parse_address(written).session
    found = [each for each in analyze.load_digests(room).values() if name and each.id.startswith(name)]
    if len(found) != 1:
        raise NotFound(f"no finding or conversation begins with {written[:60]!r}", hint="flightlog retro patterns")
    return found[0]


def record_rating(room: RetroStore, pattern: str, rating: str, comment: str) -> Path:
    """Keep a rating of a finding."""
    analysis = room.load_analysis()
    if analysis is None or pattern not in {each.id for each in analysis.patterns}:
        raise NotFound(f"no such finding: {pattern[:60]}", hint="flightlog retro patterns")
    now = format_utc_timestamp(room.now_ms())
    return _store_feedback(
        room,
        events.FeedbackGiven(
            _session_or_none(room), now, (events.Rating(pattern, parse_rating(rating), now, comment),)
        ),
    )


def record_answer(room: RetroStore, question: str, response: str, rating: int | None) -> Path:
    """Keep an answer."""
    if question not in QUESTIONS:
        raise Invalid(f"no such question: {question[:40]}", hint=f"one of: {', '.join(QUESTIONS)}")
    now = format_utc_timestamp(room.now_ms())
    answer = events.QualityAnswer(question, QUESTIONS[question], response, now, rating)
    return _store_feedback(room, events.FeedbackGiven(_session_or_none(room), now, quality_responses=(answer,)))


def record_gap(room: RetroStore, description: str, category: str, priority: str) -> Path:
    """Keep a report of what was not found."""
    if category not in GAPS:
        raise Invalid(f"no such category: {category[:40]}", hint=f"one of: {', '.join(GAPS)}")
    now = format_utc_timestamp(room.now_ms())
    said = {"description": description, "category": category, "priority": priority, "timestamp": now}
    return _store_feedback(
        room, events.FeedbackGiven(_session_or_none(room), now, gaps=(msgspec.convert(said, events.CoverageGap),))
    )


def import_ratings(room: RetroStore, path: Path) -> Path:
    """Keep the ratings an artifact saved: a map from finding to rating."""
    try:
        said = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, int]])["ratings"]
    except (msgspec.DecodeError, KeyError):
        raise Invalid(f"not the feedback of an artifact: {path.name}", hint="save it again from the artifact") from None
    now = format_utc_timestamp(room.now_ms())
    ratings = tuple(events.Rating(name, parse_rating(str(number)), now) for name, number in sorted(said.items()))
    return _store_feedback(room, events.FeedbackGiven(_session_or_none(room), now, ratings))


def _session_or_none(room: RetroStore) -> str:
    try:
        return current_session(room)
    except NotFound:
        return "none"


def _store_feedback(room: RetroStore, given: events.FeedbackGiven) -> Path:
    room.journal.append(given, durable=True)
    page = feedback_page(given)
    output_files.write_output_files(room.root, [page])
    return room.root / page.path
