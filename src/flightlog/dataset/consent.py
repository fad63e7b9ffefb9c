"""What may be written of a row: no words without consent, nothing private with it.

The order matters: withhold, redact whole, then cut. A secret that is cut in half before it is looked
for is a secret that is written.
"""

from collections.abc import Iterable

from flightlog.dataset.rows import WITHHELD, AnyRow, Row, plain
from flightlog.dataset.telling import INPUT_CHARS, OUTPUT_CHARS, RESULT_CHARS
from flightlog.privacy.records import Records

WORDS = ("input", "output", "summary", "message", "result_summary", "feedback_comment")
_LIMITS = {
    "input": INPUT_CHARS,
    "output": OUTPUT_CHARS,
    "message": INPUT_CHARS,
    "summary": RESULT_CHARS,
    "target": RESULT_CHARS,
    "result_summary": RESULT_CHARS,
}
CUT = "…"


def permitted(rows: Iterable[AnyRow | Row], records: Records, *, words: bool) -> list[Row]:
    """Return rows as they may be written."""
    told = [_uncounted(row) if words else withheld(row) for row in map(_plain, rows)]
    # All of them in one go: a look costs the same for one row as for a hundred.
    clean = records.value(told)
    # Names of kinds are ours; a redactor that took one for something else must not break the row.
    return [_cut({**after, "kind": before["kind"]}) for before, after in zip(told, clean, strict=True)]


def withheld(row: Row) -> Row:
    """Return a row without its words; how many there were stays."""
    made = dict(row)
    for name in WORDS:
        if made.get(name):
            made.setdefault(f"{name}_chars", len(str(made[name])))
        if name in made:
            made[name] = None
    if made.get("target_chars"):
        made["target"] = None
    if any(name in made for name in ("input", "output", "summary", "message")):
        made["words"] = WITHHELD
    made.pop("result_summary", None)
    made.pop("result_summary_chars", None)
    return made


def _uncounted(row: Row) -> Row:
    """Return a row without the counts of words that stand in it; a text that was cut keeps its count."""
    made = {name: value for name, value in row.items() if name != "target_chars"}
    for name in WORDS:
        if isinstance(made.get(name), str) and made.get(f"{name}_chars", 0) <= _LIMITS.get(name, 0):
            made.pop(f"{name}_chars", None)
    return made


def _plain(row: AnyRow | Row) -> Row:
    return row if isinstance(row, dict) else plain(row)


def _cut(row: Row) -> Row:
    made = dict(row)
    for name, limit in _LIMITS.items():
        value = made.get(name)
        if isinstance(value, str) and len(value) > limit:
            made[name] = value[: limit - 1] + CUT
    return made
