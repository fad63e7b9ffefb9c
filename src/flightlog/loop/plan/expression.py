"""A small safe language for conditions: numbers, names, arithmetic, comparisons, and, or, not.

    error_rate > 0.5 and (iterations >= 10 or metrics.coverage < 0.8)

It is a part of Python's, with dots and dashes in names. A condition can only read the names it is
given. An unknown name makes the result None (not evaluated), unless the rest decides without it.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from flightlog.model.errors import Invalid

_LENGTH_MAX = 1000
_EXAMPLE = "as in: error_rate > 0.5"
_WRONG = re.compile(r"[^\w\s.<>=!()+*/-]")
_NAME = re.compile(r"[^\W\d][\w.-]*")
_WORDS = ("and", "or", "not")
COMPARE = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_COMPARISONS = (ast.GtE, ast.Gt, ast.LtE, ast.Lt, ast.Eq, ast.NotEq)
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    **dict(zip(_COMPARISONS, COMPARE.values(), strict=True)),
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right if right else None,
}
_LOGIC = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Compare, ast.BinOp)
_ALLOWED = (*_LOGIC, *_OPERATORS, ast.Name, ast.Load, ast.Constant)


def parse_expression(text: str) -> ast.expr:
    """Parse an expression; raise `Invalid` with what is wrong."""
    if len(text) > _LENGTH_MAX:
        raise Invalid(f"a condition has at most {_LENGTH_MAX} characters", hint="write two")
    if wrong := _WRONG.search(text):
        raise Invalid(f"a condition cannot contain {wrong[0]!r}: {text[:80]}", hint=_EXAMPLE)
    # Other words become placeholders: Python has more keywords, and no dashes in names.
    names = _NAME.findall(text)
    placeholders = {name: name if name in _WORDS else f"n{names.index(name)}" for name in names}
    code = _NAME.sub(lambda name: placeholders[name[0]], text)
    node = _parse_python(code)
    if node is None and _parse_python(f"{code} 1") is not None:
        raise Invalid("a condition ends too early", hint=_EXAMPLE)
    if code.count("(") > code.count(")"):
        raise Invalid("a bracket of a condition is not closed", hint="add `)`")
    if node is None:
        raise Invalid(f"a condition is not understood: {text[:80]}", hint=_EXAMPLE)
    for part in ast.walk(node):
        is_chain = isinstance(part, ast.Compare) and len(part.ops) > 1
        is_sign = isinstance(part, ast.UnaryOp) and not isinstance(part.op, ast.Not)
        if is_chain or is_sign or not isinstance(part, _ALLOWED):
            hint = "join parts with `and` or `or`"
            raise Invalid(f"a condition is not understood: {text[:80]}", hint=hint)
        if isinstance(part, ast.Name):
            part.id = names[int(part.id[1:])]
    return node


def evaluate_expression(node: ast.expr, names: Mapping[str, float]) -> float | None:
    """Return the value of an expression: 1.0 is true, 0.0 is false, None is unknown."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(min(number, 1e308))
        case ast.Name():
            return names.get(node.id)
        case ast.UnaryOp():
            inner = evaluate_expression(node.operand, names)
            return None if inner is None else float(not inner)
        case ast.BoolOp():
            values = [evaluate_expression(part, names) for part in node.values]
            decisive = isinstance(node.op, ast.Or)
            if any(value is not None and bool(value) is decisive for value in values):
                return float(decisive)
            return None if None in values else float(not decisive)
        case ast.Compare(left=one, ops=[op], comparators=[other]) | ast.BinOp(one, op, other):
            left, right = (evaluate_expression(part, names) for part in (one, other))
            known = left is not None and right is not None
            value = _OPERATORS[type(op)](left, right) if known else None
            return None if value is None else float(value)
        case _:
            raise AssertionError("`parse_expression` lets nothing else through")


def _parse_python(code: str) -> ast.expr | None:
    try:
        return ast.parse(" ".join(code.split()), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError):
        return None
