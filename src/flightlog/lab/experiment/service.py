"""Carry out experiments: prepare tasks, run the attempts that are missing, record their scores.

Each attempt is a run of its own and a job that this machine or a cluster carries out. A result is
on record before the next attempt starts, and an attempt with a result never runs again. An attempt
that was in flight when its process died is run again from its first files. One budget covers all
attempts: each one that starts gets an equal share of what is neither spent nor promised.
"""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.lab import service
from flightlog.lab.config import RunConfig
from flightlog.lab.experiment import tasks
from flightlog.lab.experiment.config import (
    CELLS_MAX,
    Cell,
    ExperimentConfig,
    arm_differences,
    parse_experiment,
    read_text,
    resolve_references,
)
from flightlog.lab.experiment.store import (
    CONFIG,
    LOCK,
    AttemptsAdded,
    AttemptScored,
    AttemptStopped,
    ExperimentStore,
)
from flightlog.lab.run_reader import RunSession
from flightlog.lab.runner.run import continue_run, start_run
from flightlog.lab.state import SessionAttempt
from flightlog.lab.statistics.groups import action_of_step
from flightlog.lab.store import CONFIG as RUN_CONFIG
from flightlog.lab.store import RunStore
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.runtime import Job, Runtime
from flightlog.model.text import one_line, parse_utc_time
from flightlog.privacy.trust import ConsentTarget, consent_needed, open_trust
from flightlog.store.directories import set_aside
from flightlog.store.files import process_tag
from flightlog.store.locks import exclusive_lock

CELL_JOB = "cell"
BEFORE = ".attempts"
_POLL_S = 0.5  # how long Ctrl-C may wait
_LABEL_CHARS = 80
# The attempt says nothing about the agent: it is run again when the experiment is continued.
_NO_RESULT = frozenset({"interrupted", "rate_limited", "auth_error", "budget_exhausted"})
Progress = Callable[[ExperimentStore, "AttemptScored | None", int], None]


class CellJob(Struct, frozen=True):
    """Payload of a job: one cell, and its share of the budget."""

    experiment: str
    cell: Cell
    budget_usd: float | None = None


class CellResult(Struct, frozen=True):
    """What a job returns: the scores, or why there are none."""

    scored: AttemptScored | None = None
    stop_reason: str = ""
    error: str = ""
    spent_usd: float = 0.0


def read_experiment(runtime: Runtime, path: Path, name: str = "") -> tuple[ExperimentConfig, str]:
    """Read an experiment file and check what can be checked before anything is paid."""
    hint = "name a YAML file: flightlog lab experiment run --help"
    text = read_text(path, "experiment file", hint)
    if name and not is_safe(name):
        raise Invalid("a name is letters, digits, '.', '_' and '-'", hint="choose another --name")
    config = parse_experiment(text, path.resolve().parent, path.stem)
    config = replace(config, name=name or config.name)
    servers = ({"mcp_config": json.dumps(arm.mcp_config)} for arm in config.arms)
    own = (*(task.env for task in config.tasks), *(arm.env for arm in config.arms))
    for env in (*own, *servers):
        resolve_references(env, config.variables, runtime.environ)
    tasks.check_foreign_tasks(runtime, config.tasks)
    for task in config.tasks:  # raises for what is missing, and for a setting that runs refuse
        tasks.check_task(task)
        for arm in config.arms:
            tasks.build_run_config(path.parent, config, (task.id, arm.name), None)
    return config, text


def resume_experiment(
    runtime: Runtime,
    experiment: ExperimentStore,
    progress: Progress,
    more: AttemptsAdded | None = None,
) -> ExperimentStore:
    """Carry out the attempts that have no result yet, after recording `more` of them."""
    target = experiment_target(runtime, experiment.path)
    if not target.is_trusted:
        raise consent_needed(target, f"this experiment was not started here: {experiment.name}")
    with exclusive_lock(experiment.path / LOCK, who=f"process {process_tag()}"):
        experiment = ExperimentStore(experiment.path, runtime)
        if more is not None:
            _check_count(experiment.config, more.count)  # the journal keeps what it has
            experiment.append(more)
        pending = [cell for cell in experiment.config.cells() if cell not in experiment.results]
        for task in experiment.config.tasks:
            if any(cell.task == task.id for cell in pending):
                tasks.prepare_task(runtime, experiment.path, experiment.config, task)
        _Schedule(runtime, experiment, progress).run_cells(pending)
    return experiment


def _check_count(config: ExperimentConfig, more: int) -> None:
    if len(config.tasks) * len(config.arms) * (config.attempts + more) > CELLS_MAX:
        raise Invalid(f"an experiment has at most {CELLS_MAX:,} attempts in all", hint="add fewer")


class _Schedule:
    """Keeps as many attempts in flight as the experiment allows, within its budget."""

    def __init__(self, runtime: Runtime, experiment: ExperimentStore, progress: Progress) -> None:
        self._runtime = runtime
        self._experiment = experiment
        self._progress = progress
        self._running: dict[Future[bytes], CellJob] = {}
        self._problem = ""

    def run_cells(self, pending: list[Cell]) -> None:
        assert self._runtime.jobs is not None, "the command line opens executors"
        config = self._experiment.config
        left = list(reversed(pending))
        self._progress(self._experiment, None, 0)
        with self._runtime.jobs.open_in_thread(config.max_parallel) as submit:
            while left or self._running:
                while left and len(self._running) < config.max_parallel and not self._problem:
                    share = self._share_usd()
                    if share is not None and share <= 0:
                        self._problem = "the budget is spent"
                        break
                    job = CellJob(str(self._experiment.path), left.pop(), share)
                    key = f"flightlog-{CELL_JOB}-{'.'.join(map(str, job.cell))}-{self._runtime.new_id()}"
                    self._running[submit(Job(key, CELL_JOB, msgspec.json.encode(job)))] = job
                if not self._running:
                    break
                done, _ = wait(self._running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    self._record_result(self._running.pop(future), future)
        if self._problem:
            hint = f"flightlog lab experiment resume {self._experiment.name}"
            if "budget" in self._problem:
                hint = f"allow more: {hint} --max-budget-usd USD"
            raise Unavailable(f"{self._experiment.name} stopped: {self._problem}", hint=hint)

    def _share_usd(self) -> float | None:
        """Return an equal share of what is neither spent nor promised; None without a budget."""
        config = self._experiment.config
        if config.max_budget_usd is None:
            return None
        promised = sum(job.budget_usd or 0.0 for job in self._running.values())
        left = config.max_budget_usd - self._experiment.spent_usd - promised
        return round(left / (config.max_parallel - len(self._running)), 6)

    def _record_result(self, job: CellJob, future: "Future[bytes]") -> None:
        result = msgspec.json.decode(future.result(), type=CellResult)
        if result.scored is not None:
            self._experiment.append(result.scored)
        else:
            self._problem = (
                self._problem or f"{result.stop_reason} {one_line(result.error, 200)}".strip()
            )
            if result.stop_reason == "budget_exhausted":
                name = self._experiment.run_path(job.cell).name
                self._experiment.append(AttemptStopped(name, result.spent_usd))
        self._progress(self._experiment, result.scored, len(self._running))


def run_sent_cell(runtime: Runtime, payload: bytes) -> bytes:
    """Run the attempt that another process sent, after it checked consent; return its scores."""
    job = msgspec.json.decode(payload, type=CellJob)
    if not Path(job.experiment).is_dir():
        hint = "keep runs where all machines see them, at the same path"
        raise NotFound(f"this machine does not see the experiment: {job.experiment}", hint=hint)
    experiment = ExperimentStore(Path(job.experiment), runtime)
    run = _run_cell(runtime, experiment, job)
    attempt = run.state.last_attempt("session_01")
    if _has_result(attempt):
        return msgspec.json.encode(CellResult(score_run(run, job.cell)))
    reason = attempt.stop_reason if attempt else ""
    error = attempt.end.error if attempt and attempt.end else ""
    if reason == "budget_exhausted":
        set_aside(run.path, experiment.path / BEFORE)
    result = CellResult(None, reason or "interrupted", error, run.state.spent_usd)
    return msgspec.json.encode(result)


def _run_cell(runtime: Runtime, experiment: ExperimentStore, job: CellJob) -> RunStore:
    """Start the run of a cell, or continue it; return at once if it has a result."""
    path = experiment.run_path(job.cell)
    environment = service.prepare_run(runtime, lambda *_: None, permit=lambda *_: None)
    if not (path / RUN_CONFIG).is_file():
        config = tasks.build_run_config(
            experiment.path, experiment.config, job.cell[:2], job.budget_usd
        )
        return start_run(path, replace(config, run_name=path.name), environment)
    run = RunStore(path, now=runtime.clock.timestamp, new_id=runtime.new_id)
    attempt = run.state.last_attempt("session_01")
    if _has_result(attempt) and run.state.end is not None:
        return run
    return continue_run(run, environment, again=attempt is not None and not _has_result(attempt))


def _has_result(attempt: SessionAttempt | None) -> bool:
    if attempt is None or attempt.end is None:
        return False
    return attempt.stop_reason not in _NO_RESULT


def score_run(run: RunStore, cell: Cell) -> AttemptScored:
    """Return the scores of a run's only session."""
    reader = RunSession(run, run.planned_sessions()[0], None)
    attempt = reader.attempt
    passed = {verified.name: verified.passed for verified in attempt.verifications}
    scores: dict[str, float | None] = {}
    for verified in attempt.verifications:
        scores |= _read_scores(verified.name, verified.output, passed=verified.passed)
    steps = reader.own_steps()
    session = reader.session
    subagents = session.subagents if session else ()
    turns = (turn for subagent in subagents for turn in subagent.turns)
    every = [*steps, *(step for turn in turns for step in turn.steps)]
    calls = [call for step in every for call in step.tool_calls]
    scores |= {
        "cost_usd": attempt.counts.cost_usd if attempt.counts else None,
        "tokens": float(sum(step.usage.total_tokens for step in every)) if every else None,
        "latency_s": _latency_s(attempt),
        "steps": float(len(every)) if session else None,
        "tool_errors": float(sum(call.is_error for call in calls)) if session else None,
    }
    actions = []
    for action in (action_of_step(step, run.config.work_dir) for step in steps):
        key = hashlib.blake2b(action.key.encode(), digest_size=6).hexdigest()
        actions.append((key, one_line(action.label, _LABEL_CHARS)))
    ended = (run.name, attempt.session_id, attempt.stop_reason)
    error = one_line(attempt.end.error, 300) if attempt.end else ""
    return AttemptScored(*cell, *ended, passed, scores, run.state.spent_usd, tuple(actions), error)


def _read_scores(name: str, output: str, *, passed: bool) -> dict[str, float]:
    """Return the numbers in a verifier's last line, if that is a JSON object, else pass or fail."""
    last = output.strip().rpartition("\n")[2].lstrip()
    try:  # a number without end is infinite: stored as unknown
        found: Any = json.loads(last, parse_int=float) if last.startswith("{") else {}
    except (ValueError, RecursionError):
        found = {}
    numbers = {
        key: value
        for key, value in found.items()
        if isinstance(value, float) and key.isprintable()  # half a character is not
    }
    own = numbers.pop("score", float(passed))
    return {name: own} | {f"{name}.{key}"[:80]: value for key, value in list(numbers.items())[:20]}


def _latency_s(attempt: SessionAttempt) -> float | None:
    """Return how long the agent worked; its verifiers are not counted."""
    if not attempt.finished_at:
        return None
    whole = parse_utc_time(attempt.finished_at) - parse_utc_time(attempt.started_at)
    return round(whole - sum(verified.duration_s for verified in attempt.verifications), 3)


def open_experiment(runtime: Runtime, runs_dir: Path, name: str) -> ExperimentStore:
    """Open an experiment by path, name or unique prefix."""
    if (Path(name) / CONFIG).is_file():
        return ExperimentStore(Path(name).resolve(), runtime)
    matches = [path for path in list_experiments(runs_dir) if path.name.startswith(name)]
    exact = [path for path in matches if path.name == name] or matches
    if len(exact) > 1:
        listed = ", ".join(path.name for path in exact[:5])
        raise Invalid(
            f"several experiments start with {name[:60]!r}", hint=f"use a longer prefix: {listed}"
        )
    if not exact or not name:
        verb = "status" if list_experiments(runs_dir) else "run FILE"
        hint = f"flightlog lab experiment {verb}"
        raise NotFound(f"no such experiment: {name[:60]!r} in {runs_dir}", hint=hint)
    return ExperimentStore(exact[0], runtime)


def list_experiments(runs_dir: Path) -> list[Path]:
    """Return the directories of all experiments below a runs directory."""
    if not runs_dir.is_dir():
        return []
    top = runs_dir.resolve()
    return sorted(
        path for path in top.iterdir() if (path / CONFIG).is_file() and not path.is_symlink()
    )


def experiment_of(tags: "tuple[str, ...] | list[str]", what: str = "experiment") -> str:
    """Return the experiment, `task` or `arm` of a run, by its tags; "" for any other run."""
    return next((tag.partition(":")[2] for tag in tags if tag.startswith(f"{what}:")), "")


def configure_arm(runtime: Runtime, run: RunStore, name: str) -> tuple[str, RunConfig]:
    """Return how to replay an attempt with another arm: what differs, and its configuration."""
    experiment, task, own = (
        experiment_of(run.config.tags, what) for what in ("experiment", "task", "arm")
    )
    if not experiment:
        hint = "leave --arm out, or name a run of an experiment"
        raise Invalid(f"{run.name} is not an attempt of an experiment", hint=hint)
    store = open_experiment(runtime, run.path.parent, experiment)
    target = experiment_target(runtime, store.path)
    if not target.is_trusted:
        raise consent_needed(target, f"this experiment was not started here: {store.name}")
    arms = {arm.name: arm for arm in store.config.arms}
    if name not in arms or own not in arms or task not in {task.id for task in store.config.tasks}:
        raise NotFound(f"{store.name} has no arm {name[:60]!r}", hint=f"arms: {', '.join(arms)}")
    differences = ", ".join(arm_differences([arms[own], arms[name]])) or "nothing"
    config = tasks.build_run_config(store.path, store.config, (task, name), None)
    undo = tasks.undo_overlay(store.path, Path(config.work_dir), (own, name))
    commands = (*undo, *config.pre_run_commands)
    return f"{name}: {differences}", replace(config, pre_run_commands=commands)


def experiment_target(runtime: Runtime, path: Path) -> ConsentTarget:
    """Return what continuing an experiment would run, and whether the person started or allowed it."""
    experiment = ExperimentStore(path, runtime)
    effects: dict[str, Any] = {}
    for arm in experiment.config.arms:
        agent = " ".join(arm.command) if arm.engine == "command" else f"{arm.engine} {arm.model}"
        effects[f"arm {arm.name}"] = f"{agent}, {arm.permission_mode} {arm.base_url}".strip()
    for task in experiment.config.tasks:
        effects |= tasks.describe_task(task)
    if experiment.config.variables:
        effects["variables"] = ", ".join(experiment.config.variables)
    subject = f"experiment {experiment.digest}"
    trusted = bool(open_trust(runtime).consent_for(subject).digest)
    return ConsentTarget("experiment", str(path.resolve()), subject, effects, trusted)
