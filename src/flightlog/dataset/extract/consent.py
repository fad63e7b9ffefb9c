"""Apply consent to rows: no words without it, nothing private with it.

The order matters: withhold, redact whole, then cut. A secret cut in half before the search would
not be recognized.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from flightlog.dataset.extract.turns import INPUT_CHARS, OUTPUT_CHARS, RESULT_CHARS
from flightlog.dataset.rows import WITHHELD, AnyRow, Row, SessionRow, to_dict
from flightlog.dataset.state import SearchProgress
from flightlog.model.output_files import Redacted
from flightlog.model.session import TITLE_WIDTH, SessionFile
from flightlog.model.text import shorten_text
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import count_each
from flightlog.store.recordings.reader import raw_lines

WORDS = ("input", "output", "summary", "message", "result_summary", "feedback_comment")
_LIMITS = {
    "input": INPUT_CHARS,
    "output": OUTPUT_CHARS,
    "message": INPUT_CHARS,
    "summary": RESULT_CHARS,
    "target": RESULT_CHARS,
    "result_summary": RESULT_CHARS,
    "feedback_comment": RESULT_CHARS,
}
_BATCH_LINES = 500  # about 1 MB of a usual transcript, which the redactor searches in one pass


def search_values(
    files: Iterable[SessionFile], known: Mapping[str, SearchProgress], redactor: JsonRedactor
) -> dict[str, SearchProgress]:
    """Teach the redactor the private values in all files of a session.

    Return the progress of the search. Only new lines are searched, and again those in which a value
    was recognized before.
    """
    searched = {}
    for file in files:
        before = known.get(file.path, SearchProgress())
        before = before if before.end <= file.size else SearchProgress()
        redactor.collect_values(
            line for offset in before.offsets for line in islice(raw_lines(file.path, offset), 1)
        )
        end, offsets = before.end, list(before.offsets)
        lines = raw_lines(file.path, before.end)
        while batch := list(islice(lines, _BATCH_LINES)):
            growth = redactor.redactor.known.growth
            redactor.collect_values(batch)
            has_new = redactor.redactor.known.growth > growth
            for line in batch:
                offsets += [end] if has_new and redactor.redactor.known.is_in(line) else []
                # An incomplete last line is searched now, and again when it is complete.
                end += len(line) if line.endswith(b"\n") else 0
        searched[file.path] = SearchProgress(end, offsets)
    return searched


def permitted_rows(
    rows: Iterable[AnyRow | Row], redactor: JsonRedactor, *, words: bool
) -> list[Redacted[Row]]:
    """Return the rows as they may be written, each with the number of redactions."""
    originals = [
        (row if isinstance(row, dict) else to_dict(row), _text_limits(row)) for row in rows
    ]
    whole = [
        _drop_counts(row, limits) if words else withhold_words(row) for row, limits in originals
    ]
    redacted = count_each(whole, redactor.redact_value(whole))
    return [
        _shorten_texts(row, *original) for row, original in zip(redacted, originals, strict=True)
    ]


def values_of(rows: Iterable[Redacted[Row]]) -> list[Row]:
    """Return the rows without the number of redactions."""
    return [row.value for row in rows]


def withhold_words(row: Row) -> Row:
    """Return a row without its words; the number of characters stays."""
    withheld = dict(row)
    for name in WORDS:
        if withheld.get(name):
            withheld.setdefault(f"{name}_chars", len(str(withheld[name])))
        if name in withheld:
            withheld[name] = None
    if withheld.get("target_chars"):
        withheld["target"] = None
    if any(name in withheld for name in ("input", "output", "summary", "message")):
        withheld["words"] = WITHHELD
    withheld.pop("result_summary", None)
    withheld.pop("result_summary_chars", None)
    return withheld


def _text_limits(row: AnyRow | Row) -> dict[str, int]:
    """Return the longest length of each text; the summary of our own session row is its title."""
    return _LIMITS | {"summary": TITLE_WIDTH} if isinstance(row, SessionRow) else _LIMITS


def _drop_counts(row: Row, limits: Mapping[str, int]) -> Row:
    """Return a row without the lengths of its texts, except of those that will be cut."""
    others = {name: value for name, value in row.items() if name != "target_chars"}
    for name in WORDS:
        is_kept_whole = others.get(f"{name}_chars", 0) <= limits.get(name, 0)
        if isinstance(others.get(name), str) and is_kept_whole:
            others.pop(f"{name}_chars", None)
    return others


def _shorten_texts(
    redacted: Redacted[Row], before: Row, limits: Mapping[str, int]
) -> Redacted[Row]:
    # The kind is our own word; a redactor that mistakes it for private must not break the row.
    shortened = {**redacted.value, "kind": before["kind"]}
    for name, limit in limits.items():
        text = shortened.get(name)
        if isinstance(text, str):
            shortened[name] = shorten_text(redacted.map(lambda _, text=text: text), limit).value  # type: ignore[misc]
    return redacted.map(lambda _: shortened)
