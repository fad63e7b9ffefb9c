"""Colors for source text: Pygments finds the tokens, the style sheet has six classes for them."""

import functools
from collections.abc import Sequence

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token
from pygments.util import ClassNotFound

CHARS_MAX = 30_000  # 20 ms of work; longer text stays plain
# Most specific first; "Word" operators are `and`, `or`, `in`.
_CLASSES = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (String, "s"),
    (Number, "n"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Tag, "k"),
    (Name.Attribute, "f"),
    (Name.Builtin, "b"),
)


def highlight_lines(lines: Sequence[str], path: str) -> list[Markup]:
    """Return lines of the file `path` as HTML, colored if its language is known."""
    return _color_lines(lines, _lexer_of_path(path.rsplit("/", 1)[-1]))


def highlight_code(text: str, language: str) -> Markup:
    """Return source text of a named language as HTML."""
    return Markup("\n").join(_color_lines(text.split("\n"), _lexer_of_name(language)))


def _color_lines(lines: Sequence[str], lexer: Lexer | None) -> list[Markup]:
    text = "\n".join(lines)
    if lexer is None or len(text) > CHARS_MAX:
        return [escape(line) for line in lines]
    tokens = list(lexer.get_tokens(text))
    # A lexer ends a text with a line end, and removes some characters; then its colors are not used.
    if "".join(value for _, value in tokens).removesuffix("\n") != text.removesuffix("\n"):
        return [escape(line) for line in lines]
    colored: list[list[str]] = [[]]
    for kind, value in tokens:
        name = _class_of(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                colored.append([])
            if part:
                plain = str(escape(part))
                colored[-1].append(f'<i class="{name}">{plain}</i>' if name else plain)
    return [Markup("".join(parts)) for parts in colored[: len(lines)]]  # noqa: S704 - escaped above


@functools.cache
def _class_of(kind: type[Token]) -> str:
    return next((name for known, name in _CLASSES if kind in known), "")


@functools.lru_cache(maxsize=64)
def _lexer_of_path(name: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(name, stripnl=False, stripall=False)
    except ClassNotFound:
        return None


@functools.lru_cache(maxsize=64)
def _lexer_of_name(name: str) -> Lexer | None:
    try:
        return get_lexer_by_name(name, stripnl=False) if name else None
    except ClassNotFound:
        return None
