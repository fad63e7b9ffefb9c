"""Retention of loop sessions.

Sessions move to the archive after six months; raw logs are deleted after a year. The report, the
metadata and the summaries stay. Each quarter that is over gets its summary.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec import Struct

from flightlog.loop.analysis import analyze_session
from flightlog.loop.directories import (
    ARCHIVE,
    JOURNAL,
    iter_events,
    iter_session_dirs,
    open_loop_session,
)
from flightlog.loop.service import loops_dir
from flightlog.model.output_files import OutputFile, Tier
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
from flightlog.model.text import one_line, pluralize
from flightlog.store.directories import carry_out_moves
from flightlog.store.files import contained_in_project
from flightlog.store.output_files import write_output_files

ARCHIVE_AFTER_DAYS = 182
DELETE_AFTER_DAYS = 365
SUMMARY = "summaries/{year}-Q{quarter}.md"
RAW = tuple(
    "journal.jsonl execution-log.json decision-history.json checkpoint.json reports diffs "
    "tree.git".split()
)
KEPT = ("README.md", "templates", "summaries")
POLICY = RetentionPolicy(
    feature="loop",
    rules=(
        RetentionRule("session", ARCHIVE_AFTER_DAYS, RetentionAction.ARCHIVE, SUMMARY),
        RetentionRule("raw log", DELETE_AFTER_DAYS, RetentionAction.DELETE, SUMMARY),
    ),
    excluded_names=KEPT,
    archive=ARCHIVE,
)
_HEAD = "| session | status | tasks completed | duration (s) | errors | model calls | cost (USD) | report |"


def list_retention_items(root: Path) -> list[RetentionItem]:
    """Return every session and raw log with the time of its last event, running sessions aside."""
    items = []
    for path in iter_session_dirs(root):
        session = open_loop_session(path) if (path / JOURNAL).is_file() else None
        if session is None or session.runner:
            continue
        at_ms, name = int(session.state.last_at * 1000), str(path.relative_to(root))
        items.append(RetentionItem(name, "session", at_ms))
        raw = [raw for raw in RAW if name.startswith(f"{ARCHIVE}/") and (path / raw).exists()]
        items += [RetentionItem(f"{name}/{file}", "raw log", at_ms) for file in raw]
    return items


def summarize_quarter(
    root: Path, name: str, moves: Sequence[RetentionMove], before: bytes | None
) -> bytes:
    """Return the summary of a quarter with the sessions that are moved; existing rows stay."""
    names = [f"{move.item.name}/" for move in moves]
    starts = ((path, f"{path.relative_to(root)}/") for path in iter_session_dirs(root))
    paths = [path for path, start in starts if any(name.startswith(start) for name in names)]
    return _summary_page(name, paths, before)


def write_summaries(root: Path, now_ms: int) -> list[str]:
    """Write a summary of each quarter that is over and has sessions; return the files' names."""
    quarters: dict[str, list[Path]] = {}
    current = _quarter_file(now_ms / 1000)
    for path in iter_session_dirs(root):
        if (path / JOURNAL).is_file():
            name = _quarter_file(open_loop_session(path).state.last_at)
            quarters.setdefault(name, []).append(path)
    files = []
    for name, paths in quarters.items():
        old = (root / name).read_bytes() if (root / name).is_file() else None
        if name != current:
            body = _summary_page(name, paths, old).decode("utf-8", "replace")
            files.append(OutputFile(name, Tier.PRIVATE, body))
    return [str(path.relative_to(root)) for path in write_output_files(root, files)]


def _quarter_file(at: float) -> str:
    date = datetime.fromtimestamp(at, tz=UTC)
    return SUMMARY.format(year=date.year, quarter=(date.month + 2) // 3)


def _summary_page(name: str, paths: Sequence[Path], before: bytes | None) -> bytes:
    lines = before.decode("utf-8", "replace").splitlines() if before else []
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| session-")}
    for path in paths:
        if path.name not in rows and (path / JOURNAL).is_file():
            rows[path.name] = _summary_row(path)
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.values()]
    done, total = (sum(int(row[2].split(" of ")[at]) for row in cells) for at in (0, 1))
    known = [float(row[6]) for row in cells if row[6] != "not known"]
    least = "at least " if len(known) < len(cells) else ""
    completed = sum(row[1] == "completed" for row in cells)
    sums = [
        f"{pluralize(len(cells), 'session')}, {completed} completed; {done} of {total} tasks;",
        f"{sum(float(row[3]) for row in cells) / 3600:.1f} hours of work;",
        f"{pluralize(sum(int(row[4]) for row in cells), 'error')}; {least}{sum(known):.4f} USD.",
    ]
    title = f"# Loop sessions, {Path(name).stem.replace('-', ' ')}"
    table = [_HEAD, "|" + "---|" * 8, *(rows[session] for session in sorted(rows))]
    return ("\n".join([title, "", " ".join(sums), "", *table]) + "\n").encode()


def _summary_row(path: Path) -> str:
    analysis = analyze_session(iter_events(path))
    figures = analysis.performance
    done = sum(task.status == "completed" for task in analysis.tasks)
    tasks, duration = f"{done} of {len(analysis.tasks)}", f"{figures['total_duration_seconds']:.0f}"
    cost = "not known" if figures["cost_usd"] is None else f"{figures['cost_usd']:.4f}"
    counts = (str(figures["error_count"]), str(figures["model_calls"]))
    cells = (path.name, analysis.status, tasks, duration, *counts, cost, "final-report.md")
    return "| " + " | ".join(one_line(cell.replace("|", "/"), 80) for cell in cells) + " |"


class RetentionReport(Struct, frozen=True):
    """Planned moves, moves that need `--yes`, and the outcome, if they were carried out."""

    planned_actions: tuple[RetentionMove, ...]
    unconfirmed_actions: tuple[RetentionMove, ...]
    outcome: RetentionResult | None = None
    summaries: tuple[str, ...] = ()

    def render_lines(self) -> list[str]:
        """Render the report as text."""
        done = {move.item.name for move in self.outcome.completed} if self.outcome else set()
        rows = [
            ("planned" if not self.outcome else "done" if move.item.name in done else "left", move)
            for move in self.planned_actions
        ]
        rows += [("waits for --yes", move) for move in self.unconfirmed_actions]
        lines = [
            f"{word}\t{move.action.value}\t{move.item.name}\t{pluralize(move.age_days, 'day')}"
            for word, move in rows
        ]
        lines = lines or ["nothing is old enough"]
        return [*lines, *(f"summarized\t{name}" for name in self.summaries)]


def plan_loop_retention(runtime: Runtime, *, delete: bool) -> RetentionReport:
    """Return the moves that are due; deletions are ready only with `delete`."""
    root = contained_in_project(runtime, loops_dir(runtime))
    moves = plan_retention(POLICY, list_retention_items(root), runtime.clock.now_ms())
    ready = tuple(move for move in moves if delete or move.action is not RetentionAction.DELETE)
    return RetentionReport(ready, tuple(move for move in moves if move not in ready))


def apply_retention(runtime: Runtime, *, delete: bool) -> RetentionReport:
    """Archive old sessions and, with `delete`, delete raw logs that are older still."""
    plan = plan_loop_retention(runtime, delete=delete)
    root = loops_dir(runtime)
    written = write_summaries(root, runtime.clock.now_ms())  # while the raw logs are there
    outcome = carry_out_moves(root, plan.planned_actions, partial(summarize_quarter, root))
    return RetentionReport(plan.planned_actions, plan.unconfirmed_actions, outcome, tuple(written))
