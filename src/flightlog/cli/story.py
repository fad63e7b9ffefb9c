"""A story on the terminal: the lines of `views.story_forms`, with colour where there is a terminal."""

from collections.abc import Iterable

import click

from flightlog.views.story import Kind, Line
from flightlog.views.story_forms import text_lines

_STYLES: dict[Kind, dict[str, str | bool]] = {
    Kind.TITLE: {"bold": True},
    Kind.FACT: {"dim": True},
    Kind.TURN: {"fg": "green", "bold": True},
    Kind.PROMPT: {"bold": True},
    Kind.STEP: {"dim": True},
    Kind.THINKING: {"dim": True, "italic": True},
    Kind.CALL: {"fg": "cyan"},
    Kind.FAILURE: {"fg": "red"},
    Kind.NOTE: {"fg": "yellow"},
    Kind.LANE: {"fg": "magenta"},
}


def print_story(lines: Iterable[Line]) -> None:
    """Print paragraph by paragraph; click drops the colours where nobody sees them."""
    for line in lines:
        for text in text_lines(line):
            click.secho(text, **_STYLES.get(line.kind, {}))  # type: ignore[arg-type]
