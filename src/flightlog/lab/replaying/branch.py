"""A branch at work: a run of its own, laid out at the branch point, its agent brought there, then live.

    source run ─ read only ─→ .source/ (request, words until then) + tree ─→ room at the original path
    client ─ sentinel as its prompt ─→ proxy: recorded context, certificate, then on to the model

Everything a branch needs is on record in its own directory before its agent starts, so that one whose
process died is taken up as any run is. The source run, the directory it worked in and the agent's
own store stay as they are.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flightlog.agents.claude_code.resume import rename_session, resume_arguments, transcript_file
from flightlog.agents.namespace import Means
from flightlog.lab.book import SOURCE, Book, create
from flightlog.lab.config import RunConfig, SessionConfig, VerifierConfig
from flightlog.lab.events import Branched, Certified
from flightlog.lab.replaying import certificate as certificates
from flightlog.lab.replaying.certificate import DIFFERS, Facts, certify
from flightlog.lab.replaying.context import Context, Spliced
from flightlog.lab.replaying.cursor import Cursor, Given, Serving
from flightlog.lab.replaying.source import Point, recorded
from flightlog.lab.replaying.sweeping import IN_PLACE, MARK
from flightlog.lab.running import run
from flightlog.lab.running.asking import is_captured
from flightlog.lab.running.session import Way
from flightlog.lab.running.stage import RunEnvironment, Stage
from flightlog.lab.running.taking import project
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.exchange import Context as Lane
from flightlog.sources.api.proxy import Rewrite
from flightlog.sources.api.recorder import Arrived, Sent
from flightlog.sources.api.wire import Said
from flightlog.store import files
from flightlog.store.copies import copy_tree, throw_away
from flightlog.store.files import process_tag
from flightlog.store.git import remove_stale
from flightlog.store.kept import TRANSCRIPT
from flightlog.store.locks import lock
from flightlog.store.trees import Place, open_trees

REQUEST = "request.json"
AFTER = "after.json"
SERVED = "served.json"
ORIGINAL = "_original"
TRUNCATED = "source_transcript_truncated.jsonl"
_NAMES = uuid.UUID("6f2b0f0e-58c4-4b5c-9a53-0d3f7a1f6c10")
_INIT_S = 2.0


class Asked(msgspec.Struct, frozen=True):
    """What a person asks of a replay."""

    prompt: str = ""
    count: int = 1
    allow_drift: bool = False
    continue_sessions: bool = False
    verify: tuple[str, ...] = ()
    cursor: bool = False


def prepare(source: Book, point: Point, asked: Asked, where: tuple[Path, int], setting: RunEnvironment) -> Book:
    """Make the directory of a branch, `where` it is and its number, with all it takes from its source."""
    path, number = where
    # The branch takes over the source's configuration and is the person's own from then on.
    setting.permit(source.config, source.path, source.config_digest)
    if setting.means is Means.NONE and asked.count > 1:
        raise Invalid(
            "several branches need mount namespaces, which are not to be had here", hint="replay one at a time"
        )
    if not Path(source.config.work_dir).is_dir():
        raise NotFound(f"the work directory is gone: {source.config.work_dir}", hint="make it, empty, at that path")
    config = _config(source.config, point, asked, path.name)
    book = create(
        path, config, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id, remember=setting.remember
    )
    files.replace(files.inside(path, f"{SOURCE}/{TRANSCRIPT}"), b"".join(point.transcript))
    if point.body:
        files.replace(files.inside(path, f"{SOURCE}/{REQUEST}"), point.body)
        files.replace(files.inside(path, f"{SOURCE}/{AFTER}"), point.after)
    if asked.cursor:
        files.replace(files.inside(path, f"{SOURCE}/{SERVED}"), point.served)
    branched = Branched(
        source_run=source.name,
        source_session=point.session.index,
        source_dir=point.session.name,
        source_session_id=point.session_id,
        turn=point.turn,
        number=number,
        count=asked.count,
        tree=point.tree,
        replicate=point.session.replicate,
        prompt=asked.prompt,
        resume_at=point.cut.resume_at,
        fresh=point.cut.fresh,
        allow_drift=asked.allow_drift,
        request=point.request,
        betas=point.betas,
        effects=point.effects,
        scrubbed=point.scrubbed,
        rebuilt=point.rebuilt,
        cursor=asked.cursor,
    )
    book.note(branched, durable=True)
    return book


def carry_on(book: Book, setting: RunEnvironment, *, again: bool) -> Book:
    """Carry out or take up any run, a replay or not."""
    return run.carry_on(book, setting, again=again, branching=_Branching(book) if book.state.branch else None)


class _Branching:
    """What makes a run a replay."""

    def __init__(self, book: Book) -> None:
        assert book.state.branch is not None, "only for a run that is a replay"
        self._branch = book.state.branch
        self._context: Context | None = None

    @contextmanager
    def laid(self, book: Book, setting: RunEnvironment) -> Iterator[Path]:
        """Make a copy of the work directory what it was before the turn; what snapshots leave out is today's.

        Without a mount namespace it is the directory itself, held alone, saved first and put back in the end.
        """
        work_dir = Path(book.config.work_dir).resolve()
        if setting.means is not Means.NONE:
            tree = book.scratch / "tree"
            throw_away(tree)
            copy_tree(work_dir, tree)
            self._restored(book, setting, tree)
            yield tree
            return
        with lock(book.path.with_name(IN_PLACE), who=f"process {process_tag()}"):
            place = Place(book.shadow, work_dir, setting.home, setting.runtime.program_path)
            own = open_trees(place, now=setting.runtime.clock.now_s, line="original")
            mark = book.path / MARK
            if not mark.exists():
                saved = own.snapshot(f"{ORIGINAL}_{book.state.taken}")
                files.replace(mark, saved.name.encode())
            try:
                self._restored(book, setting, work_dir)
                yield work_dir
            finally:
                own.restore(mark.read_text("utf-8"))
                remove_stale(mark)

    def _restored(self, book: Book, setting: RunEnvironment, tree: Path) -> None:
        if book.state.baseline is not None:
            shadow, name = book.shadow, book.state.baseline.tree
        else:
            # The source's own repository is never written to, and a restore writes an index.
            shadow, name = book.scratch / "source_git", self._branch.tree
            source = book.path.with_name(self._branch.source_run) / ".shadow_git"
            if not source.is_dir():
                raise NotFound(f"the source run is gone: {source.parent}", hint="put it beside the replay again")
            throw_away(shadow)
            copy_tree(source, shadow)
        place = Place(shadow, tree, setting.home, setting.runtime.program_path)
        open_trees(place, now=setting.runtime.clock.now_s, line="laid").restore(name)
        throw_away(book.scratch / "source_git")

    def way(self, stage: Stage, attempt: int) -> Way:
        """Put the words until the cut where the client looks for them, and say how it is to begin."""
        book, branch = stage.book, self._branch
        kept = (book.path / SOURCE / TRANSCRIPT).read_bytes()
        files.replace(files.inside(book.path / "session_01", TRUNCATED), kept)
        if branch.cursor:
            context = Context(recorded((book.path / SOURCE / REQUEST).read_bytes()), "", branch.prompt)
            given = msgspec.json.decode((book.path / SOURCE / SERVED).read_bytes(), type=list[Given])
            judge = _Judge(stage, attempt, branch, context)
            serving = Serving(Cursor(given), context, judge.once, allow_drift=branch.allow_drift)
            return Way(book.config.sessions[0].prompt, "", (), serving.rewrite)
        sentinel = _sentinel(book, attempt)
        resume = ""
        words: tuple[str, ...] = ()
        if not branch.fresh:
            resume = _placed_id(book, attempt)
            text = rename_session(kept.splitlines(keepends=True), branch.source_session_id, resume)
            files.ensure_dir(project(stage))
            files.replace(transcript_file(project(stage), resume), text, durable=False)
            words = resume_arguments(branch.resume_at)
        prompt = f"{sentinel}\n{branch.prompt}" if branch.prompt else sentinel
        request = book.path / SOURCE / REQUEST
        if not request.exists() or not is_captured(book.config):
            return Way(branch.prompt or "Continue.", resume, words, _Uncompared(stage, attempt, self._branch).rewrite)
        self._context = self._recorded(book, attempt)
        judge = _Judge(stage, attempt, branch, self._context)
        return Way(prompt, resume, words, _Rewriting(judge, self._context).rewrite)

    def onward(self, stage: Stage) -> Rewrite:
        """Send the recorded context also where a later session goes on with the branch's conversation."""
        first = stage.book.state.last("session_01")
        if self._context is None and (stage.book.path / SOURCE / REQUEST).exists() and first is not None:
            self._context = self._recorded(stage.book, first.number)
            self._context.resumed()
        context = self._context

        def rewrite(said: Said, arrived: Arrived) -> Sent | None:
            if context is None or said.context is Lane.SIDE:
                return None
            spliced = context.splice(msgspec.json.decode(arrived.body), compacts=True)
            return Sent(spliced.data, spliced.replaced) if spliced else None

        return rewrite

    def _recorded(self, book: Book, attempt: int) -> Context:
        folder = book.path / SOURCE
        after = msgspec.json.decode((folder / AFTER).read_bytes())
        body = recorded((folder / REQUEST).read_bytes())
        return Context(body, _sentinel(book, attempt), self._branch.prompt, after)

    def left(self, stage: Stage) -> None:
        """Leave nothing in a store that is the person's own."""
        for tries in stage.book.state.attempts.values():
            for attempt in tries:
                names = {attempt.session_id, _placed_id(stage.book, attempt.number)}
                for name in names if attempt.ended is not None else ():
                    remove_stale(transcript_file(project(stage), name))
                    throw_away(project(stage) / name)


class _Rewriting:
    """The recorded context in every request of the branch; the first one is judged before it is sent."""

    def __init__(self, judge: "_Judge", context: Context) -> None:
        self._judge = judge
        self._context = context

    def rewrite(self, said: Said, arrived: Arrived) -> Sent | None:
        if said.context is Lane.SIDE:
            return None
        spliced = self._context.splice(msgspec.json.decode(arrived.body), compacts=said.is_compaction)
        if said.context is Lane.MAIN or self._judge.has_judged:
            self._judge.once(spliced, arrived)
        return Sent(spliced.data, spliced.replaced) if spliced else None


class _Judge:
    """Certifies the first request of the main thread, and refuses what is not to go on."""

    def __init__(self, stage: Stage, attempt: int, branch: Branched, context: Context) -> None:
        self._stage = stage
        self._attempt = attempt
        self._branch = branch
        self._context = context
        self._certificate: certificates.Certificate | None = None

    @property
    def has_judged(self) -> bool:
        return self._certificate is not None

    def once(self, spliced: Spliced | None, arrived: Arrived) -> None:
        """Judge the first request; keep out that and all others where it differs and may not."""
        self._certificate = self._certificate or self._judged(spliced, arrived)
        if self._certificate.verdict == DIFFERS and not self._branch.allow_drift:
            _refused(self._certificate.first_difference)

    def _judged(self, spliced: Spliced | None, arrived: Arrived) -> certificates.Certificate:
        facts = Facts(
            betas=arrived.headers.get("anthropic-beta", ""),
            recorded_betas=self._branch.betas,
            tools=self._offered(),
            scrubbed=("a credential",) if self._branch.scrubbed else (),
            rebuilt=self._branch.rebuilt,
        )
        method = certificates.FRESH if self._branch.fresh else certificates.SPLICED
        method = certificates.CURSOR if self._branch.cursor else method
        method += certificates.REBUILT if self._branch.rebuilt else ""
        found = certify(self._context, spliced, facts, method)
        _noted(self._stage, self._attempt, found, refused=found.verdict == DIFFERS and not self._branch.allow_drift)
        return found

    def _offered(self) -> frozenset[str]:
        """The tools the client says it has, in the first thing it says."""
        says = self._stage.book.config.engine == "claude_code"
        until = time.monotonic() + (_INIT_S if says else 0.0)
        while time.monotonic() < until:
            for record in self._stage.records("session_01"):
                if record.get("subtype") == "init" and isinstance(record.get("tools"), list):
                    return frozenset(map(str, record["tools"]))
            time.sleep(0.02)
        return frozenset()


class _Uncompared:
    """A branch of a session whose requests were not recorded: there is nothing it could be exact to."""

    def __init__(self, stage: Stage, attempt: int, branch: Branched) -> None:
        why = "no request was recorded that it could be compared with"
        found = certificates.Certificate(DIFFERS, certificates.RESUMED, why)
        _noted(stage, attempt, found, refused=not branch.allow_drift)
        if not branch.allow_drift:
            _refused(why)

    def rewrite(self, said: Said, arrived: Arrived) -> Sent | None:
        """Leave the request alone."""
        del said, arrived
        return None


def _noted(stage: Stage, attempt: int, found: certificates.Certificate, *, refused: bool) -> None:
    facts = (found.verdict, found.method, found.first_difference, found.replaced, refused)
    stage.book.note(Certified("session_01", attempt, *facts), durable=True)


def _refused(why: str) -> None:
    raise Conflict(
        f"the branch is not where the recording was: {why}", hint="go on all the same, labelled so, with --allow-drift"
    )


def _config(config: RunConfig, point: Point, asked: Asked, name: str) -> RunConfig:
    """The source's settings, for the sessions a replay has; what ran around its sessions is not run again."""
    first = replace(config.sessions[point.session.index - 1], session_index=1, count=1, fork_from=None)
    sessions = [first]
    if asked.continue_sessions:
        later = config.sessions[point.session.index :]
        sessions += [_later(each, point.session.index - 1) for each in later]
    return replace(
        config,
        run_name=name,
        capture_api_requests=config.capture_api_requests or bool(point.rebuilt),
        sessions=tuple(sessions),
        tags=tuple(dict.fromkeys((*config.tags, "replay"))),
        memory_file=None,
        pre_run_commands=(),
        post_run_commands=(),
        verifiers=(*config.verifiers, *(VerifierConfig(command, name=command) for command in asked.verify)),
    )


def _later(session: SessionConfig, gone: int) -> SessionConfig:
    """A session after the one that is replayed; one that forked from before it forks from the branch."""
    forked = max(session.fork_from - gone, 1) if session.fork_from else None
    return replace(session, session_index=session.session_index - gone, fork_from=forked)


def _sentinel(book: Book, attempt: int) -> str:
    """What marks the branch point in the client's requests; later sessions know it by the same words."""
    return f"[flightlog branch point {uuid.uuid5(_NAMES, f'mark/{book.name}/{attempt}')}]"


def _placed_id(book: Book, attempt: int) -> str:
    """The id under which the words until the cut are put into the client's store: the same for one attempt always."""
    return str(uuid.uuid5(_NAMES, f"{book.name}/{attempt}"))
