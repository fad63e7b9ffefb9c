"""The text of string literals with the place of each character in the file."""

import ast
import io
import re
import tokenize

from .source import fields_of

_ESCAPE = re.compile(r"\\(\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|N\{[^}]*\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
FIELD = "FIELD_"  # takes the place of an expression inside an f-string


class Literal:
    """The value of adjacent string literals; `places[i]` is the file offset of character i, -1 if it has none."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.value, self.places = "", []
        raw = f"({text[start:end]})"
        lines = re.split(r"(?<=\n)", raw)
        starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
        for token in tokenize.generate_tokens(io.StringIO(raw).readline):
            if token.type == tokenize.STRING:
                self._add(token.string, start - 1 + starts[token.start[0] - 1] + token.start[1])

    def _put(self, text: str, place: int) -> None:
        self.value += text
        self.places.extend([place] * len(text))

    def _add(self, token: str, offset: int) -> None:
        head = re.match(r"([a-zA-Z]*)('''|\"\"\"|'|\")", token)
        is_raw, is_format = "r" in head[1].lower(), "f" in head[1].lower()
        skip = _fields(token) if is_format else {}
        at, end = head.end(), len(token) - len(head[2])
        while at < end:
            escape = None if is_raw else _ESCAPE.match(token, at)
            if at in skip:
                self._put(FIELD, -1)
                at = skip[at]
            elif escape:
                value = ast.literal_eval(f'"""{escape[0]}"""') if escape[0] != '\\"' else '"'
                self._put(value, offset + at)
                at = escape.end()
            elif is_format and token[at : at + 2] in {"{{", "}}"}:
                self._put(token[at], offset + at)
                at += 2
            else:
                self._put(token[at], offset + at)
                at += 1

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the file span of an identifier in the value, or None where it has no plain one."""
        places = self.places[start:end]
        if places and places[0] >= 0 and places == list(range(places[0], places[0] + len(places))):
            return places[0], places[-1] + 1
        return None


def _fields(token: str) -> dict[int, int]:
    """Return where each top-level replacement field of an f-string token starts and ends, braces included."""
    found: dict[int, int] = {}
    last = 0
    for at, expression in fields_of(token):
        if at - 1 < last:
            continue  # inside a format specification
        end, depth = at + len(expression), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(token[end], 0)
            end += 1
        found[at - 1], last = end, end
    return found
