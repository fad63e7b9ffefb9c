"""Convert a session to ATIF: a document per thread, linked by path, and pictures as files.

The default is version 1.6 in a form that validators of that and of later versions accept:
subagents are sibling files, named by session id and path. Version 1.7 adds ids of documents,
the number of model calls, and `extra` on calls and results. Nothing is read or written here.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from flightlog.model.addresses import Address
from flightlog.model.session import Session, Subagent, ThreadContext, Turn
from flightlog.model.text import pluralize
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
    without_empty,
)

MAIN = "trajectory.json"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class AtifOptions(Struct, frozen=True):
    """The version to write; without `pictures`, a text in brackets replaces each of them."""

    version: Literal["1.6", "1.7"] = "1.6"
    pictures: bool = True


class TrajectoryBundle(Struct, frozen=True):
    """The documents of one session by file name, `trajectory.json` first, and their pictures."""

    documents: dict[str, Trajectory]
    pictures: dict[str, bytes]

    @property
    def main(self) -> Trajectory:
        """The document of the main thread."""
        return self.documents[MAIN]

    def iter_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield every file with its path below the bundle's directory."""
        for path, document in self.documents.items():
            yield path, encode_trajectory(document)
        yield from self.pictures.items()


def build_trajectory(
    session: Session,
    options: AtifOptions = AtifOptions(),  # noqa: B008 - frozen
    contexts: Mapping[str, ThreadContext] | None = None,
) -> TrajectoryBundle:
    """Return `trajectory.json`, and `subagent_<type>_<id>.json` for each subagent of `session`.

    `contexts` has what the model was given, by thread; "" is the main thread. Every document is
    valid by itself: a thread without steps gets a single system step. A step's `extra` links it to
    the recording: `address`, `message_id`, `request_id`, `uuids`, `result_uuids`.
    """
    return _TrajectoryWriter(session, options, contexts or {}).build_bundle()


def step_ids(document: Trajectory) -> dict[str, int]:
    """Return the step id of each model response, by message id."""
    extras = ((step.step_id, step.extra) for step in document.steps if isinstance(step.extra, dict))
    return {extra["message_id"]: number for number, extra in extras if "message_id" in extra}


def subagent_file(subagent: Subagent) -> str:
    """Return the file name of a subagent's trajectory."""
    kind = _NOT_IN_A_NAME.sub("-", subagent.agent_type).strip("-.")[:60]
    return f"subagent_{kind or 'agent'}_{subagent.id}.json"


class _TrajectoryWriter:
    def __init__(
        self, session: Session, options: AtifOptions, contexts: Mapping[str, ThreadContext]
    ) -> None:
        self._session, self._version, self._contexts = session, options.version, contexts
        self._pictures = ImageFiles(keep=options.pictures)
        self._extras = options.version != "1.6"
        threads = {"": session.turns} | {one.id: one.turns for one in session.subagents}
        pairs = ((name, turn) for name, turns in threads.items() for turn in turns)
        steps = [(name, step) for name, turn in pairs for step in turn.steps]
        callers = {call.id: name for name, step in steps for call in step.tool_calls}
        # A subagent whose call is not on record, or that seems to have started itself, is its own
        # parent; the main thread gets a step for it.
        self._parents = {one.id: callers.get(one.tool_call_id, one.id) for one in session.subagents}
        self._steps = {name: self._build_steps(name, turns) for name, turns in threads.items()}

    def build_bundle(self) -> TrajectoryBundle:
        documents = {MAIN: self._build_document(None)}
        subagents = self._session.subagents
        documents |= {subagent_file(one): self._build_document(one) for one in subagents}
        return TrajectoryBundle(documents, self._pictures.files)

    def _build_document(self, subagent: Subagent | None) -> Trajectory:
        name = subagent.id if subagent else ""
        own = self._steps[name]
        below = [step for thread in self._list_descendants(name) for step in self._steps[thread]]
        metrics = sum_final_metrics(own, below, None if subagent else self._session.client_totals)
        return Trajectory(
            schema_version=f"ATIF-v{self._version}",
            session_id=self._session.id,
            trajectory_id=self._trajectory_id(name) if self._extras else UNSET,
            agent=self._build_agent(subagent),
            steps=number_steps(own),
            notes=" ".join(
                self._iter_notes(own, subagent, priced=metrics.total_cost_usd is not UNSET)
            )
            or UNSET,
            final_metrics=metrics,
            extra=self._describe_thread(subagent) or UNSET,
        )

    def _build_steps(self, name: str, turns: Sequence[Turn]) -> list[AtifStep]:
        context = self._contexts.get(name, ThreadContext())
        refs: dict[str, list[SubagentRef]] = {}
        for subagent in self._session.subagents:
            if self._parents[subagent.id] == name != subagent.id:
                refs.setdefault(subagent.tool_call_id, []).append(self._make_ref(subagent))
        at = Address(self._session.id, subagent=name)
        copied = context.copied_message_ids
        steps = build_steps(AtifThread(at, turns, copied, refs, self._pictures, self._extras))
        given = [
            system_step("context", item.text, item.at_ms, given=item.kind)
            for item in context.context
        ]
        steps = _merge_by_time(steps, given)
        if not name:
            orphans = [one for one in self._session.subagents if self._parents[one.id] == one.id]
            steps = _merge_by_time(steps, [self._orphan_step(subagent) for subagent in orphans])
        if context.system:
            first = next((step.timestamp for step in steps if step.timestamp is not UNSET), UNSET)
            extra = {"kind": "system prompt"}
            steps.insert(0, AtifStep(0, "system", context.system, first, extra=extra))
        return steps or [system_step("empty", "", self._session.started_ms)]

    def _orphan_step(self, subagent: Subagent) -> AtifStep:
        side_call = f"a side call of the client: {subagent.agent_type}"
        text = side_call if subagent.is_side_call else "a subagent whose call is not on record"
        step = system_step("subagent", text, next((turn.at_ms for turn in subagent.turns), None))
        result = ObservationResult(subagent_trajectory_ref=[self._make_ref(subagent)])
        return replace(step, observation=Observation([result]))

    def _make_ref(self, subagent: Subagent) -> SubagentRef:
        extra = {"agent_type": subagent.agent_type, "description": subagent.description}
        return SubagentRef(
            session_id=self._session.id,
            trajectory_id=self._trajectory_id(subagent.id) if self._extras else UNSET,
            trajectory_path=subagent_file(subagent),
            extra=without_empty(extra) or UNSET,
        )

    def _trajectory_id(self, name: str) -> str:
        return str(Address(self._session.id, subagent=name))

    def _list_descendants(self, name: str) -> list[str]:
        """Return the subagents started from a thread, directly or not; all for the main thread."""
        if not name:
            return [subagent.id for subagent in self._session.subagents]
        threads = [name]
        for parent in threads:
            children = [child for child, above in self._parents.items() if above == parent]
            threads += [child for child in children if child not in threads]
        return threads[1:]

    def _build_agent(self, subagent: Subagent | None) -> AtifAgent:
        name = subagent.id if subagent else ""
        names = (step.model_name for step in self._steps[name])
        models = Counter(model for model in names if isinstance(model, str))
        tools = self._contexts.get(name, ThreadContext()).tools
        session = self._session
        extra = {"client": session.agent} if subagent else {"entrypoint": session.entrypoint}
        return AtifAgent(
            name=(subagent.agent_type if subagent else "") or self._session.agent,
            version=self._session.version or "unknown",
            model_name=models.most_common(1)[0][0] if models else UNSET,
            tool_definitions=[_tool_definition(tool) for tool in tools] or UNSET,
            extra=without_empty(extra) or UNSET,
        )

    def _iter_notes(
        self, steps: Sequence[AtifStep], subagent: Subagent | None, *, priced: bool
    ) -> Iterator[str]:
        copies = sum(step.is_copied_context is True for step in steps)
        if copies:
            yield f"{pluralize(copies, 'step')} copied from another session; their usage counts there."
        if not priced:
            yield "There is no total cost, because the price of a model is not known."
        if subagent is None and self._session.unknown_record_types:
            kinds = ", ".join(kind for kind, _ in self._session.unknown_record_types)
            yield f"The recording has records of unknown types: {kinds}."
        if subagent is None and self._session.damage:
            yield f"The recording has {pluralize(len(self._session.damage), 'damaged span')}."

    def _describe_thread(self, subagent: Subagent | None) -> dict[str, Any]:
        if subagent is not None:
            about = {
                "description": subagent.description,
                "call_id": subagent.tool_call_id,
                "warmup": subagent.is_side_call,
            }
            return without_empty({"subagent": subagent.id, **about})
        session = self._session
        return without_empty(
            {
                "title": session.heading,
                "project": session.cwd.rstrip("/").rsplit("/", 1)[-1],
                "branch": session.branch,
                "started_at": format_timestamp(session.started_ms) or "",
                "ended_at": format_timestamp(session.ended_ms) or "",
            }
        )


def _merge_by_time(steps: list[AtifStep], new: list[AtifStep]) -> list[AtifStep]:
    """Return the steps with `new` ones at their times; one before a copied step is a copy too."""
    merged: list[AtifStep] = []
    waiting = deque(sorted(new, key=_timestamp_or_empty))
    for step in steps:
        while waiting and _timestamp_or_empty(step) > _timestamp_or_empty(waiting[0]):
            merged.append(replace(waiting.popleft(), is_copied_context=step.is_copied_context))
        merged.append(step)
    return [*merged, *waiting]


def _timestamp_or_empty(step: AtifStep) -> str:
    return step.timestamp if isinstance(step.timestamp, str) else ""


def _tool_definition(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the function form of the format; a server-side tool stays as it is."""
    if "input_schema" not in tool:
        return tool
    function = {name: tool.get(name) for name in ("name", "description")}
    function["parameters"] = tool["input_schema"]
    present = {key: value for key, value in function.items() if value is not None}
    return {"type": "function", "function": present}
