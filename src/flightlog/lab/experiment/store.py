"""An experiment's directory: its frozen configuration, its journal of results, its state.

Its files: `docs/reference/experiment-file.md`. Each attempt is a run of its own, beside it.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.lab.experiment.config import Cell, ExperimentConfig
from flightlog.lab.experiment.tasks import ARMS, FILES, TASKS, freeze_files
from flightlog.model.errors import Conflict, Damage, Invalid, NotFound
from flightlog.model.runtime import Runtime
from flightlog.privacy.tiers import layout_of, render_gitignore
from flightlog.privacy.trust import open_trust
from flightlog.store import files
from flightlog.store.directories import create_dir, remove_tree
from flightlog.store.journal import Journal, JournalRecord
from flightlog.store.locks import find_holder

CONFIG = "experiment.json"
SOURCE = "experiment.yaml"
JOURNAL = ".results.jsonl"
LOCK = ".lock"


class AttemptScored(Struct, frozen=True, tag_field="kind", tag="attempt_scored"):
    """One finished attempt: its run, its session and its scores.

    `actions` are its steps as pairs of a fingerprint and a label, to see where attempts diverge.
    """

    task: str
    arm: str
    attempt: int
    run: str
    session: str
    stop_reason: str
    passed: dict[str, bool]
    scores: dict[str, float | None]
    spent_usd: float = 0.0
    actions: tuple[tuple[str, str], ...] = ()
    error: str = ""


class AttemptsAdded(Struct, frozen=True, tag_field="kind", tag="attempts_added"):
    """More attempts at every task with every arm were requested, or a larger budget was allowed."""

    count: int = 0
    max_budget_usd: float | None = None


class AttemptStopped(Struct, frozen=True, tag_field="kind", tag="attempt_stopped"):
    """An attempt ran out of its share of the budget; it is no result, but it was paid."""

    run: str
    spent_usd: float


ExperimentEvent = AttemptScored | AttemptsAdded | AttemptStopped


class FrozenExperiment(Struct, frozen=True):
    """The content of `experiment.json`; the id makes its digest unique to this experiment."""

    id: str
    config: ExperimentConfig


class ExperimentStatus(Struct, frozen=True):
    """How far an experiment is."""

    name: str
    done: int
    planned: int
    cost_usd: float | None
    max_budget_usd: float | None
    is_running: bool
    unpriced: int = 0


def describe_cost(usd: float | None, unpriced: int) -> str:
    """Return a cost: at least that, or unknown, if attempts have no known cost."""
    if usd is None:
        return "unknown cost"
    return f"{'at least ' if unpriced else ''}${usd:.4f}"


class ExperimentStore:
    """An experiment's directory with its journal and the results folded from it."""

    def __init__(self, path: Path, runtime: Runtime) -> None:
        """Open the experiment at `path`."""
        self.path = path
        try:
            data = (path / CONFIG).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            hint = "flightlog lab experiment run FILE"
            raise NotFound(f"no such experiment: {path}", hint=hint) from None
        self.id, self.config = _decode_config(data, path)
        self.digest = hashlib.sha256(data).hexdigest()
        now, new_id = runtime.clock.timestamp, runtime.new_id
        self._journal: Journal[ExperimentEvent] = Journal(
            path / JOURNAL, ExperimentEvent, now=now, new_id=new_id
        )
        self.results: dict[Cell, AttemptScored] = {}
        self.damage: list[Damage] = []
        self._stopped_usd = 0.0
        self._fold_journal()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def spent_usd(self) -> float:
        """The cost of every attempt on record, stopped ones included."""
        return self._stopped_usd + sum(result.spent_usd for result in self.results.values())

    @property
    def status(self) -> ExperimentStatus:
        unpriced = sum(row.scores.get("cost_usd") is None for row in self.results.values())
        spent = None if unpriced and not self.spent_usd else round(self.spent_usd, 9)
        counts = (len(self.results), len(self.config.cells()), spent, self.config.max_budget_usd)
        is_running = find_holder(self.path / LOCK) is not None
        return ExperimentStatus(self.name, *counts, is_running, unpriced)

    @property
    def has_begun(self) -> bool:
        """Whether an event or a run is on record, or another process is at work on it."""
        if self._journal.path.exists() or self.status.is_running:
            return True
        return any(self.run_path(cell).exists() for cell in self.config.cells())

    def run_path(self, cell: Cell) -> Path:
        return self.path.with_name(f"{self.name}.{cell.task}.{cell.arm}.{cell.attempt:02d}")

    def append(self, event: ExperimentEvent) -> None:
        """Write an event and apply it; a result that is already on record is not replaced."""
        self._journal.append(event, durable=True)
        self._add_event(event)

    def _fold_journal(self) -> None:
        for record in self._journal.read_records() if self._journal.path.exists() else ():
            if isinstance(record, JournalRecord):
                self._add_event(record.event)
            elif isinstance(record, Damage):
                self.damage.append(record)

    def _add_event(self, event: ExperimentEvent) -> None:
        match event:
            case AttemptScored():
                self.results.setdefault(Cell(event.task, event.arm, event.attempt), event)
            case AttemptStopped():
                self._stopped_usd += event.spent_usd
            case AttemptsAdded():
                changed: dict[str, Any] = {"attempts": self.config.attempts + event.count}
                if event.max_budget_usd is not None:
                    changed["max_budget_usd"] = event.max_budget_usd
                self.config = replace(self.config, **changed)


def create_experiment(
    runtime: Runtime, path: Path, config: ExperimentConfig, text: str
) -> ExperimentStore:
    """Create the experiment's directory with copies of all it needs.

    One of which no attempt has begun, as after a failed setup, is replaced; raise Conflict for others.
    """
    if not create_dir(path) and (path / CONFIG).exists():
        if ExperimentStore(path, runtime).has_begun:
            hint = f"continue it: flightlog lab experiment resume {path.name}"
            raise Conflict(f"an experiment of this name exists: {path}", hint=hint)
        for name in (TASKS, FILES, ARMS):
            remove_tree(path / name)
    if (path / "config.yaml").exists():
        raise Conflict(
            f"a run of this name exists: {path}", hint="give the experiment another `name`"
        )
    ignored = render_gitignore(layout_of("lab"), root="").encode()
    files.create_file(path.parent / ".gitignore", ignored)
    files.replace_file(path / SOURCE, text.encode())
    frozen = FrozenExperiment(runtime.new_id(), freeze_files(path, config))
    data = msgspec.json.format(msgspec.json.encode(frozen))
    digest = hashlib.sha256(data).hexdigest()
    open_trust(runtime).grant(f"experiment {digest}", {})
    files.replace_file(path / CONFIG, data)
    return ExperimentStore(path, runtime)


def _decode_config(data: bytes, path: Path) -> tuple[str, ExperimentConfig]:
    decode: Callable[[bytes], FrozenExperiment] = msgspec.json.Decoder(FrozenExperiment).decode
    try:
        frozen = decode(data)
    except msgspec.DecodeError as error:
        hint = "run it again under another name"
        raise Invalid(f"the experiment cannot be read: {path}: {error}", hint=hint) from error
    return frozen.id, frozen.config
