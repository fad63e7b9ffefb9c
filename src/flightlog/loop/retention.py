"""Retention.

Sessions move to the archive after six months; raw logs are deleted after a year. The report, the
metadata and the summaries stay.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.loop.analysis import analyze_session
from flightlog.loop.directories import ARCHIVE, JOURNAL, iter_events, iter_session_dirs, open_loop_session
from flightlog.loop.service import loops_dir
from flightlog.model.retention import (
    RetentionAction,
    RetentionItem,
    RetentionMove,
    RetentionPolicy,
    RetentionResult,
    RetentionRule,
    plan_retention,
)
from flightlog.model.runtime import Runtime
from flightlog.model.text import one_line
from flightlog.store.directories import carry_out_moves
from flightlog.store.files import contained_in_project

ARCHIVE_AFTER_DAYS = 182
DELETE_AFTER_DAYS = 365
SUMMARY = "summaries/{year}-Q{quarter}.md"
RAW = (
    "journal.jsonl",
    "execution-log.json",
    "decision-history.json",
    "checkpoint.json",
    "reports",
    "diffs",
    "tree.git",
)
KEPT = ("README.md", "templates", "summaries")
POLICY = RetentionPolicy(
    room="loop",
    rules=(
        RetentionRule("session", ARCHIVE_AFTER_DAYS, RetentionAction.ARCHIVE, SUMMARY),
        RetentionRule("raw log", DELETE_AFTER_DAYS, RetentionAction.DELETE, SUMMARY),
    ),
    untouched=KEPT,
    archive=ARCHIVE,
)
_HEAD = "| session | status | tasks completed | duration (s) | errors | model calls | cost (USD) | report |"


def list_retention_items(root: Path) -> list[RetentionItem]:
    """Every session and raw log, with the time of its last event; a session somebody is at work on is left alone."""
    found = []
    for path in iter_session_dirs(root):
        if not (path / JOURNAL).is_file():
            continue
        seen = open_loop_session(path)
        if seen.runner:
            continue
        at_ms, name = int(seen.state.last_at * 1000), str(path.relative_to(root))
        found.append(RetentionItem(name, "session", at_ms))
        raw = [path / each for each in RAW if (path / each).exists()] if name.startswith(f"{ARCHIVE}/") else []
        found += [RetentionItem(str(each.relative_to(root)), "raw log", at_ms) for each in raw]
    return found


def summarize_quarter(root: Path, name: str, moves: Sequence[RetentionMove], before: bytes | None) -> bytes:
    """The quarter's page: a row for each session; a row that is there stays as it is."""
    lines = before.decode("utf-8", "replace").splitlines() if before else []
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| session-")}
    for path in _sessions_of(root, moves):
        if path.name not in rows and (path / JOURNAL).is_file():
            rows[path.name] = _summary_row(path)
    title = f"# Loop sessions, {Path(name).stem.replace('-', ' ')}"
    table = [_HEAD, "|" + "---|" * 8, *(rows[each] for each in sorted(rows))]
    return ("\n".join([title, "", *table]) + "\n").encode()


def _sessions_of(root: Path, moves: Iterable[RetentionMove]) -> list[Path]:
    names = {move.item.name for move in moves}
    return [
        path
        for path in iter_session_dirs(root)
        if any(_is_part_of(str(path.relative_to(root)), name) for name in names)
    ]


def _is_part_of(session: str, name: str) -> bool:
    return name == session or name.startswith(f"{session}/")


def _summary_row(path: Path) -> str:
    told = analyze_session(iter_events(path))
    figures = told.performance
    done = sum(task.status == "completed" for task in told.tasks)
    cost = "not known" if figures["cost_usd"] is None else f"{figures['cost_usd']:.4f}"
    cells = (path.name, told.status, f"{done} of {len(told.tasks)}", f"{figures['total_duration_seconds']:.0f}",
             str(figures["error_count"]), str(figures["model_calls"]), cost, "final-report.md")  # fmt: skip
    return "| " + " | ".join(one_line(cell.replace("|", "/"), 80) for cell in cells) + " |"


class RetentionReport(Struct, frozen=True):
    """What is planned, what was done, and what waits for `--yes`."""

    planned: tuple[RetentionMove, ...]
    waiting: tuple[RetentionMove, ...]
    outcome: RetentionResult | None = None

    def render_lines(self) -> list[str]:
        """The same as text."""
        done = {move.item.name for move in self.outcome.done} if self.outcome else set()
        word = "planned" if self.outcome is None else "done"
        shown = [
            f"{word if self.outcome is None or move.item.name in done else 'left'}\t{move.deed.value}\t"
            f"{move.item.name}\t{move.age_days} days"
            for move in self.planned
        ]
        shown += [
            f"waits for --yes\t{move.deed.value}\t{move.item.name}\t{move.age_days} days" for move in self.waiting
        ]
        return shown or ["nothing is old enough"]


def apply_retention(runtime: Runtime, *, dry_run: bool, delete: bool) -> RetentionReport:
    """Archive what is old; delete raw logs that are older, if `delete` says so."""
    top = contained_in_project(runtime, loops_dir(runtime))
    moves = plan_retention(POLICY, list_retention_items(top), runtime.clock.now_ms())
    ready = tuple(move for move in moves if delete or move.deed is not RetentionAction.DELETE)
    waiting = tuple(move for move in moves if move not in ready)
    if dry_run:
        return RetentionReport(ready, waiting)
    return RetentionReport(
        ready,
        waiting,
        carry_out_moves(top, ready, lambda name, told, before: summarize_quarter(top, name, told, before)),
    )
