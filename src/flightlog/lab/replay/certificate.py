"""Certify a branch at its cut; build `replay_meta.json`; trim trajectories.

    exact           it is the recorded one, except for the caller's identity
    exact+prompt    the same, followed by the prompt of the branch
    unknown         the recording does not have what it would be compared with
    differs         it is not; `first_difference` names the first reason

This is said of the context (the first request), the files with their times, the repository, and the
environment (client, headers, tools); the verdict is the worst of them. Pure.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from flightlog.agents import find_memory_file
from flightlog.agents.claude_code import PROJECT_SETTINGS
from flightlog.lab.events import BranchCreated
from flightlog.lab.layout import as_json
from flightlog.lab.replay.recorded_context import (
    RecordedContext,
    RewrittenBody,
    find_differences,
    is_billing,
)
from flightlog.lab.state import RunState
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.session import DEFAULT_AGENT
from flightlog.views.atif.document import AtifStep, FinalMetrics
from flightlog.views.atif.steps import number_steps
from flightlog.views.atif.writer import MAIN, TrajectoryBundle

EXACT, PROMPTED, UNKNOWN, DIFFERS = "exact", "exact+prompt", "unknown", "differs"
# Files that an arm of an experiment lays over the work tree.
OVERLAY = frozenset({find_memory_file(DEFAULT_AGENT), PROJECT_SETTINGS})
_WORSE = (EXACT, PROMPTED, UNKNOWN, DIFFERS)
SPLICED = "resumed at the cut; recorded context sent by the proxy"
FRESH = "new session; recorded context sent by the proxy"
REBUILT = ", rebuilt from the transcript"
CURSOR = (
    "recorded answers served up to the turn, tools run again; messages as the client makes them"
)
RESUMED = "resumed at the cut; context as the client makes it"
# A placeholder for tools that the client looks up later; it never runs.
_NEVER_ANNOUNCED = frozenset({"DeferredToolPlaceholder"})
_USD_MIN = 1e-6  # prices are rounded to this
_MARK = re.compile(r"\[flightlog branch point [0-9a-f-]+\]\n?")


class Certificate(Struct, frozen=True):
    """What is known of a branch at its cut, how it got there, and the first difference."""

    context: str
    method: str
    first_difference: str = ""
    replacements: tuple[str, ...] = ()
    files: str = UNKNOWN
    repository: str = UNKNOWN
    environment: str = UNKNOWN
    has_other_arm: bool = False

    @property
    def verdict(self) -> str:
        """The worst of the four."""
        parts = (self.context, self.files, self.repository, self.environment)
        return max(parts, key=_WORSE.index)

    @property
    def is_drift(self) -> bool:
        """Whether something differs that should not, or the context cannot be compared."""
        parts = [self.context, self.files, self.repository]
        parts += [] if self.has_other_arm else [self.environment]
        return DIFFERS in parts or self.context == UNKNOWN


class WorkTreeState(Struct, frozen=True):
    """The work tree at a request: object ids, times and modes of files; files of repositories."""

    files: dict[str, str]
    times: dict[str, tuple[int, int]] = {}
    repository: dict[str, str] = {}


class RequestFacts(Struct, frozen=True):
    """Other facts about the first request; empty `tools` or versions mean that they are unknown."""

    client: str = ""
    recorded_client: str = ""
    tools: frozenset[str] = frozenset()
    scrubbed_fields: Collection[str] = ()
    rebuilt_fidelity: str = ""
    arm: str = ""


def certify_request(
    context: RecordedContext, spliced: RewrittenBody | None, facts: RequestFacts, method: str
) -> Certificate:
    """Return the certificate of a request by comparing it with the recorded one."""
    if spliced is None:
        return Certificate(DIFFERS, method, "the branch point is not in the client's first request")
    first = _context_difference(context, spliced, facts)
    verdict = DIFFERS if first else (PROMPTED if context.prompt else EXACT)
    if not first and facts.rebuilt_fidelity not in {"", "exact"}:
        first = "the recorded request is rebuilt, and its digest does not confirm all of it"
        verdict = UNKNOWN
    other = _environment_difference(context.recorded, facts)
    return Certificate(
        verdict,
        method,
        first or other,
        spliced.replacements,
        environment=DIFFERS if other else (EXACT if facts.client else UNKNOWN),
        has_other_arm=bool(facts.arm),
    )


def certify_unrecorded(facts: RequestFacts) -> Certificate:
    """Return the certificate of a branch without a recorded request: at most the client differs."""
    other = _environment_difference({}, facts)
    why = other or "no request was recorded"
    environment = DIFFERS if other else UNKNOWN
    return Certificate(
        UNKNOWN, RESUMED, why, environment=environment, has_other_arm=bool(facts.arm)
    )


def certify_work_tree(
    certificate: Certificate,
    state: WorkTreeState | None,
    recorded: WorkTreeState | None,
    *,
    compares_times: bool = True,
) -> Certificate:
    """Add what is known of files and repository to a certificate; None means not saved."""
    if state is None or recorded is None:
        return certificate
    if certificate.has_other_arm:
        state, recorded = (
            replace(tree, files={path: tree.files[path] for path in tree.files.keys() - OVERLAY})
            for tree in (state, recorded)
        )
    files = _first_changed("files", state.files, recorded.files)
    names = {path for path in recorded.files if compares_times and path in recorded.times}
    one = {path: state.times.get(path) for path in names}
    times = _first_changed(
        "files", one, {path: recorded.times[path] for path in names}, " (time or mode)"
    )
    history = _first_changed("repository", state.repository, recorded.repository)
    verdict = DIFFERS if files or times else (EXACT if recorded.times else UNKNOWN)
    places = [certificate.first_difference, files or times or history]
    if certificate.context == UNKNOWN:  # what differs says more than what is not known
        places.reverse()
    return replace(
        certificate,
        files=verdict,
        repository=DIFFERS if history else (EXACT if recorded.times else UNKNOWN),
        first_difference=places[0] or places[1],
    )


def _first_changed(
    part: str, one: Mapping[str, Any], other: Mapping[str, Any], what: str = ""
) -> str:
    names = sorted({*one, *other})
    return next((f"{part}.{name}{what}" for name in names if one.get(name) != other.get(name)), "")


def _context_difference(
    context: RecordedContext, spliced: RewrittenBody, facts: RequestFacts
) -> str:
    sent = _without_prompt(spliced.body, context.prompt)
    if facts.rebuilt_fidelity:
        # A transcript records neither; both only identify the caller and the transport.
        sent = {key: value for key, value in sent.items() if key != "stream"}
        sent["system"] = [block for block in sent.get("system") or () if not is_billing(block)]
    ignored = context.ignored_settings(sent) | {"metadata"}
    difference = next(find_differences(sent, context.recorded, ignored=ignored), "")
    if difference:
        return difference
    if facts.scrubbed_fields:
        return "the recorded request holds a credential that was scrubbed"
    return ""


def _environment_difference(request: Mapping[str, Any], facts: RequestFacts) -> str:
    if facts.arm:
        return f"arm {facts.arm}"
    if facts.client and facts.recorded_client and facts.client != facts.recorded_client:
        return f"client {facts.client} (recorded with {facts.recorded_client})"
    tools = [tool for tool in request.get("tools") or () if "input_schema" in tool]
    recorded = {str(tool.get("name")) for tool in tools}
    # The client announces its tool for subagents under an older name than it offers it by.
    available = facts.tools | _NEVER_ANNOUNCED | ({"Agent"} if "Task" in facts.tools else set())
    missing = sorted(recorded - available) if facts.tools else []
    return f"tools.{missing[0]} (the client does not have it)" if missing else ""


def _without_prompt(body: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    messages = list(body.get("messages") or ())
    last = messages[-1] if prompt and messages else None
    if isinstance(last, dict) and isinstance(last.get("content"), list):
        content = list(last["content"])
        if content and isinstance(content[-1], dict) and content[-1].get("text") == prompt:
            remaining = [{**last, "content": content[:-1]}] if content[:-1] else []
            messages = [*messages[:-1], *remaining]
    return {**body, "messages": messages}


def replay_meta(state: RunState) -> dict[str, Any]:
    """Return all facts about a replay's origin, under the keys of the source document."""
    branch = state.branch
    assert branch is not None, "only for a run that is a replay"
    last = state.last_attempt("session_01")
    return {
        "source_run": branch.source_run,
        "source_run_dir": f"../{branch.source_run}",
        "source_session_index": branch.source_session,
        "source_session_dir": branch.source_session_dir,
        "source_replicate": branch.replicate or None,
        "source_session_id": branch.source_session_id,
        "source_request_index": branch.request_index or None,
        "replay_turn_index": branch.turn,
        "replay_count": branch.count,
        "replay_number": branch.number,
        "prompt_override": branch.prompt or None,
        "arm": branch.arm or None,
        "new_session_id": last.session_id if last else None,
        "shadow_git_reset_tag": branch.tree,
        "created_at": state.started_at or None,
        "prefix": {
            "trajectory": f"../{branch.source_run}/{branch.source_session_dir}/trajectory.json",
            "turns": branch.turn - 1,
            "transcript": "session_01/source_transcript_truncated.jsonl",
        },
        "certificate": certificate_fields(state),
        "allow_drift": branch.allow_drift,
        "side_effects_not_restored": [msgspec.to_builtins(effect) for effect in branch.effects],
    }


def certificate_fields(state: RunState) -> dict[str, Any] | None:
    """Return the certificate of a replay as a mapping; None without one."""
    last = state.last_attempt("session_01")
    certified = last.certificate if last else None
    if last is None or certified is None:
        return None
    later = last.later_requests
    return {
        "verdict": certified.verdict,
        "context": certified.context,
        "files": certified.files,
        "repository": certified.repository,
        "environment": certified.environment,
        "later_requests": {
            "compared": later.compared if later else 0,
            "equal": later.equal if later else 0,
            "first_difference": (later.first_difference or None) if later else None,
        },
        "method": certified.method,
        "first_difference": certified.first_difference or None,
        "replacements": list(certified.replacements),
        "is_refused": certified.is_refused,
        "sent_requests": certified.sent_requests,
    }


def replay_page(state: RunState) -> OutputFile:
    return OutputFile("replay_meta.json", Tier.PRIVATE, as_json(replay_meta(state)))


def add_side_calls(bundle: TrajectoryBundle, cost_usd: float) -> TrajectoryBundle:
    """Return trajectories whose total includes calls that are no step, such as a compaction."""
    main = bundle.documents[MAIN]
    sums = main.final_metrics
    if cost_usd < _USD_MIN or not isinstance(sums, FinalMetrics):
        return bundle
    if not isinstance(sums.total_cost_usd, float):
        return bundle
    extra = sums.extra if isinstance(sums.extra, dict) else {}
    total = round(sums.total_cost_usd + cost_usd, 6)
    made = replace(
        sums, total_cost_usd=total, extra=extra | {"side_calls_cost_usd": round(cost_usd, 6)}
    )
    return replace(bundle, documents=bundle.documents | {MAIN: replace(main, final_metrics=made)})


def trim_to_branch(bundle: TrajectoryBundle, branch: BranchCreated) -> TrajectoryBundle:
    """Return the trajectories without the steps copied from the source and without the marker."""
    main = bundle.documents[MAIN]
    steps = list(main.steps)
    if branch.uses_cursor:
        # The agent started over, so everything before its first own response belongs to the source.
        is_own = [step.source == "agent" and not step.is_copied_context for step in steps]
        own = (index for index, answer in enumerate(is_own) if answer)
        steps = steps[next(own, 0) :]
    own_steps = [step for candidate in steps if (step := _own_step(candidate)) is not None]
    if not any(step.source == "agent" for step in own_steps):
        own_steps = own_steps or main.steps[-1:]
    source = f"{branch.source_run}/{branch.source_session_dir}"
    notes = f"Continues at turn {branch.turn} of {source}, which has the steps before it."
    extra = main.extra if isinstance(main.extra, dict) else {}
    # The system prompt has the time at which the source recorded it.
    times = (step.timestamp for step in own_steps if step.timestamp and step.source != "system")
    started = next(times, UNSET)
    extra |= {"started_at": started} if started is not UNSET else {}
    origin = {
        "source_run": branch.source_run,
        "source_session": branch.source_session_dir,
        "source_turn": branch.turn,
    }
    sums = main.final_metrics
    made = replace(
        main,
        steps=number_steps(own_steps),
        notes=notes,
        final_metrics=replace(sums, total_steps=len(own_steps))
        if isinstance(sums, FinalMetrics)
        else UNSET,
        extra=extra | {"replay": origin},
    )
    return replace(bundle, documents=bundle.documents | {MAIN: made})


def _own_step(step: AtifStep) -> AtifStep | None:
    if step.is_copied_context is True:
        return None
    if step.source != "user" or not isinstance(step.message, str):
        return step
    text = _MARK.sub("", step.message)
    return replace(step, message=text) if text else None
