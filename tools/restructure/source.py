"""Source files, their syntax trees and the exact place of every node, also inside f-strings."""
# ruff: noqa: C901, PLR0913

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

Span = tuple[int, int]


@dataclass
class SourceFile:
    """One Python file; offsets count characters of `text`."""

    path: Path
    module: str
    text: str
    aliases: tuple[str, ...] = ()
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text, str(self.path))

    @cached_property
    def spans(self) -> dict[ast.AST, Span]:
        return node_spans(self.tree, self.text)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def place(self, offset: int) -> str:
        return f"{self.path}:{self.line_of(offset)}"


def load_sources(root: Path) -> list[SourceFile]:
    """Return every Python file below src, tests and tools, the restructure tools aside."""
    found = []
    for top in ("src", "tests", "tools"):
        for path in sorted((root / top).rglob("*.py")):
            short = path.relative_to(root)
            if short.parts[:2] == ("tools", "restructure") or "node_modules" in short.parts:
                continue
            module, aliases = _module_names(short)
            try:
                found.append(SourceFile(short, module, path.read_text(encoding="utf-8"), aliases))
            except (SyntaxError, UnicodeDecodeError) as error:
                print(f"not parsed: {short}: {error}")
    return found


def _module_names(path: Path) -> tuple[str, tuple[str, ...]]:
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts[0] == "src":
        return ".".join(parts[1:]), ()
    if parts[0] == "tests" and len(parts) > 1:
        # pythonpath = tests: helpers are imported as top-level modules.
        return ".".join(parts[1:]), (".".join(parts),)
    return ".".join(parts), ()


class _Lines:
    """Offsets in characters for the line and byte column of an AST node."""

    def __init__(self, text: str) -> None:
        self._lines = re.split(r"(?<=\n)", text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        inside = column if text.isascii() else len(text.encode()[:column].decode())
        return self._starts[line - 1] + inside

    def char_offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def node_spans(tree: ast.AST, text: str) -> dict[ast.AST, Span]:
    """Return start and end of every node that has a position; those in f-strings are measured again.

    Python 3.11 reports wrong columns for expressions inside f-strings.
    """
    lines = _Lines(text)
    spans: dict[ast.AST, Span] = {}
    strings: list[tuple[int, int, str]] | None = None
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if hasattr(node, "end_col_offset"):
            spans[node] = (
                lines.offset(node.lineno, node.col_offset),
                lines.offset(node.end_lineno, node.end_col_offset),
            )
        if isinstance(node, ast.JoinedStr):
            if strings is None:
                strings = _string_tokens(text, lines)
            _measure_fstring(node, spans, strings)
        else:
            todo.extend(ast.iter_child_nodes(node))
    return spans


def _string_tokens(text: str, lines: _Lines) -> list[tuple[int, int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        (lines.char_offset(*token.start), lines.char_offset(*token.end), token.string)
        for token in tokens
        if token.type == tokenize.STRING
    ]


def _measure_fstring(node: ast.JoinedStr, spans: dict[ast.AST, Span], strings: list[tuple[int, int, str]]) -> None:
    start, end = spans[node]
    fields = [
        (begin + at, expression)
        for begin, finish, token in strings
        if start <= begin and finish <= end and "f" in re.match(r"[a-zA-Z]*", token)[0].lower()
        for at, expression in fields_of(token)
    ]
    values = list(_formatted(node))
    assert len(values) == len(fields), (ast.dump(node), fields)
    for value, (at, expression) in zip(values, fields, strict=True):
        wrapped = f"({expression})"
        body = ast.parse(wrapped, mode="eval").body
        inner = node_spans(body, wrapped)
        for mine, exact in zip(ast.walk(value.value), ast.walk(body), strict=True):
            assert type(mine) is type(exact)
            if exact in inner:
                spans[mine] = (inner[exact][0] - 1 + at, inner[exact][1] - 1 + at)


def _formatted(node: ast.JoinedStr) -> list[ast.FormattedValue]:
    found = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            found.append(value)
            if isinstance(value.format_spec, ast.JoinedStr):
                found.extend(_formatted(value.format_spec))
    return found


def fields_of(token: str) -> list[tuple[int, str]]:
    """Return offset and text of every replacement field of one f-string token, nested specifications included."""
    head = re.match(r"([a-zA-Z]*)('''|\"\"\"|'|\")", token)
    is_raw = "r" in head[1].lower()
    found: list[tuple[int, str]] = []
    _scan_text(token, head.end(), len(token) - len(head[2]), found, is_raw=is_raw)
    return found


def _scan_text(
    token: str, at: int, end: int, found: list[tuple[int, str]], *, is_raw: bool, nested: bool = False
) -> int:
    while at < end:
        char = token[at]
        if not is_raw and token.startswith("\\N{", at):
            at = token.index("}", at) + 1
        elif (char == "\\" and not is_raw and token[at + 1] not in "{}") or (
            char == "{" and token[at + 1] == "{" and not nested
        ):
            at += 2
        elif char == "{":
            at = _scan_field(token, at + 1, end, found, is_raw=is_raw)
        elif char == "}" and nested:
            return at
        else:
            at += 1
    return at


def _scan_field(token: str, at: int, end: int, found: list[tuple[int, str]], *, is_raw: bool) -> int:
    start, depth, quote = at, 0, ""
    while True:
        char = token[at]
        if quote:
            if token.startswith(quote, at):
                at, quote = at + len(quote), ""
                continue
        elif char in "'\"":
            quote = char * 3 if token.startswith(char * 3, at) else char
            at += len(quote)
            continue
        elif char in "([{":
            depth += 1
        elif depth and char in ")]}":
            depth -= 1
        elif not depth and (char in "}:" or (char == "!" and token[at + 1] != "=")):
            break
        at += 1
    expression = token[start:at]
    if re.search(r"(?<![=!<>])=\s*$", expression):
        expression = expression.rstrip()[:-1]
    found.append((start, expression))
    if token[at] == "!":
        at = min(place for place in (token.find("}", at), token.find(":", at)) if place >= 0)
    if token[at] == ":":
        at = _scan_text(token, at + 1, end, found, is_raw=is_raw, nested=True)
    return at + 1
