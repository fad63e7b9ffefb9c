"""Which quote opens a value, among the marks between a name and it."""

_REACH = 200
_VALUE_MARKS = b"$!@#%^&*+/.~-_?<{[("


def find_quoted_value(view: bytes, low: int, gap: bytes, at: int) -> tuple[int, bytes] | None:
    """Return where in `gap`, the marks from `low` on, a quoted value begins, and its quote, looked for from `at` on."""
    for index in range(at, len(gap)):
        mark = gap[index : index + 1]
        if mark in b"\"'`" and not gap[index + 1 :].strip(_VALUE_MARKS):
            if mark == b"`" and _begins_with_backtick(view, low + index, gap[index - 1 : index]):
                return index, gap[index - 1 : index]
            return index + 1, mark
    return None


def _begins_with_backtick(view: bytes, tick: int, outer: bytes) -> bool:
    """Say whether a value in other quotes begins with the backtick at `tick`: two of them would hold a command."""
    if outer not in (b'"', b"'"):
        return False
    close = view.find(outer, tick, tick + _REACH)
    return close >= 0 and b"`" not in view[tick + 1 : close] and b"\n" not in view[tick:close]
