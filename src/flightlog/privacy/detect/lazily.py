"""Patterns compiled when they are first used: most of them never are, in a short text.

A command that redacts a few lines would else spend most of its time on patterns it does not need.
"""

import re
from typing import Any

import re2

from flightlog.privacy.detect.hits import LATIN


class _LazyPattern:
    """A pattern that is not compiled yet; from its first use on, its methods are those of the compiled one."""

    def __init__(self, compile_: Any, *what: Any) -> None:
        self._compile, self._what = compile_, what

    def __getattr__(self, name: str) -> Any:
        made = self._compile(*self._what)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub"):
            self.__dict__[method] = getattr(made, method)
        return getattr(made, name)


def linear_pattern(pattern: bytes) -> Any:
    """Return a pattern whose time is linear in the text, whatever the text."""
    return _LazyPattern(re2.compile, pattern, LATIN)


def quick_pattern(pattern: bytes) -> Any:
    """Return a pattern that is quicker to call, for bounded stretches or one class of characters."""
    return _LazyPattern(re.compile, pattern)
