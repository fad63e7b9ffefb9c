"""A retro session: start, read, analyze, draw, give feedback, end.

A session's id is on disk before anything else happens, so that a crash right after it can be
resumed.
"""

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog import __version__
from flightlog.agents.claude_code import CONFIG_DIR
from flightlog.agents.claude_code.driver import ClaudeCode, clean_environment, find
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.process import CommandDriver, scripted_driver
from flightlog.agents.recordings import find_agent_dirs, reads_samples
from flightlog.agents.sandbox import (
    IsolationMode,
    parent_death_prefix,
    probe_isolation,
    read_only_prefix,
)
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.sharing import redact_session
from flightlog.model.addresses import Address, check_id, parse_address
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.output_files import OutputFile, Redacted, Tier
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session
from flightlog.model.text import format_utc_ms
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.retro import actions, events, logs
from flightlog.retro.analysis import analyze
from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analyst import (
    Analyst,
    AnalystEnvironment,
    AnalystTurn,
    build_prompt,
    marker_path,
)
from flightlog.retro.layout import feedback_page, render_artifact, render_markdown
from flightlog.retro.state import GAPS, QUESTIONS, Recommendation, RetroAnalysis, parse_rating
from flightlog.retro.store import ANALYSIS, RetroStore, load_tag_key
from flightlog.sources.chat_exports.conversation import PERSON
from flightlog.store import files, output_files
from flightlog.store.directories import remove_tree
from flightlog.views.session.timeline import iter_turns
from flightlog.views.transcript import RenderOptions, render_passage

RESUME = "resume-session.json"
LATEST = "latest"


class NewConversations(Struct, frozen=True):
    """The number of conversations read, and whether a new analysis is due."""

    counts: analyze.ReadCounts
    anything: bool
    archive: Archive | None = None

    def load_analysis(self, runtime: Runtime, store: RetroStore) -> RetroAnalysis:
        """Return the analysis, made again only if something is new; its diffs are always new."""
        homes = agent_homes(runtime)
        last = None if self.anything else store.load_analysis()
        if last is None:
            waste = analyze.list_waste(self.archive) if self.archive else ()
            return analyze.analyze(store, homes, waste)
        shown = (actions.show_action(store, one, homes) for one in last.recommendations)
        return msgspec.structs.replace(last, recommendations=tuple(shown))


class RetroSession(Struct):
    """A running session, and its analyst once there is one."""

    id: str
    analyst: Analyst | None = None


@contextmanager
def run_session(runtime: Runtime, store: RetroStore, resume: str = "") -> Iterator[RetroSession]:
    """Run a session in the block: empty `tmp/` and append one line of metrics at its end.

    If it fails before the first analysis, remove the directory that it created.
    """
    begun_ms, is_new = store.now_ms(), not store.root.exists()
    if resume:
        find_session(store, resume)  # raises before anything is created
    store.prepare_directory()
    try:
        with store.lock():
            session = RetroSession(start_session(runtime, store, resume))
            try:
                yield session
            finally:
                _end_session(runtime, store, session, (store.now_ms() - begun_ms) / 1000)
    finally:
        if is_new and not (store.root / ANALYSIS).exists():
            remove_tree(store.root)


def start_session(runtime: Runtime, store: RetroStore, resume: str = "") -> str:
    """Start a session or resume one, and store its id before anything else."""
    session = find_session(store, resume) if resume else runtime.new_id()
    body = msgspec.json.encode({"session_id": session}).decode() + "\n"
    output_files.write_output_files(store.root, [OutputFile(RESUME, Tier.PRIVATE, body)])
    return session


def find_session(store: RetroStore, resume: str) -> str:
    """Return the session to resume: `latest`, or one that is the current or has an analyst."""
    if resume == LATEST:
        return current_session(store)
    if (store.root / marker_path(check_id(resume))).exists() or resume == current_session(store):
        return resume
    raise NotFound(f"no such retro session: {resume[:60]}", hint="flightlog retro --resume")


def current_session(store: RetroStore) -> str:
    """Return the id of the session to resume."""
    try:
        resume = msgspec.json.decode((store.root / RESUME).read_bytes(), type=dict[str, str])
        return check_id(resume["session_id"])
    except (FileNotFoundError, msgspec.DecodeError, KeyError):
        raise NotFound("there is no session to resume", hint="flightlog retro EXPORT") from None


def read_new_input(
    runtime: Runtime,
    store: RetroStore,
    export: Path | None,
    progress: analyze.Progress,
    loop_sessions: analyze.LoopSessions | None,
) -> NewConversations:
    """Read new conversations of an export and, if there are `loop_sessions`, of the archive."""
    read, archive = analyze.ReadCounts(), None
    if export is not None:
        read += analyze.read_export(store, export.absolute(), progress)
    if loop_sessions is not None:
        archive = open_archive(runtime)

        def redact(session: Session) -> Redacted[Session]:
            return redact_session(runtime, archive, session)[0].map(
                lambda document: document.session
            )

        read += analyze.read_archive(store, archive, redact, loop_sessions, progress)
    return NewConversations(read, bool(read.new) or _is_stale(store), archive)


def _is_stale(store: RetroStore) -> bool:
    """Return whether the journal has input to the analysis and grew after it was written."""
    analysis = store.root / "state" / "analysis.json"
    journal = store.root / "state" / "journal.jsonl"
    if not analysis.is_file():
        return True
    inputs = events.PersonEvent | events.AnalystRan
    has_input = any(isinstance(event, inputs) for event in store.iter_events())
    return has_input and journal.stat().st_mtime_ns > analysis.stat().st_mtime_ns


def draw_artifact(
    store: RetroStore, analysis: RetroAnalysis, zone: tzinfo, form: str = "html"
) -> Path:
    """Write the analysis into `outputs/` as HTML with charts, or as Markdown."""
    name = store.name_output("retro", form)
    if form == "md":
        body = store.redactor.redact_text(render_markdown(analysis)).value.text
    else:
        body = render_artifact(analysis, _with_clean_titles(store), zone, name)
    output_files.write_output_files(
        store.root, [OutputFile(name, Tier.PRIVATE, body)], durable=False
    )
    store.journal.append(events.ArtifactDrawn(format_utc_ms(store.now_ms())[:10], name))
    return store.root / name


def _with_clean_titles(store: RetroStore) -> list[ConversationDigest]:
    """Return the digests with titles that may be passed on; an export's are as it has them."""
    digests = analyze.load_analyzed_digests(store)
    prompts = [digest.prompts[0].text if digest.prompts else "" for digest in digests]
    titles = [digest.title or prompt for digest, prompt in zip(digests, prompts, strict=True)]
    titles = JsonRedactor(store.redactor).redact_value(titles)
    return [replace(digest, title=title) for digest, title in zip(digests, titles, strict=True)]


def make_analyst(runtime: Runtime, store: RetroStore, name: str, session: RetroSession) -> Analyst:
    """Give a session its analyst: `claude-code`, `scripted`, or a command with `{prompt}` in it."""
    session.analyst = _open_analyst(runtime, store, name, session.id)
    return session.analyst


def _open_analyst(runtime: Runtime, store: RetroStore, name: str, session: str) -> Analyst:
    path = runtime.program_path
    environment = clean_environment(runtime.environ) | _login_environment(runtime)
    key = load_tag_key(runtime)
    if name == AGENT_NAME:
        client = ClaudeCode(find(runtime.environ.get("FLIGHTLOG_CLAUDE", ""), path))
        before = parent_death_prefix(path)
        sandbox = AnalystEnvironment(environment, key, store.root / "tmp", before)
        return Analyst(store, client, session, sandbox)
    words = shlex.split(name)
    if name != "scripted" and (not words or shutil.which(words[0], path=path) is None):
        hint = "one of: claude-code, scripted, a command with {prompt} in it"
        raise NotFound(f"no such analyst: {name[:60]!r}", hint=hint)
    isolation = probe_isolation(path)
    if isolation is IsolationMode.NONE:
        problem = "cannot run the analyst read-only: this system has no mount namespaces"
        raise Unavailable(problem, hint="--analyst claude-code")
    driver = (
        scripted_driver("claude-opus-5-5", __version__)
        if name == "scripted"
        else CommandDriver(tuple(words))
    )
    scratch = store.root / "state" / "agent"
    files.ensure_dir(scratch)
    environment |= {"TMPDIR": str(scratch), CONFIG_DIR: str(scratch)}
    prefix = read_only_prefix(isolation, scratch)
    return Analyst(store, driver, session, AnalystEnvironment(environment, key, scratch, prefix))


def ask_analyst(analyst: Analyst, analysis: RetroAnalysis, message: str) -> AnalystTurn:
    """Send the findings first if the conversation is new, then `message` if any."""
    if message and analyst.has_started:
        return analyst.send_prompt(message, analysis)
    first = analyst.send_prompt(build_prompt(analysis), analysis)
    return analyst.send_prompt(message, analysis) if message else first


def _login_environment(runtime: Runtime) -> dict[str, str]:
    """Return the person's own settings of their agent, which `clean_environment` drops."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", CONFIG_DIR, "CHAT_RETRO_DEBUG")
    return {name: runtime.environ[name] for name in names if name in runtime.environ}


def _end_session(
    runtime: Runtime, store: RetroStore, session: RetroSession, duration_s: float
) -> None:
    logs.empty_tmp(store.root)
    if session.analyst is not None:
        session.analyst.append_metrics(duration_s)
        return
    name = logs.pseudonymize_session(session.id, load_tag_key(runtime))
    timing = logs.Timing(session_duration_seconds=duration_s)
    metrics = logs.SessionMetrics(name, 0.0, logs.SessionTokens(), timing=timing)
    logs.append_metrics(store.root, metrics)


def find_recommendation(store: RetroStore, prefix: str) -> Recommendation:
    """Return the recommendation of the last analysis whose id starts with `prefix`."""
    analysis = store.load_analysis()
    known = analysis.recommendations if analysis else ()
    matches = [one for one in known if one.id.startswith(prefix)]
    exact = [one for one in matches if one.id == prefix]
    if len(exact or matches) != 1:
        raise NotFound(f"no such recommendation: {prefix[:60]}", hint="flightlog retro analyze")
    return (exact or matches)[0]


def agent_homes(runtime: Runtime) -> dict[str, str]:
    """Return the directory of each agent, for its files that concern all projects."""
    if reads_samples(runtime):
        return {}  # those of the samples are the package's own
    return {agent: dirs[0] for agent, dirs in find_agent_dirs(runtime).items()}


def read_evidence(
    runtime: Runtime, store: RetroStore, prefix: str, folder: Path
) -> list[tuple[str, str, str]]:
    """Return address, role and text of the messages at an address."""
    address = parse_address(prefix)
    digest = find_digest(store, prefix)
    if digest.export:
        rows = list(analyze.iter_conversation(digest, folder))
        wanted = str(msgspec.structs.replace(address, session=digest.id))
        exact = [row for row in rows if row[0] == wanted or row[0].startswith(f"{wanted}.")]
        if address.turn:
            is_gone = all(role == PERSON for _, role, _ in rows)  # then the prompt is the nearest
            rows = exact or [row for row in rows if is_gone and wanted.startswith(f"{row[0]}.")]
    else:
        rows = list(_iter_session_rows(open_archive(runtime).read_session(digest.id), address))
    if address.turn and not rows:
        hint = f"flightlog retro show {digest.id}"
        raise NotFound(f"the conversation has nothing at {prefix[:60]}", hint=hint)
    return rows


def _iter_session_rows(session: Session, at: Address) -> Iterator[tuple[str, str, str]]:
    """Yield the prompts of a session; of one turn also the steps, or one of them."""
    for thread, turn in iter_turns(session):
        if thread != at.subagent or at.turn not in (0, turn.number):
            continue
        address = Address(session.id, turn.number, subagent=thread)
        if not at.step:
            yield str(address), "user", turn.text
        for step in turn.steps if at.turn else ():
            if at.step in (0, step.number):
                address = Address(session.id, turn.number, step.number, thread)
                lines = render_passage(session, address, RenderOptions())
                yield str(address), "assistant", "\n".join(line.text for line in lines)


def find_digest(store: RetroStore, prefix: str) -> ConversationDigest:
    """Return the only conversation whose id starts with the session in the address `prefix`."""
    session = parse_address(prefix).session
    digests = analyze.load_digests(store)
    if session in digests:
        return digests[session]
    matches = [digest for key, digest in digests.items() if session and key.startswith(session)]
    if len(matches) != 1:
        hint = "flightlog retro patterns"
        raise NotFound(f"no finding or conversation starts with {prefix[:60]!r}", hint=hint)
    return matches[0]


def record_rating(store: RetroStore, pattern: str, rating: str, comment: str) -> Path:
    """Store a rating of a finding; return the feedback file."""
    analysis = store.load_analysis()
    known = {one.id for one in analysis.patterns} if analysis else set()
    known |= {one.id for one in analysis.recommendations} if analysis else set()
    if pattern not in known:
        raise NotFound(f"no such finding: {pattern[:60]}", hint="flightlog retro patterns")
    now = format_utc_ms(store.now_ms())
    ratings = (events.Rating(pattern, parse_rating(rating), now, comment),)
    return _store_feedback(store, now, ratings=ratings)


def record_answer(store: RetroStore, question: str, response: str, rating: int | None) -> Path:
    """Store an answer to a quality question; return the feedback file."""
    if question not in QUESTIONS:
        raise Invalid(f"no such question: {question[:40]}", hint=f"one of: {', '.join(QUESTIONS)}")
    now = format_utc_ms(store.now_ms())
    answer = events.QualityAnswer(question, QUESTIONS[question], response, now, rating)
    return _store_feedback(store, now, quality_responses=(answer,))


def record_gap(store: RetroStore, description: str, category: str, priority: str) -> Path:
    """Store a report of a missed pattern; return the feedback file."""
    if category not in GAPS:
        raise Invalid(f"no such category: {category[:40]}", hint=f"one of: {', '.join(GAPS)}")
    now = format_utc_ms(store.now_ms())
    fields = {"description": description, "category": category, "priority": priority}
    gap = msgspec.convert(fields | {"timestamp": now}, events.CoverageGap)
    return _store_feedback(store, now, gaps=(gap,))


def import_ratings(store: RetroStore, path: Path) -> Path:
    """Store the ratings that an artifact saved; return the feedback file."""
    try:
        scores = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, int]])["ratings"]
    except (msgspec.DecodeError, KeyError):
        hint = "save it again from the artifact"
        raise Invalid(f"not the feedback of an artifact: {path.name}", hint=hint) from None
    now = format_utc_ms(store.now_ms())
    ratings = tuple(
        events.Rating(name, parse_rating(str(score)), now) for name, score in sorted(scores.items())
    )
    return _store_feedback(store, now, ratings=ratings)


def _store_feedback(store: RetroStore, now: str, **parts: Any) -> Path:
    try:
        session = current_session(store)
    except NotFound:
        session = "none"
    feedback = events.FeedbackGiven(session, now, **parts)
    store.journal.append(feedback, durable=True)
    page = feedback_page(feedback)
    path, number = store.root / page.path, 1
    # Several commands within a second are several files.
    while not files.create_file(path, str(page.body).encode()):
        number += 1
        path = (store.root / page.path).with_stem(f"{Path(page.path).stem}_{number}")
    return path
