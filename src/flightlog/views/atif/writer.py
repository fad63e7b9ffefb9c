"""A session as ATIF trajectories: the main thread, one linked document per subagent, pictures as files.

The default is version 1.6 in a form that every judge of that and of later versions accepts:
subagents are sibling files, named by session id and path. Version 1.7 adds ids of documents,
the number of model calls, and data of their own on calls and results. Reads nothing, writes
nothing: `trajectory` gives values, `Bundle.files` gives what to put on disk.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from flightlog.model.addresses import Address
from flightlog.model.session import Session, Subagent, ThreadContext, Turn
from flightlog.model.session import ToolCall as Called
from flightlog.views.atif.document import (
    AtifAgent,
    AtifStep,
    Observation,
    ObservationResult,
    SubagentRef,
    Trajectory,
    encode_trajectory,
)
from flightlog.views.atif.steps import (
    AtifThread,
    ImageFiles,
    build_steps,
    format_timestamp,
    number_steps,
    sum_final_metrics,
    system_step,
)

MAIN = "trajectory.json"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class AtifOptions(Struct, frozen=True):
    """Which form of the format to write; without `pictures` they leave a mark in brackets."""

    version: Literal["1.6", "1.7"] = "1.6"
    pictures: bool = True


class TrajectoryBundle(Struct, frozen=True):
    """The documents of one session by file name, `trajectory.json` first, and the pictures they show."""

    documents: dict[str, Trajectory]
    pictures: dict[str, bytes]

    @property
    def main(self) -> Trajectory:
        """The main thread."""
        return self.documents[MAIN]

    def iter_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield every file, by its path below the directory that holds them all."""
        yield from ((path, encode_trajectory(document)) for path, document in self.documents.items())
        yield from self.pictures.items()


def build_trajectory(
    session: Session,
    profile: AtifOptions = AtifOptions(),  # noqa: B008 - frozen
    known: Mapping[str, ThreadContext] | None = None,
) -> TrajectoryBundle:
    """Return the trajectories of `session`: `trajectory.json` and `subagent_<type>_<id>.json` for each subagent.

    `known` says what the model began with, by lane, the main thread's lane being ""
    (`Archive.known` knows it of recorded sessions). Every document is valid by itself, whatever
    the session holds: one without any step says so in a single system step. A step's `extra`
    joins it to the recording: `address`, `message_id`, `request_id`, `uuids`, `result_uuids`;
    `step_ids` gives the way back.
    """
    return _TrajectoryWriter(session, profile, known or {}).build_bundle()


def step_ids(document: Trajectory) -> dict[str, int]:
    """Map the message ids of model responses to the steps that tell them."""
    extras = ((step.step_id, step.extra) for step in document.steps if isinstance(step.extra, dict))
    return {extra["message_id"]: number for number, extra in extras if "message_id" in extra}


def subagent_file(lane: Subagent) -> str:
    """Name the file of a subagent's trajectory."""
    kind = _NOT_IN_A_NAME.sub("-", lane.agent_type).strip("-.")[:60]
    return f"subagent_{kind or 'agent'}_{lane.id}.json"


class _TrajectoryWriter:
    def __init__(self, session: Session, profile: AtifOptions, known: Mapping[str, ThreadContext]) -> None:
        self._session, self._profile, self._known = session, profile, known
        self._pictures = ImageFiles(keep=profile.pictures)
        self._extras = profile.version != "1.6"
        threads = {"": session.turns, **{lane.id: lane.turns for lane in session.lanes}}
        homes = {call.id: name for name, turns in threads.items() for call in _iter_calls(turns)}
        # A subagent whose call nobody recorded, or that seems to have started itself, hangs on the main thread.
        self._home = {lane.id: homes.get(lane.call_id, lane.id) for lane in session.lanes}
        self._loose = [lane for lane in session.lanes if self._home[lane.id] == lane.id]
        self._steps = {name: self._write_steps(name, turns) for name, turns in threads.items()}

    def build_bundle(self) -> TrajectoryBundle:
        documents = {MAIN: self._build_document(None)}
        documents |= {subagent_file(lane): self._build_document(lane) for lane in self._session.lanes}
        return TrajectoryBundle(documents, self._pictures.files)

    def _build_document(self, lane: Subagent | None) -> Trajectory:
        name = lane.id if lane else ""
        own, below = self._steps[name], [step for each in self._list_descendants(name) for step in self._steps[each]]
        sums = sum_final_metrics(own, below, None if lane else self._session.client)
        return Trajectory(
            schema_version=f"ATIF-v{self._profile.version}",
            session_id=self._session.id,
            trajectory_id=self._trajectory_id(name) if self._extras else UNSET,
            agent=self._build_agent(lane),
            steps=number_steps(own),
            notes=" ".join(self._iter_notes(own, lane, priced=sums.total_cost_usd is not UNSET)) or UNSET,
            final_metrics=sums,
            extra=self._describe_thread(lane) or UNSET,
        )

    def _write_steps(self, name: str, turns: Sequence[Turn]) -> list[AtifStep]:
        known = self._known.get(name, ThreadContext())
        refs: dict[str, list[SubagentRef]] = {}
        for lane in self._session.lanes:
            if self._home[lane.id] == name != lane.id:
                refs.setdefault(lane.call_id, []).append(self._make_ref(lane))
        thread = AtifThread(
            Address(self._session.id, lane=name), turns, known.copied, refs, self._pictures, self._extras
        )
        told = build_steps(thread)
        given = [system_step("context", each.text, each.at_ms, given=each.kind) for each in known.context]
        told = _merge_by_time(told, given)
        if not name:
            told = _merge_by_time(told, [self._orphan_step(lane) for lane in self._loose])
        if known.system:
            first = next((step.timestamp for step in told if step.timestamp is not UNSET), UNSET)
            told.insert(0, AtifStep(0, "system", known.system, first, extra={"kind": "system prompt"}))
        return told or [system_step("empty", "", self._session.started_ms)]

    def _orphan_step(self, lane: Subagent) -> AtifStep:
        text = "a subagent warmed up by the client" if lane.warmup else "a subagent whose call is not on record"
        step = system_step("subagent", text, next((turn.at_ms for turn in lane.turns), None))
        return replace(
            step, observation=Observation([ObservationResult(subagent_trajectory_ref=[self._make_ref(lane)])])
        )

    def _make_ref(self, lane: Subagent) -> SubagentRef:
        about = {"agent_type": lane.agent_type, "description": lane.description}
        return SubagentRef(
            session_id=self._session.id,
            trajectory_id=self._trajectory_id(lane.id) if self._extras else UNSET,
            trajectory_path=subagent_file(lane),
            extra={key: value for key, value in about.items() if value} or UNSET,
        )

    def _trajectory_id(self, name: str) -> str:
        return str(Address(self._session.id, lane=name))

    def _list_descendants(self, name: str) -> list[str]:
        """Name the subagents started from a thread, and those started from them; all of them for the main one."""
        if not name:
            return [lane.id for lane in self._session.lanes]
        found: list[str] = []
        waiting = [name]
        while waiting:
            above = waiting.pop()
            new = [lane for lane, home in self._home.items() if home == above and lane not in {name, *found}]
            found += new
            waiting += new
        return found

    def _build_agent(self, lane: Subagent | None) -> AtifAgent:
        told = self._steps[lane.id if lane else ""]
        models = Counter(step.model_name for step in told if isinstance(step.model_name, str))
        tools = self._known.get(lane.id if lane else "", ThreadContext()).tools
        extra = {"client": self._session.agent} if lane else {"entrypoint": self._session.entrypoint}
        return AtifAgent(
            name=(lane.agent_type if lane else "") or self._session.agent,
            version=self._session.version or "unknown",
            model_name=models.most_common(1)[0][0] if models else UNSET,
            tool_definitions=[_tool_definition(tool) for tool in tools] or UNSET,
            extra={key: value for key, value in extra.items() if value} or UNSET,
        )

    def _iter_notes(self, told: Sequence[AtifStep], lane: Subagent | None, *, priced: bool) -> Iterator[str]:
        copies = sum(step.is_copied_context is True for step in told)
        if copies:
            yield f"{copies} steps are copied from another session; what they used was counted there."
        if not priced:
            yield "The total cost is left out: the price of a model is not known."
        if lane is None and self._session.unknown:
            kinds = ", ".join(kind for kind, _ in self._session.unknown)
            yield f"The recording holds records of a kind not known here: {kinds}."
        if lane is None and self._session.damage:
            yield f"The recording is damaged in {len(self._session.damage)} places."

    def _describe_thread(self, lane: Subagent | None) -> dict[str, Any]:
        if lane is not None:
            told = {"lane": lane.id, "description": lane.description, "call_id": lane.call_id, "warmup": lane.warmup}
        else:
            one = self._session
            told = {
                "title": one.heading,
                "project": one.cwd.rstrip("/").rsplit("/", 1)[-1],
                "branch": one.branch,
                "started_at": format_timestamp(one.started_ms) or "",
                "ended_at": format_timestamp(one.ended_ms) or "",
            }
        return {key: value for key, value in told.items() if value}


def _iter_calls(turns: Sequence[Turn]) -> Iterator[Called]:
    return (call for turn in turns for step in turn.steps for call in step.calls)


def _merge_by_time(told: list[AtifStep], new: list[AtifStep]) -> list[AtifStep]:
    """Put new steps where their times belong: after everything said until then, copied where that is."""
    merged: list[AtifStep] = []
    waiting = sorted(new, key=_timestamp_or_empty)
    place = 0
    for step in told:
        while place < len(waiting) and _timestamp_or_empty(step) > _timestamp_or_empty(waiting[place]):
            merged.append(replace(waiting[place], is_copied_context=step.is_copied_context))
            place += 1
        merged.append(step)
    return merged + waiting[place:]


def _timestamp_or_empty(step: AtifStep) -> str:
    return step.timestamp if isinstance(step.timestamp, str) else ""


def _tool_definition(tool: dict[str, Any]) -> dict[str, Any]:
    """Write a tool's definition in the function form the format goes by; a server's own tool stays as it is."""
    if "input_schema" not in tool:
        return tool
    told = {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool["input_schema"]}
    return {"type": "function", "function": {key: value for key, value in told.items() if value is not None}}
