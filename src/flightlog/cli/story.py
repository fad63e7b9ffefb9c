"""A story on the terminal: the lines of `views.story_forms`, with colour where there is a terminal."""

from collections.abc import Iterable

import click

from flightlog.views.story import TranscriptLine, TranscriptLineKind
from flightlog.views.story_forms import text_lines

_STYLES: dict[TranscriptLineKind, dict[str, str | bool]] = {
    TranscriptLineKind.TITLE: {"bold": True},
    TranscriptLineKind.FACT: {"dim": True},
    TranscriptLineKind.TURN: {"fg": "green", "bold": True},
    TranscriptLineKind.PROMPT: {"bold": True},
    TranscriptLineKind.STEP: {"dim": True},
    TranscriptLineKind.THINKING: {"dim": True, "italic": True},
    TranscriptLineKind.CALL: {"fg": "cyan"},
    TranscriptLineKind.FAILURE: {"fg": "red"},
    TranscriptLineKind.NOTE: {"fg": "yellow"},
    TranscriptLineKind.LANE: {"fg": "magenta"},
}


def print_story(lines: Iterable[TranscriptLine]) -> None:
    """Print paragraph by paragraph; click drops the colours where nobody sees them."""
    for line in lines:
        for text in text_lines(line):
            click.secho(text, **_STYLES.get(line.kind, {}))  # type: ignore[arg-type]
