"""What may be written of a row: no words without consent, nothing private with it.

The order matters: withhold, redact whole, then cut. A secret that is cut in half before it is looked
for is a secret that is written.
"""

from collections.abc import Iterable, Mapping

from flightlog.dataset.extract.turns import INPUT_CHARS, OUTPUT_CHARS, RESULT_CHARS
from flightlog.dataset.rows import WITHHELD, AnyRow, Row, SessionRow, to_dict
from flightlog.model.output_files import Redacted
from flightlog.model.session import TITLE_WIDTH
from flightlog.model.text import shorten_text
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import count_each

WORDS = ("input", "output", "summary", "message", "result_summary", "feedback_comment")
_LIMITS = {
    "input": INPUT_CHARS,
    "output": OUTPUT_CHARS,
    "message": INPUT_CHARS,
    "summary": RESULT_CHARS,
    "target": RESULT_CHARS,
    "result_summary": RESULT_CHARS,
}


def permitted_rows(rows: Iterable[AnyRow | Row], records: JsonRedactor, *, words: bool) -> list[Redacted[Row]]:
    """Return rows as they may be written, each with how much was removed from it."""
    given = [(row if isinstance(row, dict) else to_dict(row), _text_limits(row)) for row in rows]
    whole = [_drop_counts(row, limits) if words else withhold_words(row) for row, limits in given]
    redacted = count_each(whole, records.redact_value(whole))
    return [_shorten_texts(row, *about) for row, about in zip(redacted, given, strict=True)]


def values_of(rows: Iterable[Redacted[Row]]) -> list[Row]:
    """Return the rows without how much was removed from them."""
    return [row.value for row in rows]


def withhold_words(row: Row) -> Row:
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


def _text_limits(row: AnyRow | Row) -> dict[str, int]:
    """Return how long each text of a row may be; the summary of a session of ours is its title."""
    return _LIMITS | {"summary": TITLE_WIDTH} if isinstance(row, SessionRow) else _LIMITS


def _drop_counts(row: Row, limits: Mapping[str, int]) -> Row:
    """Return a row without the counts of its words; a text that will be cut keeps its count."""
    made = {name: value for name, value in row.items() if name != "target_chars"}
    for name in WORDS:
        if isinstance(made.get(name), str) and made.get(f"{name}_chars", 0) <= limits.get(name, 0):
            made.pop(f"{name}_chars", None)
    return made


def _shorten_texts(redacted: Redacted[Row], before: Row, limits: Mapping[str, int]) -> Redacted[Row]:
    """Return a redacted row with its long texts cut."""
    # Names of kinds are ours; a redactor that took one for something else must not break the row.
    made = {**redacted.value, "kind": before["kind"]}
    for name, limit in limits.items():
        text = made.get(name)
        if isinstance(text, str):
            made[name] = shorten_text(redacted.map(lambda _, text=text: text), limit).value  # type: ignore[misc]
    return redacted.map(lambda _: made)
