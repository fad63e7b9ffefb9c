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
from flightlog.agents.command import Command, scripted
from flightlog.agents.namespace import Means, leash, probe, sealed
from flightlog.app.retro import key
from flightlog.app.sharing import redact_session
from flightlog.archive.door import open_archive
from flightlog.model.address import parse
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.ids import checked
from flightlog.model.pages import Page, Redacted, Tier
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session
from flightlog.retro import events, logs, looking
from flightlog.retro.analyst import Analyst, Judgement, World, order
from flightlog.retro.artifact.page import artifact, markdown
from flightlog.retro.digest import Digest
from flightlog.retro.feedback import GAPS, QUESTIONS, score
from flightlog.retro.layout import feedback_page
from flightlog.retro.room import Room, stamp
from flightlog.retro.state import Analysis
from flightlog.store import files, pages

RESUME = "resume-session.json"
LATEST = "latest"
OUTPUTS = "outputs"


class Found(Struct, frozen=True):
    """What was read, and whether a new analysis is due."""

    read: looking.Read
    anything: bool

    def analysis(self, room: Room, zone: tzinfo) -> Analysis:
        """Return the analysis: the last one where nothing is new."""
        last = None if self.anything else room.analysis()
        return last or looking.analyse(room, zone)


def begin(runtime: Runtime, room: Room, resume: str = "") -> str:
    """Begin a session, or go on with one, and say so on disk before anything else."""
    session = checked(resume) if resume and resume != LATEST else current(room) if resume else runtime.new_id()
    body = msgspec.json.encode({"session_id": session}).decode() + "\n"
    pages.publish(room.root, [Page(RESUME, Tier.PRIVATE, body)])
    return session


def current(room: Room) -> str:
    """Return the session to resume."""
    try:
        said = msgspec.json.decode((room.root / RESUME).read_bytes(), type=dict[str, str])
        return checked(said["session_id"])
    except (FileNotFoundError, msgspec.DecodeError, KeyError):
        raise NotFound("there is no session to resume", hint="flightlog retro EXPORT") from None


def new_in(runtime: Runtime, room: Room, export: Path | None, progress: looking.Progress, *, sessions: bool) -> Found:
    """Read what is new."""
    read = looking.Read()
    if export is not None:
        read += looking.read_export(room, export.absolute(), progress)
    if sessions:
        archive = open_archive(runtime)

        def redact(session: Session) -> Redacted[Session]:
            return redact_session(runtime, archive, session)[0].map(lambda document: document.session)

        read += looking.read_archive(room, archive, redact, progress)
    last = (room.root / "state" / "analysis.json").is_file()
    told = [
        each for each in room.happened() if isinstance(each, events.Preferred | events.FeedbackGiven | events.Judged)
    ]
    stale = bool(told) and _changed_since(room)
    return Found(read, bool(read.new) or not last or stale)


def _changed_since(room: Room) -> bool:
    """Whether the journal grew after the last analysis was written."""
    analysis, journal = room.root / "state" / "analysis.json", room.root / "state" / "journal.jsonl"
    return not analysis.is_file() or journal.stat().st_mtime_ns > analysis.stat().st_mtime_ns


def draw_artifact(room: Room, analysis: Analysis, zone: tzinfo, form: str = "html") -> Path:
    """Write the pictures of an analysis into `outputs/`, or its words as Markdown."""
    now = stamp(room.now_ms())
    name = f"{OUTPUTS}/retro_{now[:19].replace(':', '').replace('-', '')}.{form}"
    body = markdown(analysis) if form == "md" else artifact(analysis, list(looking.kept(room).values()), zone, name)
    pages.publish(room.root, [Page(name, Tier.PRIVATE, body)], durable=False)
    room.journal.append(events.Drawn(now[:10], name))
    return room.root / name


def analyst(runtime: Runtime, room: Room, written: str, session: str) -> Analyst:
    """Sit down with an analyst: `claude-code`, `scripted`, or the words of any program with `{prompt}` among them."""
    path = runtime.program_path
    environment = clean_environment(runtime.environ) | _login(runtime)
    if written == "claude-code":
        client = ClaudeCode(find(runtime.environ.get("FLIGHTLOG_CLAUDE", ""), path))
        return Analyst(room, client, session, World(environment, key(runtime), room.root / "tmp", leash(path)))
    words = shlex.split(written)
    if written != "scripted" and (not words or shutil.which(words[0], path=path) is None):
        raise NotFound(
            f"no such analyst: {written[:60]!r}", hint="one of: claude-code, scripted, a command with {prompt} in it"
        )
    means = probe(path)
    if means is Means.NONE:
        raise Unavailable(
            "a program cannot be kept from writing here: there are no mount namespaces", hint="--analyst claude-code"
        )
    driver = scripted("claude-opus-5-5", __version__) if written == "scripted" else Command(tuple(words))
    place = room.root / "state" / "agent"
    files.ensure_dir(place)
    own = {"TMPDIR": str(place), "CLAUDE_CONFIG_DIR": str(place)}
    return Analyst(room, driver, session, World(environment | own, key(runtime), place, sealed(means, place)))


def begin_asking(sitting: Analyst, analysis: Analysis, said: str) -> Judgement:
    """Hand the findings over, or say something in a conversation that was begun."""
    if said and sitting.is_begun:
        return sitting.say(said, analysis)
    first = sitting.say(order(analysis), analysis)
    return sitting.say(said, analysis) if said else first


def _login(runtime: Runtime) -> dict[str, str]:
    """What a person set for their own agent, and a surrounding session did not."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "CHAT_RETRO_DEBUG")
    return {name: runtime.environ[name] for name in names if name in runtime.environ}


def end(runtime: Runtime, room: Room) -> None:
    """End a session: scripts go, numbers stay."""
    logs.emptied(room.root)
    session = logs.pseudonym(current(room), key(runtime))
    logs.metered(room.root, logs.Metrics(session, 0.0, logs.Tokens()))


def place(runtime: Runtime, room: Room, written: str, folder: Path) -> list[tuple[str, str, str]]:
    """Return what stands at an address: of an export's conversation, or of a recorded session."""
    address = parse(written)
    digest = found_digest(room, written)
    if digest.source == "claude-code":
        told = open_archive(runtime).session(digest.id)
        rows = [(f"{told.id}#{turn.number}", "user", turn.text) for turn in told.turns]
    else:
        rows = list(looking.opened(digest, folder))
    wanted = str(msgspec.structs.replace(address, session=digest.id))
    exact = [row for row in rows if row[0] == wanted or row[0].startswith(f"{wanted}.")]
    return exact or (rows if address.turn == 0 else [row for row in rows if wanted.startswith(f"{row[0]}.")])


def found_digest(room: Room, written: str) -> Digest:
    """Return the one conversation an address begins."""
    name = parse(written).session
    found = [each for each in looking.kept(room).values() if name and each.id.startswith(name)]
    if len(found) != 1:
        raise NotFound(f"no finding or conversation begins with {written[:60]!r}", hint="flightlog retro patterns")
    return found[0]


def rated(room: Room, pattern: str, rating: str, comment: str) -> Path:
    """Keep a rating of a finding."""
    analysis = room.analysis()
    if analysis is None or pattern not in {each.id for each in analysis.patterns}:
        raise NotFound(f"no such finding: {pattern[:60]}", hint="flightlog retro patterns")
    now = stamp(room.now_ms())
    return _keep(
        room, events.FeedbackGiven(_session(room), now, (events.Rating(pattern, score(rating), now, comment),))
    )


def answered(room: Room, question: str, response: str, rating: int | None) -> Path:
    """Keep an answer."""
    if question not in QUESTIONS:
        raise Invalid(f"no such question: {question[:40]}", hint=f"one of: {', '.join(QUESTIONS)}")
    now = stamp(room.now_ms())
    answer = events.Answer(question, QUESTIONS[question], response, now, rating)
    return _keep(room, events.FeedbackGiven(_session(room), now, quality_responses=(answer,)))


def missed(room: Room, description: str, category: str, priority: str) -> Path:
    """Keep a report of what was not found."""
    if category not in GAPS:
        raise Invalid(f"no such category: {category[:40]}", hint=f"one of: {', '.join(GAPS)}")
    now = stamp(room.now_ms())
    said = {"description": description, "category": category, "priority": priority, "timestamp": now}
    return _keep(room, events.FeedbackGiven(_session(room), now, gaps=(msgspec.convert(said, events.Gap),)))


def imported(room: Room, path: Path) -> Path:
    """Keep the ratings an artifact saved: a map from finding to rating."""
    try:
        said = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, int]])["ratings"]
    except (msgspec.DecodeError, KeyError):
        raise Invalid(f"not the feedback of an artifact: {path.name}", hint="save it again from the artifact") from None
    now = stamp(room.now_ms())
    ratings = tuple(events.Rating(name, score(str(number)), now) for name, number in sorted(said.items()))
    return _keep(room, events.FeedbackGiven(_session(room), now, ratings))


def _session(room: Room) -> str:
    try:
        return current(room)
    except NotFound:
        return "none"


def _keep(room: Room, given: events.FeedbackGiven) -> Path:
    room.journal.append(given, durable=True)
    page = feedback_page(given)
    pages.publish(room.root, [page])
    return room.root / page.path
