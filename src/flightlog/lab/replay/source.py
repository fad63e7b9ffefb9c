"""Read the turn of a session that a replay goes back to: its request, transcript and files.

Reads the source run and writes nothing there. A turn is the N-th model response of the main thread
that is the session's own.
"""

import functools
import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.claude_code.rebuild import RebuildFidelity, RebuiltRequest
from flightlog.agents.claude_code.resume import TranscriptCut, cut_transcript_before
from flightlog.lab.events import SideEffect
from flightlog.lab.replay.branch_check import (
    RecordedAnswer,
    RequestDigest,
    digest_request,
    request_digest,
)
from flightlog.lab.replay.branch_points import (
    BranchSuggestion,
    Written,
    branch_points,
    iter_side_effects,
)
from flightlog.lab.replay.recorded_context import canonical_value
from flightlog.lab.run_reader import RunSession, read_work_tree_state, trees_of
from flightlog.lab.run_session import ApiCall, rebuilt_of
from flightlog.lab.store import PlannedSession, RunStore, find_planned_session
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Step
from flightlog.model.text import one_line
from flightlog.store.recordings.adoption import TRANSCRIPT

_TEXT_CHARS_MAX = 100
# The client makes these of its version and options; what a model does may depend on them.
SENT_AS_RECORDED = ("anthropic-beta", "anthropic-version")
_HEADERS = ("content-type", "request-id", "retry-after", "x-should-retry")


class ReplayTurn(Struct, frozen=True):
    """One turn in a list; `blocked_reason` says why a replay of it cannot be exact."""

    turn: int
    at_ms: int | None
    tools: tuple[str, ...]
    text: str
    tree: str
    request_index: int
    has_failed_call: bool = False
    blocked_reason: str = ""


class BranchPoint(Struct, frozen=True):
    """Everything a branch takes from its source."""

    session: PlannedSession
    session_id: str
    turn: int
    tree: str
    cut: TranscriptCut
    transcript: tuple[bytes, ...]
    request_index: int = 0
    body: bytes = b""
    headers: dict[str, str] = {}
    client: str = ""
    state: bytes = b""
    later: bytes = b"[]"
    is_scrubbed: bool = False
    effects: tuple[SideEffect, ...] = ()
    following: bytes = b"[]"
    rebuilt_fidelity: str = ""
    served_responses: bytes = b""


class ReplaySource:
    """One session of a run, to be replayed."""

    def __init__(self, run: RunStore, session: int, replicate: int, programs: str) -> None:
        """Find the session; replicate 0 means the first one."""
        self.run = run
        self.planned = find_planned_session(run, session, replicate)
        self._trees = trees_of(run, programs)
        self.read = RunSession(run, self.planned, self._trees)

    def list_turns(self) -> list[ReplayTurn]:
        return [
            self._build_turn(number, step) for number, step in enumerate(self.read.own_steps(), 1)
        ]

    def build_branch_point(self, turn: int) -> BranchPoint:
        """Return what a branch before `turn` needs; raise if the turn or its files are missing."""
        self.read.check_transcript()
        steps = self.read.own_steps()
        if not 1 <= turn <= len(steps):
            hint = f"it has turns 1 to {len(steps)}" if steps else "it has none"
            raise NotFound(
                f"{self.planned.session_dir} of {self.run.name} has no turn {turn}", hint=hint
            )
        step = steps[turn - 1]
        tree = self._tree_before(turn, step)
        if not tree or self._trees is None:
            raise Invalid(
                f"no files were saved before turn {turn} of {self.planned.session_dir}",
                hint="run it again with track_changes: only such a run can be replayed",
            )
        lines = (self.read.folder / TRANSCRIPT).read_bytes().splitlines(keepends=True)
        cut = cut_transcript_before(lines, step.record_uuids)
        if self.run.config.engine != "claude_code":
            # An agent that cannot resume gets its whole history from the proxy.
            cut = TranscriptCut(cut.lines, is_fresh=True)
        base = BranchPoint(
            session=self.planned,
            session_id=self.read.attempt.session_id,
            turn=turn,
            tree=tree,
            cut=cut,
            transcript=tuple(lines[: cut.lines]),
            effects=self._side_effects(turn, tree),
            client=self.run.state.start.agent_version if self.run.state.start else "",
            # File names that are not UTF-8 need this encoder.
            state=json.dumps(msgspec.to_builtins(read_work_tree_state(self._trees, tree))).encode(),
        )
        call = self._find_request(step)
        if call:
            return self._add_captured_request(base, call)
        return self._add_rebuilt_request(base, step)

    def build_cursor_point(self, turn: int) -> BranchPoint:
        """Return what a branch needs that reaches `turn` through recorded answers."""
        point = self.build_branch_point(turn)
        call = self._find_request(self.read.own_steps()[turn - 1])
        if call is None:
            raise Invalid(
                f"the answers before turn {turn} were not captured", hint="leave --cursor out"
            )
        served = msgspec.json.encode(self._answers_before(call.index))
        cut = TranscriptCut(point.cut.lines, is_fresh=True)
        return replace(point, tree=self.read.attempt.tree, cut=cut, served_responses=served)

    def _answers_before(self, index: int) -> list[RecordedAnswer]:
        """Return the recorded answers to the requests before request `index`, in order."""
        answers = []
        for exchange in (call.exchange for call in self.read.calls if call.index < index):
            response, origin = exchange.response, exchange.request.agent_context
            if response is None:
                continue
            headers = {
                name: response.headers[name] for name in _HEADERS if name in response.headers
            }
            headers["request-id"] = response.request_id
            sent = msgspec.json.decode(self.read.exchanges.sent_body(exchange))
            body = self.read.exchanges.response_body(exchange)
            digest = request_digest(origin, sent)
            answers.append(RecordedAnswer(origin.value, digest, response.status, headers, body))
        return answers

    def _add_captured_request(self, point: BranchPoint, call: ApiCall) -> BranchPoint:
        request = call.exchange.request
        return replace(
            point,
            request_index=call.index,
            body=self.read.exchanges.sent_body(call.exchange),
            headers={
                name: value for name, value in request.headers.items() if name in SENT_AS_RECORDED
            },
            is_scrubbed="a credential" in request.scrubbed_fields,
            following=self._messages_after(call),
            later=msgspec.json.encode(self._later_digests(call)),
        )

    def _add_rebuilt_request(self, point: BranchPoint, step: Step) -> BranchPoint:
        """Add the request rebuilt from the transcript, if its hashes confirm it."""
        every = self._rebuilt_requests
        rebuilt = [request for request in every if request.fidelity is not RebuildFidelity.PARTIAL]
        match = next(
            (item for item in rebuilt if step.request_id and step.request_id in item.request_ids),
            None,
        )
        if match is None:
            return point
        later = rebuilt[rebuilt.index(match) + 1 :]
        after = _messages_following(
            match.body, [item.body for item in reversed(later) if item.agent_id == match.agent_id]
        )
        return replace(
            point,
            body=json.dumps(match.body).encode(),
            headers={"anthropic-beta": ",".join(match.betas)} if match.betas else {},
            later=msgspec.json.encode(
                [digest_request(item.body) for item in later if item.agent_id == match.agent_id]
            ),
            rebuilt_fidelity=match.fidelity.value,
            following=after,
        )

    def suggest_branches(self) -> list[BranchSuggestion]:
        return branch_points(self.read.own_steps(), self._path_versions())

    def _path_versions(self) -> Iterator[Written]:
        """Yield the object id at each changed path, at the start and after each turn."""
        if self._trees is None:
            return
        steps = self.read.own_steps()
        trees = [self._tree_before(turn, step) for turn, step in enumerate(steps, 1)]
        ended = self.read.attempt.end
        trees.append(ended.tree if ended else "")
        seen: set[str] = set()
        for turn, (before, after) in enumerate(pairwise(trees), 1):
            for change in self._trees.diff_snapshots(before, after) if before and after else ():
                if change.path not in seen:
                    seen.add(change.path)
                    yield 0, change.path, "" if change.kind == "renamed" else change.old_id
                yield turn, change.path, change.id

    def _build_turn(self, number: int, step: Step) -> ReplayTurn:
        call = self._find_request(step)
        tree = self._tree_before(number, step)
        why_not = "" if tree else "no files were saved"
        why_not = why_not or (
            ""
            if call or step.request_id in self._rebuildable_ids
            else "its request was not captured"
        )
        text = " ".join(block.text for block in step.content if hasattr(block, "text"))
        return ReplayTurn(
            number,
            step.at_ms,
            tuple(tool_call.name for tool_call in step.tool_calls),
            one_line(text, _TEXT_CHARS_MAX),
            tree,
            call.index if call else 0,
            any(tool_call.is_error for tool_call in step.tool_calls),
            why_not,
        )

    @functools.cached_property
    def _rebuilt_requests(self) -> list[RebuiltRequest]:
        return rebuilt_of(self.read.folder, self.read.attempt.session_id)

    @functools.cached_property
    def _rebuildable_ids(self) -> frozenset[str]:
        every = self._rebuilt_requests
        exact = [request for request in every if request.fidelity is RebuildFidelity.EXACT]
        return frozenset(request_id for request in exact for request_id in request.request_ids)

    def _find_request(self, step: Step) -> ApiCall | None:
        return self.read.lineage.find_request(step) if self.read.lineage else None

    def _tree_before(self, turn: int, step: Step) -> str:
        """Return the snapshot at the request of a turn, or after the tools before it."""
        attempt, call = self.read.attempt, self._find_request(step)
        if call is not None:
            own = (saved for saved in attempt.snapshots if saved.request_index == call.index)
            return next((saved.tree for saved in own if not saved.tool_call_id), "")
        earlier = self.read.own_steps()[: turn - 1]
        before = {tool_call.id for step in earlier for tool_call in step.tool_calls}
        saved = [
            snapshot.tree
            for snapshot in attempt.snapshots
            # Without a call it was saved at a prompt: a person may have changed files.
            if snapshot.tool_call_id in before
            or (not snapshot.tool_call_id and _is_before(snapshot.at_ms, step.at_ms))
        ]
        return saved[-1] if saved else attempt.tree

    def _messages_after(self, call: ApiCall) -> bytes:
        """Return the messages recorded after a request, from the last request that continues it."""
        own = [other for other in self.read.calls if other.subagent == call.subagent]
        later = [other for other in own if other.index > call.index]
        asked = [other.exchange for other in later if not other.exchange.request.is_compaction]
        bodies = [self.read.exchanges.sent_body(exchange) for exchange in asked]
        body = decode_request(self.read.exchanges.sent_body(call.exchange))
        return _messages_following(body, map(decode_request, reversed(bodies)))

    def _later_digests(self, call: ApiCall) -> list[RequestDigest]:
        """Return the digests of the answered requests of a thread after `call`."""
        own = (other for other in self.read.calls if other.subagent == call.subagent)
        later = (other.exchange for other in own if other.index > call.index)
        return [
            digest_request(decode_request(self.read.exchanges.sent_body(exchange)))
            for exchange in later
            if exchange.response is not None and exchange.response.status == 200
        ]

    def _side_effects(self, turn: int, tree: str) -> tuple[SideEffect, ...]:
        steps = self.read.own_steps()
        until = steps[turn - 1].at_ms
        steps_before: list[tuple[int, Step]] = list(enumerate(steps[: turn - 1], 1))
        for subagent in self.read.list_threads():
            if subagent:
                own = self.read.own_steps(subagent)
                steps_before += [(0, step) for step in own if _is_before(step.at_ms, until)]
        left_out = self._trees.find_snapshot(tree).omitted_files if self._trees else ()
        omitted = [
            SideEffect(0, "left out of snapshots", f"{file.path}: {file.reason}")
            for file in left_out
        ]
        return (*iter_side_effects(steps_before, self.run.config.work_dir), *omitted)


def _messages_following(body: dict[str, Any], later: Iterable[dict[str, Any]]) -> bytes:
    """Return what the first continuation of `body` in `later` (newest first) adds, as JSON."""
    messages = canonical_value(body.get("messages"))
    for candidate in later:
        following = candidate.get("messages") or []
        if canonical_value(following[: len(messages)]) == messages:
            return json.dumps(following[len(messages) :]).encode()
    return b"[]"


def decode_request(body: bytes) -> dict[str, Any]:
    request = json.loads(body)
    assert isinstance(request, dict), "a request to a model is an object"
    return request


def _is_before(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other
