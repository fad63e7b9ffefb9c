"""Runs and their branches as a tree. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any


def iter_run_tree(metas: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Runs in order, each with its branches below it; a branch whose source is gone stands for itself."""
    names = {meta["run_name"] for meta in metas}
    branches: dict[str, list[dict[str, Any]]] = {}
    for meta in metas:
        source = str(meta.get("replay_source") or "")
        branches.setdefault(source if source in names - {meta["run_name"]} else "", []).append(meta)
    waiting = [(0, meta) for meta in reversed(branches.get("", []))]
    while waiting:
        depth, meta = waiting.pop()
        yield depth, meta
        waiting += [(depth + 1, each) for each in reversed(branches.pop(meta["run_name"], []))]
