"""What of a project's sessions grows old, and the quarterly page that tells of it before anything goes.

Sessions move to the archive after six months; raw logs are deleted after a year. The report, the
metadata and the summaries stay.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from flightlog.loop.look.analysis import analyze_session
from flightlog.loop.look.session import iter_events, open_loop_session
from flightlog.loop.run.where import ARCHIVE, JOURNAL, iter_session_dirs
from flightlog.model.retention import RetentionAction, RetentionItem, RetentionMove, RetentionPolicy, RetentionRule
from flightlog.model.text import one_line

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
