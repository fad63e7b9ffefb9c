"""`uuid_map.json`: which record, step, request, snapshot and tool call belong to one model response.

Joined by what is said, never by counting: the response's message id, the request id, the tool call
ids. Every response has a line, those of text alone and of subagents too; a request that answers
none (a retry, a title, a compaction) is listed beside them. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flightlog.lab.events import SnapshotSaved
from flightlog.lab.told import SIDE, ApiCall, steps_by_thread
from flightlog.model.session import Session, Step
from flightlog.views.atif.document import Trajectory
from flightlog.views.atif.emit import MAIN, step_ids, subagent_file
from flightlog.views.atif.steps import format_timestamp


class StepJoin:
    """What is known of one session, ready to be joined."""

    def __init__(
        self,
        session: Session,
        documents: Mapping[str, Trajectory],
        calls: Sequence[ApiCall],
        saved: Sequence[SnapshotSaved],
    ) -> None:
        """Take the session, its trajectories, its requests and the trees saved along it."""
        self._session = session
        self._files = {"": MAIN} | {lane.id: subagent_file(lane) for lane in session.lanes}
        self._ids = {name: step_ids(documents[name]) for name in documents}
        self._calls = {call.message_id: call for call in calls if call.message_id}
        self._by_request = {_request_id(call): call for call in calls if _request_id(call)}
        self._every = list(calls)
        self._after = _trees_after_requests(calls, saved)
        self._after_call = {each.call_id: each.tree for each in saved if each.call_id}

    def step_id(self, lane: str, step: Step) -> int | None:
        """The step's number in its trajectory."""
        return self._ids.get(self._files.get(lane, ""), {}).get(step.message_id)

    def find_request(self, step: Step) -> ApiCall | None:
        """The request a step answers."""
        return self._calls.get(step.message_id) or self._by_request.get(step.request_id)

    def build_uuid_map(self, copied: frozenset[str]) -> dict[str, Any]:
        """The whole map; responses that were only copied from a parent are left out and counted."""
        lanes = steps_by_thread(self._session)
        own = {lane: [step for step in steps if step.message_id not in copied] for lane, steps in lanes.items()}
        joined = {call.index for steps in own.values() for step in steps if (call := self.find_request(step))}
        return {
            "session_id": self._session.id,
            "turns": [self._build_turn(number, "", step) for number, step in enumerate(own[""], 1)],
            "subagents": {
                lane: [self._build_turn(number, lane, step) for number, step in enumerate(steps, 1)]
                for lane, steps in own.items()
                if lane
            },
            "other_requests": [_unjoined_request(call) for call in self._every if call.index not in joined],
            "copied_turns": len(lanes[""]) - len(own[""]),
        }

    def _last_tree_of_step(self, step: Step) -> str | None:
        """Without requests: the tree saved after the last of a step's calls."""
        trees = [self._after_call[each.id] for each in step.calls if each.id in self._after_call]
        return max(trees, default=None)

    def _build_turn(self, number: int, lane: str, step: Step) -> dict[str, Any]:
        call = self.find_request(step)
        found = self.step_id(lane, step)
        return {
            "turn_index": number,
            "message_id": step.message_id,
            "request_id": step.request_id or None,
            "request_file": f"request_{call.index:03d}.json" if call else None,
            "request_index": call.index if call else None,
            "atif_step_ids": [found] if found is not None else [],
            "trajectory": self._files.get(lane),
            "transcript_assistant_uuids": list(step.uuids),
            "transcript_tool_result_uuids": [each.result_uuid for each in step.calls if each.result_uuid],
            "tool_call_ids": [each.id for each in step.calls],
            "shadow_git_tag": self._after.get(call.index) if call else self._last_tree_of_step(step),
            "timestamp": format_timestamp(step.at_ms) if step.at_ms is not None else None,
        }


def _trees_after_requests(calls: Sequence[ApiCall], saved: Sequence[SnapshotSaved]) -> dict[int, str]:
    """For each request, the tree after the tools of its answer ran: saved when its thread asked next, or at the end."""
    trees = {each.request: each.tree for each in saved}
    end = trees.get(0)
    after: dict[int, str] = {}
    following: dict[str, int] = {}
    for call in sorted(calls, key=lambda one: -one.index):
        tree = trees.get(following.get(call.lane, 0)) or end
        if tree and call.lane != SIDE:
            after[call.index] = tree
        following[call.lane] = call.index
    return after


def _request_id(call: ApiCall) -> str:
    return call.exchange.response.request_id if call.exchange.response else ""


def _unjoined_request(call: ApiCall) -> dict[str, Any]:
    response = call.exchange.response
    return {
        "request_index": call.index,
        "request_file": f"request_{call.index:03d}.json",
        "agent_context": call.exchange.request.context.value,
        "is_compaction": call.exchange.request.is_compaction,
        "status": response.status if response else None,
        "message_id": call.message_id or None,
    }
