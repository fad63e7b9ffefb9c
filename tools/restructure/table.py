"""Read the rename tables."""

import csv
from dataclasses import dataclass
from pathlib import Path

_KINDS = {"class", "function", "method"}


@dataclass(frozen=True)
class Row:
    """One wanted rename: the old qualified name and the new last component."""

    kind: str
    old: str
    new: str
    origin: str


def read_tables(paths: list[Path]) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return the rows to apply, and (row, reason) for those no tool can apply."""
    rows: dict[str, Row] = {}
    skipped: list[tuple[str, str]] = []
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
                if len(row) < 3 or row[0] == "kind":
                    continue
                kind, old, new = (cell.strip() for cell in row[:3])
                last, origin = new.rpartition(".")[2], f"{path.name}:{number}"
                reason = _refusal(kind, old, new, last)
                if not reason and old in rows and rows[old].new != last:
                    reason = f"a second name; {rows[old].origin} says {rows[old].new}"
                if reason:
                    skipped.append((f"{kind} {old} -> {new}", reason))
                elif old not in rows:
                    rows[old] = Row(kind, old, last, origin)
    return list(rows.values()), skipped


def _refusal(kind: str, old: str, new: str, last: str) -> str:
    if kind == "rule":
        return "a rule; concrete rows carry it out"
    if kind not in _KINDS:
        return f"unknown kind {kind}"
    if new.startswith("(deleted"):
        return "deleted by hand"
    if not last.isidentifier():
        return "the new name is not an identifier"
    if last == old.rpartition(".")[2]:
        return "the name stays"
    return ""
