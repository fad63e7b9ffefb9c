"""Runs side by side: each session of one with the same session of the others, and replicates together.

Says how each ended, what it took and what it changed, and in which files they agree byte for byte.
Counts only; whether a difference means something is a question for statistics.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import mean, pstdev
from typing import Any

from flightlog.lab.book import RunStore
from flightlog.lab.layout import run_meta
from flightlog.lab.reading import RunSession, trees_of
from flightlog.lab.replaying.aligned import align_steps
from flightlog.model.session import Step

PAIR = 2
_NUMBERS = ("step_count", "num_turns", "tool_call_count", "total_cost_usd", "file_writes", "subagent_count")


def compare_runs(books: Sequence[RunStore], programs: str) -> dict[str, Any]:
    """Compare runs, session index by session index."""
    metas = [run_meta(book.name, book.config, book.state) for book in books]
    last = max(len(book.config.sessions) for book in books)
    return {
        "runs": [
            {key: meta[key] for key in ("run_name", "model", "session_mode", "stop_reason", "total_cost_usd", "tags")}
            for meta in metas
        ],
        "config": _differing_settings(books),
        "sessions": [_compare_session(books, metas, index, programs) for index in range(1, last + 1)],
        "side_by_side": _side_by_side(books, programs) if len(books) == PAIR else None,
    }


def _side_by_side(books: Sequence[RunStore], programs: str) -> dict[str, Any] | None:
    """The first sessions of two runs, step by step; a branch beside its source begins at the turn it goes back to."""
    left, right = books
    branch = right.state.branch or left.state.branch
    turns: list[Sequence[Step]] = []
    first = 1
    for book, other in ((left, right), (right, left)):
        origin = other.state.branch
        is_source = origin is not None and origin.source_run == book.name and book.state.branch is None
        index = origin.source_dir if origin is not None and is_source else book.planned_sessions()[0].name
        planned = next((each for each in book.planned_sessions() if each.name == index), None)
        if planned is None or book.state.last_attempt(planned.name) is None:
            return None
        steps = RunSession(book, planned, trees_of(book, programs)).own_steps()
        if origin is not None and is_source:
            first = origin.turn
            steps = steps[first - 1 :]
        turns.append(steps)
    first = branch.turn if branch is not None and first == 1 else first
    return align_steps(*turns, first=first)


def _differing_settings(books: Sequence[RunStore]) -> dict[str, list[Any]]:
    """The settings in which the runs differ."""
    names = [name for name in books[0].config.__struct_fields__ if name not in {"run_name", "sessions", "work_dir"}]
    values = {name: [getattr(book.config, name) for book in books] for name in names}
    return {name: said for name, said in values.items() if any(each != said[0] for each in said)}


def _compare_session(
    books: Sequence[RunStore], metas: Sequence[dict[str, Any]], index: int, programs: str
) -> dict[str, Any]:
    groups = []
    final: list[dict[str, str]] = []
    for book, meta in zip(books, metas, strict=True):
        rows = [each for each in meta["sessions"] if each["session_index"] == index]
        files = [_changed_files(book, each["session_dir"], programs) for each in rows]
        final += [each for each in files if each is not None]
        groups.append(_summarize_replicates(book.name, rows))
    paths = sorted({path for each in final for path in each})
    same = [path for path in paths if len({each.get(path) for each in final}) == 1]
    return {
        "session_index": index,
        "groups": groups,
        "files_changed": paths,
        "files_equal": same,
        "files_different": [path for path in paths if path not in same],
    }


def _summarize_replicates(run: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {"run": run, "count": len(rows)}
    said = [one for each in rows for one in each["verifiers"]]
    names = dict.fromkeys(one["name"] for one in said)
    told["verifiers"] = {
        name: {"passed": sum(one["passed"] for one in said if one["name"] == name), "of": len(rows)} for name in names
    }
    told["stop_reasons"] = dict(Counter(each["stop_reason"] for each in rows))
    for name in _NUMBERS:
        values = [each[name] for each in rows if each["finished_at"] and each[name] is not None]
        told[name] = {"mean": mean(values), "sd": pstdev(values), "n": len(values)} if values else None
    return told


def _changed_files(book: RunStore, session: str, programs: str) -> dict[str, str] | None:
    """What a session changed, by path and the name of what stands there then; None where it did not end."""
    last, trees = book.state.last_attempt(session), trees_of(book, programs)
    if last is None or last.ended is None or trees is None:
        return None
    return {each.path: each.id for each in trees.diff_snapshots(last.tree or None, last.ended.tree)}
