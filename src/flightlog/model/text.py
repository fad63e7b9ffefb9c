"""Foreign text made inert: what an agent, a file or a model wrote cannot act on a terminal.

Whole escape sequences are removed, other control characters become visible pictures, and
characters that reorder text are shown by number. Newlines and tabs stay, and so does every
word: a sequence that never ends must not hide what follows it.
"""

import functools
import re
from collections.abc import Iterable

# The one-byte forms of ESC are shown, not followed: in text of a wrong encoding they are accents and quotes.
_SEQUENCES = r"""
      \x1b\[[0-?]*[ -/]*[@-~]                       # CSI
    | \x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\)  # OSC, DCS, SOS, PM, APC
    | \x1b[ -/]*[0-OQ-WYZ\\`-~]                     # the rest
    """
UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def inert(text: str) -> str:
    """Return `text` so that printing it can only show it."""
    return UNSAFE.sub(_picture, _sequences().sub("", text.replace("\r\n", "\n")))


def one_line(text: str, width: int) -> str:
    """Return `text` inert, on one line of at most `width` characters."""
    line = " ".join(inert(text[: width * 8]).split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


@functools.cache
def _sequences() -> re.Pattern[str]:
    """Compiled when first needed: a usage report as JSON is not kept waiting."""
    return re.compile(_SEQUENCES, re.VERBOSE)


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def counted(number: int, thing: str) -> str:
    """Write a number of things."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def meant(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to do about a word that is not known: the nearest one that is, or `otherwise`, or all there are."""
    import difflib  # noqa: PLC0415 - for a typing error alone

    listed = list(known)
    near = difflib.get_close_matches(word, listed, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else otherwise or f"one of: {', '.join(listed)}"
