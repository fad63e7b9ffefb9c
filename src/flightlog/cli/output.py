"""Tables, JSON, transcript, progress."""

import functools
import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flightlog.model.text import make_inert

if TYPE_CHECKING:
    from flightlog.views.transcript import TranscriptLine

T = TypeVar("T")
QUIET_S = 0.5
PIPE_COLUMNS = 140
_STYLES: dict[str, dict[str, str | bool]] = {
    "TITLE": {"bold": True},
    "FACT": {"dim": True},
    "TURN": {"fg": "green", "bold": True},
    "PROMPT": {"bold": True},
    "STEP": {"dim": True},
    "THINKING": {"dim": True, "italic": True},
    "CALL": {"fg": "cyan"},
    "FAILURE": {"fg": "red"},
    "NOTE": {"fg": "yellow"},
    "LANE": {"fg": "magenta"},
}


def json_option(said: str = "Print the result as JSON.") -> Callable[[Any], Any]:
    """Give a command its `--json`, as every command has it; `said` is what is printed then."""
    return click.option("--json", "as_json", is_flag=True, help=said)


def read_only(command: Callable[..., T]) -> Callable[..., T]:
    """Mark a command that prints one report and exits: it runs without garbage collection.

    Looking for cycles would take a tenth of a usage report, and the process ends with it.
    """

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> T:
        gc.disable()
        return command(*args, **options)

    return run


def format_examples(*commands: str) -> str:
    """Show several examples below a command's help, each on a line that can be copied."""
    return "\n".join(["\b", "Examples:", *(f"  {each}" for each in commands)])


def print_json(value: Any) -> None:
    """Print a value as JSON, the way every face and test sees it."""
    from flightlog.views.json_output import as_json

    click.echo(as_json(value))


def print_outcome(done: Any, talk: str, *, as_json: bool) -> None:
    """Say what was done: the value as JSON, or a line for a person, which is talk."""
    if as_json:
        print_json(done)
    else:
        click.echo(make_inert(talk), err=True)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print columns, those numbered in `right` aligned to the right.

    A pipe gets plain columns without importing rich, which takes 20 ms, unless they need
    wrapping, color or the width of letters that are not ASCII.
    """
    rows = [[make_inert(cell) for cell in row] for row in rows]
    plain = None if _is_drawn() else _plain_table(heads, rows, right)
    if plain is not None:
        click.echo(plain, nl=False)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for place, head in enumerate(heads):
        table.add_column(
            head, justify="right" if place in right else "left", no_wrap=place in right, overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    console.print(table)


def _is_drawn() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str | None:
    """Return the table as rich draws it into a pipe, or None if that takes more than padding."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > PIPE_COLUMNS:
        return None
    if not all(cell.isascii() and cell.isprintable() for line in lines for cell in line):
        return None
    return "".join("  ".join(_padded(line, widths, right)) + "\n" for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    return [
        cell.rstrip().rjust(width) if at in right else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]


class Progress:
    """A line on stderr for work that takes longer than half a second; silent when nobody watches."""

    def __init__(self, doing: str) -> None:
        """Say what is being done."""
        self._doing = doing
        self._began = time.monotonic()
        self._shown = False
        self._watched = sys.stderr.isatty()

    def __call__(self, done: int, whole: int) -> None:
        """Show how far it is."""
        if self._watched and time.monotonic() - self._began > QUIET_S:
            self._shown = True
            click.echo(f"\r{self._doing} {done:,} of {whole:,}", err=True, nl=False)

    def close(self) -> None:
        """Take the line away."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def print_story(lines: "Iterable[TranscriptLine]") -> None:
    """Print paragraph by paragraph; click drops the colours where a program reads them."""
    from flightlog.views.transcript_formats import text_lines

    for line in lines:
        for text in text_lines(line):
            click.secho(text, **_STYLES.get(line.kind.name, {}))  # type: ignore[arg-type]
