"""Derive questions from runs, answer them, and write the analysis."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import decode_response
from flightlog.lab import service
from flightlog.lab.layout import run_meta
from flightlog.lab.resample.samples import Sample, journal_events, list_samples, list_variants
from flightlog.lab.resample.state import BatchStarted
from flightlog.lab.run_reader import RunSession, trees_of
from flightlog.lab.statistics import groups
from flightlog.lab.statistics.analysis import ExperimentAnalysis, analyze_questions
from flightlog.lab.statistics.divergence import ActionPath, PathNode, build_path_tree
from flightlog.lab.statistics.report import MARK, NAME, render_analysis
from flightlog.lab.store import RunStore
from flightlog.model.errors import Conflict, FlightlogError, NotFound
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.runtime import Runtime
from flightlog.store.exchanges import exchanges_of
from flightlog.store.output_files import write_output_files

PAIR = 2
BY = ("arguments", "tool")


class ComparisonOptions(Struct, frozen=True):
    """How actions are distinguished, and the search path for programs."""

    normalize: Callable[[groups.Action], groups.Action]
    programs: str


def sample_questions(
    run: RunStore, options: ComparisonOptions, *, prefix: str = ""
) -> list[groups.ComparisonQuestion]:
    """Return questions about the sampled requests of a run; `prefix` is put before each path."""
    samples = list_samples(run.path)
    if not samples:
        return []
    begun = [event for event in journal_events(run.path) if isinstance(event, BatchStarted)]
    early = [event.targets for event in begun if event.limits.until_width is not None]
    stopped = {(one.session, one.request, one.variant) for targets in early for one in targets}
    recorded, variants = _load_recorded_actions(run, samples), list_variants(run.path)
    facts = groups.SampleContext(
        recorded, variants, stopped, run.config.work_dir, prefix, options.normalize
    )
    return groups.questions_from_samples(samples, facts)


def session_questions(runs: Sequence[RunStore]) -> list[groups.ComparisonQuestion]:
    """Return questions about sessions that ended more than once in these runs."""
    sessions_by_run = [
        (run.name, run_meta(run.name, run.config, run.state)["sessions"]) for run in runs
    ]
    last = max((len(run.config.sessions) for run in runs), default=0)
    questions = [
        groups.question_from_sessions(sessions_by_run, index) for index in range(1, last + 1)
    ]
    return [
        question
        for question in questions
        if sum(len(group.trials) for group in question.groups) >= PAIR
    ]


def iter_action_paths(runs: Sequence[RunStore], options: ComparisonOptions) -> Iterator[ActionPath]:
    for run in runs:
        trees = trees_of(run, options.programs)
        for planned in run.planned_sessions():
            if run.state.last_attempt(planned.session_dir) is not None:
                steps = tuple(
                    options.normalize(groups.action_of_step(step, run.config.work_dir))
                    for step in RunSession(run, planned, trees).own_steps()
                )
                branch = run.state.branch if planned.session_index == 1 else None
                begins = None
                if branch:
                    begins = (branch.source_run, branch.source_session_dir, branch.turn - 1)
                yield ActionPath(run.name, planned.session_dir, steps, begins)


def _iter_branches(
    runs: Sequence[RunStore], options: ComparisonOptions
) -> Iterator[groups.BranchTrial]:
    by_name = {run.name: run for run in runs}
    for run in runs:
        branch = run.state.branch
        if branch is None:
            continue
        meta = run_meta(run.name, run.config, run.state)["sessions"][0]
        if meta["finished_at"]:
            first = _action_at_turn(run, run.planned_sessions()[0].session_dir, 1, options)
            point = (branch.source_run, branch.source_session_dir, branch.turn)
            source = by_name.get(branch.source_run)
            session, turn = branch.source_session_dir, branch.turn
            recorded = _action_at_turn(source, session, turn, options) if source else None
            yield groups.BranchTrial(run.name, point, branch.prompt, meta, first, recorded)


def _action_at_turn(
    run: RunStore, session: str, turn: int, options: ComparisonOptions
) -> groups.Action | None:
    planned = {one.session_dir: one for one in run.planned_sessions()}.get(session)
    if planned is None or run.state.last_attempt(session) is None:
        return None
    steps = RunSession(run, planned, trees_of(run, options.programs)).own_steps()
    if turn > len(steps):
        return None
    return options.normalize(groups.action_of_step(steps[turn - 1], run.config.work_dir))


def _load_recorded_actions(
    run: RunStore, samples: Sequence[Sample]
) -> dict[tuple[str, int], groups.RecordedAction]:
    wanted: dict[str, set[int]] = {}
    for sample in samples:
        wanted.setdefault(sample.session, set()).add(sample.request)
    recorded = {}
    for session, requests in wanted.items():
        exchanges = exchanges_of(run.path / session)
        for exchange in exchanges.read_exchanges():
            if exchange.index in requests:
                try:
                    message = decode_response(exchanges.response_body(exchange)).message
                except FlightlogError:
                    message = None
                if message:
                    recorded[session, exchange.index] = _recorded_action(
                        message, run.config.work_dir
                    )
    return recorded


def _recorded_action(message: dict[str, object], work_dir: str) -> groups.RecordedAction:
    content = message.get("content")
    listed = content if isinstance(content, list) else []
    blocks = [block for block in listed if isinstance(block, dict)]
    action = groups.action_of_response(blocks, str(message.get("stop_reason") or ""), work_dir)
    return groups.RecordedAction(action, str(message.get("model") or ""))


def analyze_runs(
    runtime: Runtime, runs: Sequence[RunStore], by: str = BY[0], seed: int = 0
) -> ExperimentAnalysis:
    """Answer the questions of these runs; for a single run also those of its branches."""
    options = _comparison_options(runtime, by)
    many = len(runs) > 1
    named = ((run, f"../{run.name}/" if many else "") for run in runs)
    own = (sample_questions(run, options, prefix=prefix) for run, prefix in named)
    questions = [question for answered in own for question in answered]
    family = runs if many else list_run_family(runtime, runs[0])
    questions += groups.questions_from_branches(_iter_branches(family, options))
    questions += session_questions(runs)
    return analyze_questions(questions, seed)


def list_run_family(runtime: Runtime, run: RunStore) -> list[RunStore]:
    """Return a run with all its branches beside it, and their branches."""
    candidates, _ = service.open_readable_runs(runtime, run.path.parent)
    branches = [(one, one.state.branch.source_run) for one in candidates if one.state.branch]
    family = {run.name: run}
    while True:
        new = [one for one, source in branches if source in family and one.name not in family]
        if not new:
            return list(family.values())
        family |= {one.name: one for one in new}


def build_divergence_tree(runtime: Runtime, runs: Sequence[RunStore], by: str = BY[0]) -> PathNode:
    return build_path_tree(iter_action_paths(runs, _comparison_options(runtime, by)))


def write_analysis(runtime: Runtime, run: RunStore, analysis: ExperimentAnalysis) -> Path:
    """Write the analysis into the run; raise Conflict instead of replacing a person's file."""
    if not any(group.n for answer in analysis.questions for group in answer.groups):
        hint = f"flightlog lab resample {run.name}"
        raise NotFound(f"{run.name} has no samples, replicates or branches", hint=hint)
    path = run.path / NAME
    if path.exists() and MARK not in path.read_text("utf-8", "replace"):
        raise Conflict(f"{NAME} of {run.name} was written by hand", hint=f"rename it first: {path}")
    tree = build_divergence_tree(runtime, list_run_family(runtime, run))
    write_output_files(
        run.path, [OutputFile(NAME, Tier.PRIVATE, render_analysis(run.name, analysis, tree))]
    )
    return path


def _comparison_options(runtime: Runtime, by: str) -> ComparisonOptions:
    normalize = groups.action_by_tool if by == "tool" else lambda action: action
    return ComparisonOptions(normalize, runtime.program_path)
