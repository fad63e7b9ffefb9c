"""A small safe language for conditions: numbers, names, arithmetic, comparisons, and, or, not.

    error_rate > 0.5 and (iterations >= 10 or metrics.coverage < 0.8)

A condition can only read the names it is given. An unknown name makes the result None (not
evaluated), unless the rest decides without it.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flightlog.model.errors import Invalid

_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d+)?)|([A-Za-z_][\w.-]*)|(>=|<=|==|!=|>|<|\(|\)|\+|-|\*|/)|(\S))"
)
_LENGTH_MAX = 1000
_DEPTH_MAX = 40  # far below Python's recursion limit
_EXAMPLE = "as in: error_rate > 0.5"
Value = float | None
COMPARE = {
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


class ExpressionNode(NamedTuple):
    """A node of the syntax tree: an operator with its parts, a number or a name."""

    kind: str
    word: str = ""
    number: float = 0.0
    parts: tuple["ExpressionNode", ...] = ()


def parse_expression(text: str) -> ExpressionNode:
    """Parse an expression; raise `Invalid` with the word that cannot follow."""
    if len(text) > _LENGTH_MAX:
        raise Invalid(f"a condition has at most {_LENGTH_MAX} characters", hint="write two")
    reader = _ExpressionParser(_split_tokens(text))
    node = reader.parse_or(0)
    if reader.current_word:
        raise Invalid(
            f"a condition ends before {reader.current_word!r}: {text}",
            hint="join parts with `and` or `or`",
        )
    return node


def evaluate_expression(node: ExpressionNode, names: Mapping[str, float]) -> Value:
    """Return the value of an expression: 1.0 is true, 0.0 is false, None is unknown."""
    match node.kind:
        case "number":
            return node.number
        case "name":
            return names.get(node.word)
        case "not":
            inner = evaluate_expression(node.parts[0], names)
            return None if inner is None else float(not inner)
        case "and" | "or":
            return _evaluate_logic(node, names)
        case _:
            left, right = (evaluate_expression(part, names) for part in node.parts)
            return (
                None if left is None or right is None else _compute_operator(node.word, left, right)
            )


def _evaluate_logic(node: ExpressionNode, names: Mapping[str, float]) -> Value:
    values = [evaluate_expression(part, names) for part in node.parts]
    decisive = node.kind == "or"
    if any(value is not None and bool(value) is decisive for value in values):
        return float(decisive)
    return None if None in values else float(not decisive)


def _compute_operator(word: str, left: float, right: float) -> Value:
    if word in COMPARE:
        return float(COMPARE[word](left, right))
    if word == "/":
        return left / right if right else None
    return {"+": left + right, "-": left - right, "*": left * right}[word]


def _split_tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    for number, name, mark, wrong in _TOKEN.findall(text):
        if wrong:
            raise Invalid(f"a condition cannot contain {wrong!r}: {text[:80]}", hint=_EXAMPLE)
        tokens.append(("number", number) if number else ("name", name) if name else ("mark", mark))
    return tokens


class _ExpressionParser:
    """A recursive descent parser; each method binds tighter than the one before."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def current_word(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def parse_or(self, depth: int) -> ExpressionNode:
        return self._parse_chain(
            "or", depth, lambda: self._parse_chain("and", depth, lambda: self._parse_not(depth))
        )

    def _parse_chain(
        self, word: str, depth: int, inner: Callable[[], ExpressionNode]
    ) -> ExpressionNode:
        if depth > _DEPTH_MAX:
            raise Invalid("a condition is nested too deeply", hint="write two")
        parts = [inner()]
        while self.current_word == word:
            self._at += 1
            parts.append(inner())
        return parts[0] if len(parts) == 1 else ExpressionNode(word, parts=tuple(parts))

    def _parse_not(self, depth: int) -> ExpressionNode:
        if depth > _DEPTH_MAX:
            raise Invalid("a condition is nested too deeply", hint="write two")
        if self.current_word == "not":
            self._at += 1
            return ExpressionNode("not", parts=(self._parse_not(depth + 1),))
        left = self._parse_sum(depth)
        if self.current_word in COMPARE:
            word = self.current_word
            self._at += 1
            return ExpressionNode("compare", word, parts=(left, self._parse_sum(depth)))
        return left

    def _parse_sum(self, depth: int) -> ExpressionNode:
        return self._parse_arithmetic(
            "+-", lambda: self._parse_arithmetic("*/", lambda: self._parse_operand(depth))
        )

    def _parse_arithmetic(
        self, operators: str, inner: Callable[[], ExpressionNode]
    ) -> ExpressionNode:
        node = inner()
        while (word := self.current_word) and word in operators:
            self._at += 1
            node = ExpressionNode("compute", word, parts=(node, inner()))
        return node

    def _parse_operand(self, depth: int) -> ExpressionNode:
        if self._at >= len(self._tokens):
            raise Invalid("a condition ends too early", hint=_EXAMPLE)
        kind, word = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return ExpressionNode("number", number=float(word))
        if kind == "name" and word not in {"and", "or", "not"}:
            return ExpressionNode("name", word)
        if word == "(":
            node = self.parse_or(depth + 1)
            if self.current_word != ")":
                raise Invalid("a bracket of a condition is not closed", hint="add `)`")
            self._at += 1
            return node
        raise Invalid(f"a condition cannot continue with {word!r}", hint=_EXAMPLE)
