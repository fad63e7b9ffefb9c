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

from flightlog.agents.capture.proxy import Rewrite
from flightlog.agents.capture.recorder import IncomingRequest, RewrittenRequest
from flightlog.agents.claude_code.resume import rename_session, resume_arguments, transcript_file
from flightlog.agents.dialects.anthropic_messages import RequestInfo
from flightlog.agents.sandbox import IsolationMode
from flightlog.lab.config import RunConfig, SessionConfig, VerifierConfig
from flightlog.lab.events import BranchCertified, BranchCreated
from flightlog.lab.replay import certificate
from flightlog.lab.replay.certificate import DIFFERS, RequestFacts, certify_request
from flightlog.lab.replay.recorded_context import (
    RecordedAnswer,
    RecordedAnswers,
    RecordedAnswerServer,
    RecordedContext,
    RewrittenBody,
)
from flightlog.lab.replay.restore import IN_PLACE, MARK
from flightlog.lab.replay.source import BranchPoint, decode_request
from flightlog.lab.runner import run
from flightlog.lab.runner.agent_setup import is_captured
from flightlog.lab.runner.context import RunContext, RunEnvironment
from flightlog.lab.runner.session import ResumePoint, transcript_dir
from flightlog.lab.store import SOURCE, RunStore, create_run
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.exchange import RequestOrigin as Lane
from flightlog.store import files
from flightlog.store.directories import copy_tree, remove_tree
from flightlog.store.files import process_tag
from flightlog.store.git.repository import remove_stale
from flightlog.store.git.snapshots import SnapshotDirs, open_trees
from flightlog.store.locks import exclusive_lock
from flightlog.store.recordings.adoption import TRANSCRIPT

REQUEST = "request.json"
AFTER = "after.json"
SERVED = "served.json"
ORIGINAL = "_original"
TRUNCATED = "source_transcript_truncated.jsonl"
_NAMES = uuid.UUID("6f2b0f0e-58c4-4b5c-9a53-0d3f7a1f6c10")
_INIT_S = 2.0


class ReplayOptions(msgspec.Struct, frozen=True):
    """What a person asks of a replay."""

    prompt: str = ""
    count: int = 1
    allow_drift: bool = False
    continue_sessions: bool = False
    verify: tuple[str, ...] = ()
    cursor: bool = False


def prepare_branch(
    source: RunStore, point: BranchPoint, asked: ReplayOptions, where: tuple[Path, int], setting: RunEnvironment
) -> RunStore:
    """Make the directory of a branch, `where` it is and its number, with all it takes from its source."""
    path, number = where
    # The branch takes over the source's configuration and is the person's own from then on.
    setting.permit(source.config, source.path, source.config_digest)
    if setting.means is IsolationMode.NONE and asked.count > 1:
        raise Invalid(
            "several branches need mount namespaces, which are not to be had here", hint="replay one at a time"
        )
    if not Path(source.config.work_dir).is_dir():
        raise NotFound(f"the work directory is gone: {source.config.work_dir}", hint="make it, empty, at that path")
    config = _branch_config(source.config, point, asked, path.name)
    book = create_run(
        path, config, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id, remember=setting.remember
    )
    files.replace_file(files.resolve_inside(path, f"{SOURCE}/{TRANSCRIPT}"), b"".join(point.transcript))
    if point.body:
        files.replace_file(files.resolve_inside(path, f"{SOURCE}/{REQUEST}"), point.body)
        files.replace_file(files.resolve_inside(path, f"{SOURCE}/{AFTER}"), point.after)
    if asked.cursor:
        files.replace_file(files.resolve_inside(path, f"{SOURCE}/{SERVED}"), point.served)
    branched = BranchCreated(
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
    book.append(branched, durable=True)
    return book


def continue_any_run(book: RunStore, setting: RunEnvironment, *, again: bool) -> RunStore:
    """Carry out or take up any run, a replay or not."""
    return run.continue_run(book, setting, again=again, branching=Branch(book) if book.state.branch else None)


class Branch:
    """What makes a run a replay."""

    def __init__(self, book: RunStore) -> None:
        assert book.state.branch is not None, "only for a run that is a replay"
        self._branch = book.state.branch
        self._context: RecordedContext | None = None

    @contextmanager
    def restored_work_tree(self, book: RunStore, setting: RunEnvironment) -> Iterator[Path]:
        """Make a copy of the work directory what it was before the turn; what snapshots leave out is today's.

        Without a mount namespace it is the directory itself, held alone, saved first and put back in the end.
        """
        work_dir = Path(book.config.work_dir).resolve()
        if setting.means is not IsolationMode.NONE:
            tree = book.scratch_dir / "tree"
            remove_tree(tree)
            copy_tree(work_dir, tree)
            self._restore_tree(book, setting, tree)
            yield tree
            return
        with exclusive_lock(book.path.with_name(IN_PLACE), who=f"process {process_tag()}"):
            place = SnapshotDirs(book.shadow_dir, work_dir, setting.home, setting.runtime.program_path)
            own = open_trees(place, now=setting.runtime.clock.now_s, line="original")
            mark = book.path / MARK
            if not mark.exists():
                saved = own.save_snapshot(f"{ORIGINAL}_{book.state.taken}")
                files.replace_file(mark, saved.name.encode())
            try:
                self._restore_tree(book, setting, work_dir)
                yield work_dir
            finally:
                own.restore_snapshot(mark.read_text("utf-8"))
                remove_stale(mark)

    def _restore_tree(self, book: RunStore, setting: RunEnvironment, tree: Path) -> None:
        if book.state.baseline is not None:
            shadow, name = book.shadow_dir, book.state.baseline.tree
        else:
            # The source's own repository is never written to, and a restore writes an index.
            shadow, name = book.scratch_dir / "source_git", self._branch.tree
            source = book.path.with_name(self._branch.source_run) / ".shadow_git"
            if not source.is_dir():
                raise NotFound(f"the source run is gone: {source.parent}", hint="put it beside the replay again")
            remove_tree(shadow)
            copy_tree(source, shadow)
        place = SnapshotDirs(shadow, tree, setting.home, setting.runtime.program_path)
        open_trees(place, now=setting.runtime.clock.now_s, line="laid").restore_snapshot(name)
        remove_tree(book.scratch_dir / "source_git")

    def resume_point(self, stage: RunContext, attempt: int) -> ResumePoint:
        """Put the words until the cut where the client looks for them, and say how it is to begin."""
        book, branch = stage.book, self._branch
        kept = (book.path / SOURCE / TRANSCRIPT).read_bytes()
        files.replace_file(files.resolve_inside(book.path / "session_01", TRUNCATED), kept)
        if branch.cursor:
            context = RecordedContext(decode_request((book.path / SOURCE / REQUEST).read_bytes()), "", branch.prompt)
            given = msgspec.json.decode((book.path / SOURCE / SERVED).read_bytes(), type=list[RecordedAnswer])
            judge = _FirstRequestCheck(stage, attempt, branch, context)
            serving = RecordedAnswerServer(
                RecordedAnswers(given), context, judge.check_first, allow_drift=branch.allow_drift
            )
            return ResumePoint(book.config.sessions[0].prompt, "", (), serving.rewrite_request)
        sentinel = _branch_point_marker(book, attempt)
        resume = ""
        words: tuple[str, ...] = ()
        if not branch.fresh:
            resume = _transcript_id(book, attempt)
            text = rename_session(kept.splitlines(keepends=True), branch.source_session_id, resume)
            files.ensure_dir(transcript_dir(stage))
            files.replace_file(transcript_file(transcript_dir(stage), resume), text, durable=False)
            words = resume_arguments(branch.resume_at)
        prompt = f"{sentinel}\n{branch.prompt}" if branch.prompt else sentinel
        request = book.path / SOURCE / REQUEST
        if not request.exists() or not is_captured(book.config):
            return ResumePoint(
                branch.prompt or "Continue.", resume, words, _Uncompared(stage, attempt, self._branch).rewrite_request
            )
        self._context = self._recorded_context(book, attempt)
        judge = _FirstRequestCheck(stage, attempt, branch, self._context)
        return ResumePoint(prompt, resume, words, _ContextRewriter(judge, self._context).rewrite_request)

    def rewriter_for_followers(self, stage: RunContext) -> Rewrite:
        """Send the recorded context also where a later session goes on with the branch's conversation."""
        first = stage.book.state.last_attempt("session_01")
        if self._context is None and (stage.book.path / SOURCE / REQUEST).exists() and first is not None:
            self._context = self._recorded_context(stage.book, first.number)
            self._context.mark_resumed()
        context = self._context

        def rewrite(said: RequestInfo, arrived: IncomingRequest) -> RewrittenRequest | None:
            if context is None or said.context is Lane.SIDE:
                return None
            spliced = context.splice_context(msgspec.json.decode(arrived.body), compacts=True)
            return RewrittenRequest(spliced.data, spliced.replaced) if spliced else None

        return rewrite

    def _recorded_context(self, book: RunStore, attempt: int) -> RecordedContext:
        folder = book.path / SOURCE
        after = msgspec.json.decode((folder / AFTER).read_bytes())
        body = decode_request((folder / REQUEST).read_bytes())
        return RecordedContext(body, _branch_point_marker(book, attempt), self._branch.prompt, after)

    def remove_placed_transcripts(self, stage: RunContext) -> None:
        """Leave nothing in a store that is the person's own."""
        for tries in stage.book.state.attempts.values():
            for attempt in tries:
                names = {attempt.session_id, _transcript_id(stage.book, attempt.number)}
                for name in names if attempt.ended is not None else ():
                    remove_stale(transcript_file(transcript_dir(stage), name))
                    remove_tree(transcript_dir(stage) / name)


class _ContextRewriter:
    """The recorded context in every request of the branch; the first one is judged before it is sent."""

    def __init__(self, judge: "_FirstRequestCheck", context: RecordedContext) -> None:
        self._judge = judge
        self._context = context

    def rewrite_request(self, said: RequestInfo, arrived: IncomingRequest) -> RewrittenRequest | None:
        if said.context is Lane.SIDE:
            return None
        spliced = self._context.splice_context(msgspec.json.decode(arrived.body), compacts=said.is_compaction)
        if said.context is Lane.MAIN or self._judge.has_certificate:
            self._judge.check_first(spliced, arrived)
        return RewrittenRequest(spliced.data, spliced.replaced) if spliced else None


class _FirstRequestCheck:
    """Certifies the first request of the main thread, and refuses what is not to go on."""

    def __init__(self, stage: RunContext, attempt: int, branch: BranchCreated, context: RecordedContext) -> None:
        self._stage = stage
        self._attempt = attempt
        self._branch = branch
        self._context = context
        self._certificate: certificate.Certificate | None = None

    @property
    def has_certificate(self) -> bool:
        return self._certificate is not None

    def check_first(self, spliced: RewrittenBody | None, arrived: IncomingRequest) -> None:
        """Judge the first request; keep out that and all others where it differs and may not."""
        self._certificate = self._certificate or self._certify_first(spliced, arrived)
        if self._certificate.verdict == DIFFERS and not self._branch.allow_drift:
            _raise_drift(self._certificate.first_difference)

    def _certify_first(self, spliced: RewrittenBody | None, arrived: IncomingRequest) -> certificate.Certificate:
        facts = RequestFacts(
            betas=arrived.headers.get("anthropic-beta", ""),
            recorded_betas=self._branch.betas,
            tools=self._available_tools(),
            scrubbed=("a credential",) if self._branch.scrubbed else (),
            rebuilt=self._branch.rebuilt,
        )
        method = certificate.FRESH if self._branch.fresh else certificate.SPLICED
        method = certificate.CURSOR if self._branch.cursor else method
        method += certificate.REBUILT if self._branch.rebuilt else ""
        found = certify_request(self._context, spliced, facts, method)
        _record_certificate(
            self._stage, self._attempt, found, refused=found.verdict == DIFFERS and not self._branch.allow_drift
        )
        return found

    def _available_tools(self) -> frozenset[str]:
        """The tools the client says it has, in the first thing it says."""
        says = self._stage.book.config.engine == "claude_code"
        until = time.monotonic() + (_INIT_S if says else 0.0)
        while time.monotonic() < until:
            for record in self._stage.agent_records("session_01"):
                if record.get("subtype") == "init" and isinstance(record.get("tools"), list):
                    return frozenset(map(str, record["tools"]))
            time.sleep(0.02)
        return frozenset()


class _Uncompared:
    """A branch of a session whose requests were not recorded: there is nothing it could be exact to."""

    def __init__(self, stage: RunContext, attempt: int, branch: BranchCreated) -> None:
        why = "no request was recorded that it could be compared with"
        found = certificate.Certificate(DIFFERS, certificate.RESUMED, why)
        _record_certificate(stage, attempt, found, refused=not branch.allow_drift)
        if not branch.allow_drift:
            _raise_drift(why)

    def rewrite_request(self, said: RequestInfo, arrived: IncomingRequest) -> RewrittenRequest | None:
        """Leave the request alone."""
        del said, arrived
        return None


def _record_certificate(stage: RunContext, attempt: int, found: certificate.Certificate, *, refused: bool) -> None:
    facts = (found.verdict, found.method, found.first_difference, found.replaced, refused)
    stage.book.append(BranchCertified("session_01", attempt, *facts), durable=True)


def _raise_drift(why: str) -> None:
    raise Conflict(
        f"the branch is not where the recording was: {why}", hint="go on all the same, labelled so, with --allow-drift"
    )


def _branch_config(config: RunConfig, point: BranchPoint, asked: ReplayOptions, name: str) -> RunConfig:
    """The source's settings, for the sessions a replay has; what ran around its sessions is not run again."""
    first = replace(config.sessions[point.session.index - 1], session_index=1, count=1, fork_from=None)
    sessions = [first]
    if asked.continue_sessions:
        later = config.sessions[point.session.index :]
        sessions += [_shift_session(each, point.session.index - 1) for each in later]
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


def _shift_session(session: SessionConfig, gone: int) -> SessionConfig:
    """A session after the one that is replayed; one that forked from before it forks from the branch."""
    forked = max(session.fork_from - gone, 1) if session.fork_from else None
    return replace(session, session_index=session.session_index - gone, fork_from=forked)


def _branch_point_marker(book: RunStore, attempt: int) -> str:
    """What marks the branch point in the client's requests; later sessions know it by the same words."""
    return f"[flightlog branch point {uuid.uuid5(_NAMES, f'mark/{book.name}/{attempt}')}]"


def _transcript_id(book: RunStore, attempt: int) -> str:
    """The id under which the words until the cut are put into the client's store: the same for one attempt always."""
    return str(uuid.uuid5(_NAMES, f"{book.name}/{attempt}"))
