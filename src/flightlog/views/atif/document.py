"""ATIF documents as values, for every version from 1.0 to 1.8, read from and written to JSON.

Unknown fields are rejected, as the format demands. An absent field stays absent and a null one
stays null, so a document that is read and written again is equal. Whether the content makes
sense is checked by `views.atif.lint`.
"""

import json
import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from flightlog.model.errors import UNREADABLE, Invalid
from flightlog.model.text import replace_surrogates

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

Extra = dict[str, Any] | None | UnsetType


class MediaSource(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a picture or a sound."""

    media_type: str
    path: str
    duration_sec: float | UnsetType | None = UNSET


class ContentPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a message: text, a picture (from 1.6) or a sound (from 1.8)."""

    type: Literal["text", "image", "audio"]
    text: str | UnsetType | None = UNSET
    source: MediaSource | UnsetType | None = UNSET


Content = str | list[ContentPart]


class SubagentRef(Struct, frozen=True, forbid_unknown_fields=True):
    """The id or the file of a subagent's trajectory."""

    session_id: str | UnsetType | None = UNSET
    trajectory_id: str | UnsetType | None = UNSET
    trajectory_path: str | UnsetType | None = UNSET
    extra: Extra = UNSET


class AtifToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of the agent."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = UNSET


class ObservationResult(Struct, frozen=True, forbid_unknown_fields=True):
    """A result of a tool, a subagent or the environment."""

    source_call_id: str | UnsetType | None = UNSET
    content: Content | UnsetType | None = UNSET
    subagent_trajectory_ref: list[SubagentRef] | UnsetType | None = UNSET
    extra: Extra = UNSET


class Observation(Struct, frozen=True, forbid_unknown_fields=True):
    """The results in a step."""

    results: list[ObservationResult]


class StepMetrics(Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens and the cost of a step."""

    prompt_tokens: int | UnsetType | None = UNSET
    completion_tokens: int | UnsetType | None = UNSET
    cached_tokens: int | UnsetType | None = UNSET
    cost_usd: float | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType | None = UNSET
    completion_token_ids: list[int] | UnsetType | None = UNSET
    logprobs: list[float] | UnsetType | None = UNSET
    extra: Extra = UNSET


class AtifStep(Struct, frozen=True, forbid_unknown_fields=True):
    """One message of the system, the user or the agent."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: Content
    timestamp: str | UnsetType | None = UNSET
    model_name: str | UnsetType | None = UNSET
    reasoning_effort: str | float | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    tool_calls: list[AtifToolCall] | UnsetType | None = UNSET
    observation: Observation | UnsetType | None = UNSET
    metrics: StepMetrics | UnsetType | None = UNSET
    is_copied_context: bool | UnsetType | None = UNSET
    llm_call_count: int | UnsetType | None = UNSET
    extra: Extra = UNSET


class AtifAgent(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent and its tools."""

    name: str
    version: str
    model_name: str | UnsetType | None = UNSET
    tool_definitions: list[dict[str, Any]] | UnsetType | None = UNSET
    extra: Extra = UNSET


class FinalMetrics(Struct, frozen=True, forbid_unknown_fields=True):
    """The tokens and the cost of the whole trajectory."""

    total_prompt_tokens: int | UnsetType | None = UNSET
    total_completion_tokens: int | UnsetType | None = UNSET
    total_cached_tokens: int | UnsetType | None = UNSET
    total_cost_usd: float | UnsetType | None = UNSET
    total_steps: int | UnsetType | None = UNSET
    extra: Extra = UNSET


class Trajectory(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thread of one agent, from its first step to its last."""

    schema_version: str
    session_id: str | UnsetType | None = UNSET
    trajectory_id: str | UnsetType | None = UNSET
    agent: AtifAgent
    steps: list[AtifStep]
    notes: str | UnsetType | None = UNSET
    final_metrics: FinalMetrics | UnsetType | None = UNSET
    continued_trajectory_ref: str | UnsetType | None = UNSET
    extra: Extra = UNSET
    subagent_trajectories: "list[Trajectory] | UnsetType | None" = UNSET


def read_trajectory(data: bytes) -> Trajectory:
    """Return a document of any version, or raise `Invalid` with the path of the first error."""
    try:
        trajectory = msgspec.json.decode(data, type=Trajectory)
    except UNREADABLE as error:
        raise Invalid(f"not an ATIF trajectory: {error}", hint="flightlog lab lint FILE") from None
    if trajectory.schema_version not in VERSIONS:
        hint = "use 1.0 to 1.8"
        raise Invalid(f"unknown ATIF version: {trajectory.schema_version[:40]!r}", hint=hint)
    return trajectory


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Return indented JSON in ASCII: some readers do not assume UTF-8."""
    try:
        text = msgspec.json.encode(trajectory).decode()
    except UnicodeEncodeError:
        text = json.dumps(replace_surrogates(msgspec.to_builtins(trajectory)))
    plain = text
    if not text.isascii():
        plain = _NOT_ASCII.sub(lambda match: json.dumps(match.group())[1:-1], text)
    return msgspec.json.format(plain.encode("ascii"), indent=2) + b"\n"
