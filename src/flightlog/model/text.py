"""Inert terminal text, plurals, time formatting and parsing.

Whole escape sequences are removed, other control characters become visible pictures, and
characters that reorder text are shown by number. Newlines and tabs stay, and so does all other
text: an unterminated sequence must not hide what follows it.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Literal

from flightlog.model.errors import Invalid

if TYPE_CHECKING:
    from flightlog.model.output_files import Redacted


# The one-byte C1 forms of ESC are shown, not removed: in wrongly decoded text they are accents.
_SEQUENCES = r"""
      \x1b\[[0-?]*[ -/]*[@-~]                       # CSI
    | \x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\)  # OSC, DCS, SOS, PM, APC
    | \x1b[ -/]*[0-OQ-WYZ\\`-~]                     # the rest
    """
UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
# What a redactor writes instead of a private value: kind, rule and the start of a keyed digest.
# Both lengths are bounded, so that a search never runs far past a `<secret:` without an end.
REDACTION_TAG = re.compile(r"<(secret|person):([a-z0-9.-]{1,80}):[0-9a-f]{4,64}>")
_UNITS = (
    (365 * 86_400, "year"),
    (30 * 86_400, "month"),
    (86_400, "day"),
    (3_600, "hour"),
    (60, "minute"),
)
TIME_MS_MAX = 1 << 53  # after any time; still exact in JSON readers
_TAG_CHARS_MAX = 80  # the longest rule name has 40 characters


def format_utc_ms(at_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, always with milliseconds, as journals write it."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def format_utc_time(at: float | None) -> str | None:
    """Return a time as ISO 8601, with milliseconds unless they are zero."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z").replace(".000Z", "Z")


def parse_utc_time(text: str) -> float:
    """Return the time that `format_utc_time` wrote, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def parse_since(text: str, now_ms: int, zone: tzinfo) -> int:
    """Parse a point in time: a date, a date and time, or an age such as 7d."""
    match = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if match:
        units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
        return now_ms - int(timedelta(**{units[match[2]]: int(match[1])}).total_seconds() * 1000)
    try:
        time = datetime.fromisoformat(text.strip())
        return int((time if time.tzinfo else time.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        hint = "write 2026-11-01, 2026-11-01T13:00, 7d or 12h"
        raise Invalid(f'not a time: "{one_line(text, 40)}"', hint=hint) from None


def parse_range(since: str, until: str, now_ms: int, zone: tzinfo) -> tuple[int, int]:
    """Return start and end in milliseconds; the end is open, and a date as `until` is included."""
    start = parse_since(since, now_ms, zone) if since else 0
    end = parse_since(until, now_ms, zone) if until else TIME_MS_MAX
    if re.fullmatch(r"\d{4}-\d\d-\d\d", until.strip()):
        day = datetime.fromtimestamp(end / 1000, tz=zone) + timedelta(days=1)
        end = int(day.timestamp() * 1000)
    if start >= end:
        hint = "write two times, the earlier one first: --since 14d --until 7d"
        raise Invalid("--until is not after --since", hint=hint)
    return start, end


def format_age(ms: int) -> str:
    """Return an age in its largest unit, such as "5 months"."""
    seconds = max(ms, 0) // 1000
    larger = (pluralize(seconds // size, unit) for size, unit in _UNITS if seconds >= size)
    return next(larger, pluralize(seconds, "second"))


def spell_commands(text: str, program: str, noun: str, *, is_sample: bool = False) -> str:
    """Return `text` with commands of `program`, another name of `flightlog NOUN`, as typed."""
    if program != "flightlog":
        return text.replace(f"flightlog {noun} ", f"{program} ")
    return re.sub(r"\bflightlog (?=[a-z])", "flightlog --samples ", text) if is_sample else text


def make_inert(text: str) -> str:
    """Return `text` with nothing in it that a terminal would act on."""
    return UNSAFE.sub(_control_picture, _escape_sequences().sub("", text.replace("\r\n", "\n")))


def one_line(text: str, width: int) -> str:
    """Return `text` inert, on one line of at most `width` characters."""
    line = " ".join(make_inert(text[: width * 8]).split())
    return line if len(line) <= width else line[: _outside_tag(line, max(width - 1, 0)).start] + "…"


def folder_name(path: str) -> str:
    """Return the last part of a path; one with a drive or a share is a Windows path."""
    separator = "\\" if re.match(r"[A-Za-z]:\\|\\\\", path) else "/"
    return path.rstrip(separator).rpartition(separator)[2]


def cell_width(text: str) -> int:
    """Return how many columns a terminal needs for `text`: wide letters take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def fit_cells(text: str, width: int, align: Literal["<", ">"] = "<") -> str:
    """Return a line of inert text in exactly `width` columns: cut with an ellipsis, or padded."""
    if cell_width(text) > width:
        text = text[:width]
        while text and cell_width(text) >= width:
            text = text[:-1]
        text = f"{text.rstrip()}…"[:width]
    padding = " " * (width - cell_width(text))
    return text + padding if align == "<" else padding + text


def shorten_text(
    text: "Redacted[str]", limit: int, keep: Literal["start", "end"] = "start"
) -> "Redacted[str]":
    """Return the start or the end of redacted text: at most `limit` characters with the ellipsis.

    Every short text of a shareable or tracked output is made here: text that is cut before it is
    redacted can hold half of a secret, which no detector recognizes.
    """
    whole = text.value
    if len(whole) <= limit:
        return text
    if keep == "start":
        return text.map(lambda _: whole[: _outside_tag(whole, limit - 1).start] + "…")
    return text.map(lambda _: "…" + whole[_outside_tag(whole, len(whole) - limit + 1).stop :])


def _outside_tag(text: str, at: int) -> slice:
    """Return the nearest offsets before and after `at` that are not inside a redaction tag."""
    low = max(at - _TAG_CHARS_MAX, 0)
    for tag in REDACTION_TAG.finditer(text, low, at + _TAG_CHARS_MAX):
        if tag.start() < at < tag.end():
            return slice(tag.start(), tag.end())
    return slice(at, at)


@functools.cache
def _escape_sequences() -> re.Pattern[str]:
    # Compiled when first needed: a usage report as JSON does not use it.
    return re.compile(_SEQUENCES, re.VERBOSE)


def _control_picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def pluralize(number: int, thing: str) -> str:
    """Return a number with its noun: `1 session`, `2,000 sessions`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def format_bytes(count: int) -> str:
    """Return a number of bytes with its unit."""
    for unit, factor in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


def describe_redaction(secrets: int, personal: int) -> str:
    """Return how much a redaction removed: `9 secrets and 2 personal details removed`."""
    return f"{pluralize(secrets, 'secret')} and {pluralize(personal, 'personal detail')} removed"


# The words of msgspec for types, and ours.
_TYPE_WORDS = {
    "array": "a list", "object": "a mapping", "str": "text", "int": "a whole number",
    "float": "a number", "bool": "true or false", "null": "nothing",
}  # fmt: skip


def describe_type_error(message: str) -> str:
    """Return a message of msgspec with a wrong type in plain words: `expected a list, not text`."""

    def say(match: re.Match[str]) -> str:
        wanted, given = (
            " or ".join(_TYPE_WORDS.get(kind, kind) for kind in kinds.split(" | "))
            for kinds in match.groups()
        )
        return f"expected {wanted}, not {given}"

    return re.sub(r"Expected `(.+?)`, got `(.+?)`", say, message)


def suggest_name(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint for an unknown word: the nearest name, else `otherwise`, else all names."""
    import difflib  # noqa: PLC0415 - needed only after a typing error

    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)  # half of the letters agree
    return f"did you mean `{near[0]}`?" if near else otherwise or f"one of: {', '.join(names)}"


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value without lone halves of surrogate pairs, which cannot be encoded."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return value
