"""Make a branch of a recorded session and start its agent at the branch point.

    source run (read only) -> .source/ (request, transcript up to the turn) + snapshot -> work tree
    client (marker as its prompt) -> proxy: recorded context, certificate -> model

Everything a branch needs is in its own directory before its agent starts, so a branch whose process
died is continued like any run. The source run, its work directory and the agent's own store stay
unchanged.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flightlog.agents.capture.proxy import Rewrite
from flightlog.agents.capture.recorder import IncomingRequest, RewrittenRequest
from flightlog.agents.claude_code.resume import (
    rename_session,
    resume_arguments,
    transcript_file,
    write_edits_whole,
)
from flightlog.agents.dialects.anthropic_messages import RequestInfo
from flightlog.agents.sandbox import IsolationMode
from flightlog.lab.config import RunConfig, SessionConfig, VerifierConfig
from flightlog.lab.events import BranchCreated
from flightlog.lab.replay.branch_check import (
    LATER,
    STATE,
    BranchCheck,
    RecordedAnswer,
    RecordedAnswers,
    RecordedAnswerServer,
)
from flightlog.lab.replay.recorded_context import RecordedContext
from flightlog.lab.replay.restore import SOURCE_GIT, TREE, placed_outputs, private_work_tree
from flightlog.lab.replay.source import BranchPoint, decode_request
from flightlog.lab.runner.agent_setup import is_captured
from flightlog.lab.runner.context import RunContext, RunEnvironment
from flightlog.lab.runner.session import SessionStart, transcript_dir
from flightlog.lab.store import SHADOW, SOURCE, RunStore
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.exchange import RequestOrigin
from flightlog.store.directories import copy_tree, remove_tree
from flightlog.store.exchanges import exchanges_of
from flightlog.store.files import ensure_dir, replace_file, resolve_inside
from flightlog.store.git.repository import remove_stale
from flightlog.store.recordings.adoption import TRANSCRIPT

REQUEST = "request.json"
AFTER = "after.json"
SERVED = "served.json"
FOLLOWERS = "followers.json"
TRUNCATED = "source_transcript_truncated.jsonl"
# Namespace of the ids below: the same attempt gets the same ids in every process.
_NAMESPACE = uuid.UUID("6f2b0f0e-58c4-4b5c-9a53-0d3f7a1f6c10")


class ReplayOptions(msgspec.Struct, frozen=True):
    """Options of a replay, as a person gives them."""

    prompt: str = ""
    count: int = 1
    allow_drift: bool = False
    continue_sessions: bool = False
    verify_commands: tuple[str, ...] = ()
    uses_cursor: bool = False
    arm: str = ""
    arm_config: RunConfig | None = None


def prepare_branch(
    source: RunStore,
    point: BranchPoint,
    options: ReplayOptions,
    where: tuple[Path, int],
    environment: RunEnvironment,
) -> RunStore:
    """Create the directory of a branch with everything it takes from its source.

    `where` is the branch's path and its number.
    """
    path, number = where
    # The branch copies the source's configuration and counts as the person's own from then on.
    environment.permit(source.config, source.path, source.config_digest)
    _check_can_branch(source, options, environment)
    run = environment.create_run(path, _branch_config(source.config, point, options, path.name))
    contents = {TRANSCRIPT: b"".join(point.transcript)}
    contents |= {REQUEST: point.body, AFTER: point.following} if point.body else {}
    contents |= {SERVED: point.served_responses} if options.uses_cursor else {}
    contents |= {STATE: point.state, LATER: point.later}
    contents |= {FOLLOWERS: msgspec.json.encode(_read_followers(source, point))}
    for name, data in contents.items():
        replace_file(resolve_inside(path, f"{SOURCE}/{name}"), data)
    created = BranchCreated(
        source_run=source.name,
        source_session=point.session.session_index,
        source_session_dir=point.session.session_dir,
        source_session_id=point.session_id,
        turn=point.turn,
        number=number,
        count=options.count,
        tree=point.tree,
        replicate=point.session.replicate,
        prompt=options.prompt,
        resume_at=point.cut.resume_at,
        is_fresh=point.cut.is_fresh,
        allow_drift=options.allow_drift,
        request_index=point.request_index,
        headers=point.headers,
        client=point.client,
        effects=point.effects,
        is_scrubbed=point.is_scrubbed,
        rebuilt_fidelity=point.rebuilt_fidelity,
        uses_cursor=options.uses_cursor,
        arm=options.arm,
    )
    run.append(created, durable=True)
    return run


def _read_followers(source: RunStore, point: BranchPoint) -> dict[int, list[Any]]:
    """Return the messages with which each later session began, by its number in the branch."""
    followers = {}
    offset = point.session.session_index - 1
    for planned in source.planned_sessions():
        if planned.session_index > offset + 1 and planned.parent_session and planned.replicate < 2:
            exchanges = exchanges_of(source.path / planned.session_dir)
            for exchange in exchanges.read_exchanges():
                if exchange.request.agent_context is RequestOrigin.MAIN:
                    body = decode_request(exchanges.sent_body(exchange))
                    followers[planned.session_index - offset] = body.get("messages") or []
                    break
    return followers


def _check_can_branch(
    source: RunStore, options: ReplayOptions, environment: RunEnvironment
) -> None:
    if environment.isolation_mode is IsolationMode.NONE and options.count > 1:
        hint = "replay one at a time"
        raise Invalid("several branches need mount namespaces, which are not available", hint=hint)
    if not Path(source.config.work_dir).is_dir():
        hint = "create it, empty, at that path"
        raise NotFound(f"the work directory does not exist: {source.config.work_dir}", hint=hint)


@contextmanager
def restored_work_tree(run: RunStore, environment: RunEnvironment) -> Iterator[Path]:
    """Yield the work directory of a branch, restored to its state before the turn.

    Files that snapshots leave out keep their present content.
    """
    remove_tree(run.scratch_dir / TREE)
    with private_work_tree(run, environment) as tree, placed_outputs(run, environment):
        _restore_branch_tree(run, environment, tree)
        yield tree


def _restore_branch_tree(run: RunStore, environment: RunEnvironment, tree: Path) -> None:
    copy = run.scratch_dir / SOURCE_GIT
    if run.state.baseline is not None:
        shadow, name = run.shadow_dir, run.state.baseline.tree
    else:
        # Restoring writes an index, and the source's own repository must stay unchanged.
        branch = _branch_of(run)
        shadow, name = copy, branch.tree
        source = run.path.with_name(branch.source_run) / SHADOW
        if not source.is_dir():
            hint = "put it beside the replay again"
            raise NotFound(f"the source run does not exist: {source.parent}", hint=hint)
        remove_tree(copy)
        copy_tree(source, copy)
    work_dir = Path(run.config.work_dir).resolve()
    environment.open_snapshots(shadow, tree, work_dir, line="laid").restore_snapshot(name)
    remove_tree(copy)


def remove_placed_transcripts(context: RunContext) -> None:
    """Delete transcripts of ended attempts from the agent's store, which may be the person's."""
    folder = transcript_dir(context)
    for attempts in context.run.state.attempts.values():
        for attempt in attempts:
            names = {attempt.session_id, _transcript_id(context.run, attempt.number)}
            for name in names if attempt.end is not None else ():
                remove_stale(transcript_file(folder, name))
                remove_tree(folder / name)


class Branch:
    """Turns the start of a session into that of a replayed session."""

    def __init__(self, run: RunStore) -> None:
        self._branch = _branch_of(run)
        self._recorded: RecordedContext | None = None  # also for the sessions that follow

    def session_start(self, context: RunContext, start: SessionStart) -> SessionStart:
        """Return where a session of the branch starts.

        The first session starts at the branch point; sessions that continue its conversation get
        the recorded context in their requests. Places files for the agent.
        """
        if start.planned.session_index == 1:
            if self._branch.uses_cursor:
                return self._cursor_start(context, start)
            return self._resumed_start(context, start)
        if start.parent is None:
            return start
        return replace(start, rewrite=self._follower_rewriter(context, start.planned.session_index))

    def _cursor_start(self, context: RunContext, start: SessionStart) -> SessionStart:
        run, branch = context.run, self._branch
        self._write_source_transcript(run)
        recorded = RecordedContext(
            decode_request((run.path / SOURCE / REQUEST).read_bytes()), "", branch.prompt
        )
        answers = msgspec.json.decode(
            (run.path / SOURCE / SERVED).read_bytes(), type=list[RecordedAnswer]
        )
        check = BranchCheck(context, start, branch, recorded)
        server = RecordedAnswerServer(
            RecordedAnswers(answers), recorded, check.check_first, allow_drift=branch.allow_drift
        )
        return replace(start, prompt=run.config.sessions[0].prompt, rewrite=server.rewrite_request)

    def _resumed_start(self, context: RunContext, start: SessionStart) -> SessionStart:
        run, branch = context.run, self._branch
        transcript = self._write_source_transcript(run)
        if not branch.is_fresh:
            session_id, folder = _transcript_id(run, start.attempt), transcript_dir(context)
            lines = write_edits_whole(transcript.splitlines(keepends=True))
            renamed = rename_session(lines, branch.source_session_id, session_id)
            ensure_dir(folder)
            replace_file(transcript_file(folder, session_id), renamed, durable=False)
            start = replace(start, resume=session_id, arguments=resume_arguments(branch.resume_at))
        if not (run.path / SOURCE / REQUEST).exists() or not is_captured(run.config):
            check = BranchCheck(context, start, branch, RecordedContext({}, ""))
            prompt = branch.prompt or "Continue."
            return replace(start, prompt=prompt, certify=check.certify_without_request)
        self._recorded = self._load_recorded(run, start.attempt)
        check = BranchCheck(context, start, branch, self._recorded)
        marker = _branch_point_marker(run, start.attempt)
        prompt = f"{marker}\n{branch.prompt}" if branch.prompt else marker
        return replace(start, prompt=prompt, rewrite=_context_rewriter(check, self._recorded))

    def _write_source_transcript(self, run: RunStore) -> bytes:
        transcript = (run.path / SOURCE / TRANSCRIPT).read_bytes()
        replace_file(resolve_inside(run.path / "session_01", TRUNCATED), transcript)
        return transcript

    def _follower_rewriter(self, context: RunContext, session: int) -> Rewrite:
        first = context.run.state.last_attempt("session_01")
        is_captured_source = (context.run.path / SOURCE / REQUEST).exists()
        if self._recorded is None and is_captured_source and first is not None:
            self._recorded = self._load_recorded(context.run, first.number)
        if self._recorded is not None:
            followers = msgspec.json.decode(
                (context.run.path / SOURCE / FOLLOWERS).read_bytes(), type=dict[int, list[Any]]
            )
            self._recorded.mark_resumed(followers.get(session, []))
        recorded = self._recorded

        def rewrite(request: RequestInfo, incoming: IncomingRequest) -> RewrittenRequest | None:
            if recorded is None or request.agent_context is RequestOrigin.SIDE:
                return None
            spliced = recorded.splice_context(msgspec.json.decode(incoming.body), compacts=True)
            return RewrittenRequest(spliced.data, spliced.replacements) if spliced else None

        return rewrite

    def _load_recorded(self, run: RunStore, attempt: int) -> RecordedContext:
        after = msgspec.json.decode((run.path / SOURCE / AFTER).read_bytes())
        body = decode_request((run.path / SOURCE / REQUEST).read_bytes())
        marker, branch = _branch_point_marker(run, attempt), self._branch
        own = bool(branch.arm)
        return RecordedContext(body, marker, branch.prompt, after, has_own_settings=own)


def _context_rewriter(check: "BranchCheck", recorded: RecordedContext) -> Rewrite:
    """Put the recorded context into every request; certify the first one before it is sent."""

    def rewrite(request: RequestInfo, incoming: IncomingRequest) -> RewrittenRequest | None:
        if request.agent_context is RequestOrigin.SIDE:
            check.admit_other()
            return None
        body = msgspec.json.decode(incoming.body)
        spliced = recorded.splice_context(body, compacts=request.is_compaction)
        is_main = request.agent_context is RequestOrigin.MAIN
        if is_main:
            check.check_first(spliced, incoming)
            check.compare_later(spliced.body if spliced else body)
        else:
            check.admit_other()
        headers = check.recorded_headers(incoming, is_main=is_main)
        if spliced is None and not is_main:
            spliced = recorded.insert_git_status(body)
        if spliced is None:
            return RewrittenRequest(incoming.body, ("headers",), headers) if headers else None
        return RewrittenRequest(spliced.data, spliced.replacements, headers)

    return rewrite


def _branch_config(
    config: RunConfig, point: BranchPoint, options: ReplayOptions, name: str
) -> RunConfig:
    """Return the settings of the source or the arm, without the commands around its sessions."""
    config = options.arm_config or config
    first = replace(
        config.sessions[point.session.session_index - 1], session_index=1, count=1, fork_from=None
    )
    sessions = [first]
    if options.continue_sessions:
        later = config.sessions[point.session.session_index :]
        sessions += [_shift_session(session, point.session.session_index - 1) for session in later]
    return replace(
        config,
        run_name=name,
        in_place=False,
        capture_api_requests=config.capture_api_requests or bool(point.rebuilt_fidelity),
        sessions=tuple(sessions),
        tags=tuple(dict.fromkeys((*config.tags, "replay"))),
        memory_file=None,
        pre_run_commands=config.pre_run_commands if options.arm_config else (),
        post_run_commands=(),
        verifiers=(
            *config.verifiers,
            *(VerifierConfig(command, name=command) for command in options.verify_commands),
        ),
    )


def _shift_session(session: SessionConfig, offset: int) -> SessionConfig:
    """Renumber a later session; one that forked from before the branch forks from the branch."""
    fork_from = max(session.fork_from - offset, 1) if session.fork_from else None
    return replace(session, session_index=session.session_index - offset, fork_from=fork_from)


def _branch_of(run: RunStore) -> BranchCreated:
    assert run.state.branch is not None, "only for a run that is a replay"
    return run.state.branch


def _branch_point_marker(run: RunStore, attempt: int) -> str:
    """Return the text that marks the branch point in requests, also in those of later sessions."""
    return f"[flightlog branch point {uuid.uuid5(_NAMESPACE, f'mark/{run.name}/{attempt}')}]"


def _transcript_id(run: RunStore, attempt: int) -> str:
    """Return the id of the truncated transcript in the client's store, fixed for an attempt."""
    return str(uuid.uuid5(_NAMESPACE, f"{run.name}/{attempt}"))
