"""Print tables, JSON, transcripts and progress."""

import functools
import gc
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from flightlog.model.text import (
    describe_redaction,
    folder_name,
    make_inert,
    one_line,
    spell_commands,
)
from flightlog.views.table_text import TableLayout, lay_out_table

if TYPE_CHECKING:
    from datetime import tzinfo

    from flightlog.archive.search import SearchHit
    from flightlog.model.output_files import Redacted
    from flightlog.views.session.outline import SessionSummary


T = TypeVar("T")
QUIET_S = 0.5  # shorter work shows no progress line, which would only flicker
PIPE_COLUMNS = 140  # wide enough for a session title; a pipe has no width of its own
# Of a session, its id, when it was, what it cost and how it began are shown at any width.
_SESSION_LAYOUT = TableLayout(
    right=(2, 3, 4, 5), dropped=(3, 4, 2, 6, 7), least={6: 6, 7: 8, 8: 20}
)
_COLORS: dict[str, dict[str, str | bool]] = {
    "red": {"fg": "red"},
    "yellow": {"fg": "yellow"},
    "green": {"fg": "green"},
    "dim": {"dim": True},
    "bold": {"bold": True},
    "alert": {"fg": "yellow", "bold": True, "reverse": True},
}


def json_option(help_text: str = "Print the result as JSON.") -> Callable[[Any], Any]:
    """Return the `--json` option that every command has; `help_text` says what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def terminal_width() -> int:
    """Return the columns of the terminal; a pipe gets a fixed number."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS


def wrap_words(text: str, head: str = "", indent: int = 0) -> str:
    """Return `head` and `text`; at a terminal in lines cut between words, the others indented."""
    if not sys.stdout.isatty():
        return f"{head}{text}"
    from textwrap import TextWrapper

    wrapper = TextWrapper(max(terminal_width(), indent + 20), break_long_words=False)
    wrapper.initial_indent, wrapper.subsequent_indent = head, " " * indent
    wrapper.break_on_hyphens = False
    return wrapper.fill(text)


def style_text(text: str, color: str) -> str:
    """Return inert `text` in one of our colors, if stdout shows colors."""
    if not text or color not in _COLORS or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, **_COLORS[color])  # type: ignore[arg-type]


def read_only(command: Callable[..., T]) -> Callable[..., T]:
    """Run a command that prints one report and exits without garbage collection.

    Collecting cycles takes a tenth of a usage report, and the process ends after it anyway.
    """

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> T:
        gc.disable()
        return command(*args, **options)

    return run


def format_examples(*commands: str) -> str:
    """Return the epilog of a command with several examples, one per line."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


def format_value(value: object) -> str:
    """Return a string as it is, and any other value as JSON instead of a Python literal."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    from flightlog.views.json_output import as_json

    click.echo(as_json(value))


def print_sessions(
    summaries: "Sequence[SessionSummary]",
    zone: "tzinfo",
    names: dict[str, str],
    *,
    with_agent: bool,
) -> None:
    """Print a table of sessions; `names` are the shortest ids that are unique."""
    from flightlog.model.usage import format_cost, format_tokens
    from flightlog.views.transcript import format_timestamp

    rows = []
    for summary in summaries:
        when = format_timestamp(summary.ended_ms, zone, "%Y-%m-%d %H:%M")
        tokens = format_tokens(summary.usage.total_tokens, summary.usage, summary.cost)
        counts = (str(summary.turns), str(summary.steps), tokens, format_cost(summary.cost))
        damage = "(damaged) " if summary.damage_count else ""
        agent = summary.agent if with_agent else ""
        title, project = damage + summary.heading, folder_name(summary.project)
        rows.append((names[summary.session], when, *counts, agent, project, title))
    heads = ("session", "last active", "turns", "steps", "tokens", "cost", "agent")
    print_rows((*heads, "project", "title"), rows, _SESSION_LAYOUT)


def print_hits(hits: "Iterable[SearchHit]", zone: "tzinfo", sessions: "Iterable[str]") -> None:
    """Print step, time, project and cost of each hit, and the passage.

    Ids are as short as they are unique among all `sessions`.
    """
    from flightlog.model.addresses import short_address, unique_prefixes
    from flightlog.model.usage import format_cost
    from flightlog.views.transcript import format_timestamp

    shown = list(hits)
    names = unique_prefixes((hit.session for hit in shown), among=sessions)
    for hit in shown:
        step = short_address(hit.address) if hit.address != hit.session else ""
        when = format_timestamp(hit.at_ms, zone, "%Y-%m-%d %H:%M")
        cost = format_cost(hit.cost)
        name = f"{names[hit.session]}{step}"
        click.echo(f"{name}  {when}  {one_line(hit.project, 60)}  session {cost}")
        click.echo(wrap_words(one_line(hit.snippet, 170), "    ", 4))


def name_program() -> str:
    """Return the program as the user typed it, with `--samples` if that was given."""
    root = click.get_current_context().find_root()
    return f"{root.info_name} --samples" if root.params.get("samples") else str(root.info_name)


def spell_hint(text: str) -> str:
    """Return `text`, made inert, with its commands under the name that the user typed."""
    context = click.get_current_context(silent=True)
    if context is None:  # a thread of its own
        return make_inert(text)
    root = context.find_root()
    is_sample = bool(root.params.get("samples"))
    noun = root.command.name or ""
    return make_inert(spell_commands(text, str(root.info_name), noun, is_sample=is_sample))


def print_more(count: int) -> None:
    """Say how many rows `--limit` left out, and how to see them."""
    click.echo(f"{count:,} more: {repeat_command(limit=0)}", err=True)


def repeat_command(**changes: object) -> str:
    """Return the command as the user typed it, its program name and options, with `changes`."""
    context = click.get_current_context()
    words = [*name_program().split(), *context.command_path.split()[1:]]
    for parameter in context.command.params:
        name = parameter.name or ""
        source, value = context.get_parameter_source(name), context.params.get(name)
        if name in changes or source is not ParameterSource.COMMANDLINE:
            continue
        for given in value if isinstance(value, tuple) else (value,):
            words += _spell_parameter(parameter, given)
    for name, value in changes.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return shlex.join(words)


def _spell_parameter(parameter: click.Parameter, value: object) -> list[str]:
    if not isinstance(parameter, click.Option):
        return [str(value)]
    if not parameter.is_flag:
        return [parameter.opts[0], str(value)]
    if value is False:
        return [parameter.secondary_opts[0]]
    # Flags that share a name, as --user and --project, each have their own value.
    return [parameter.opts[0]] if value in (True, parameter.flag_value) else []


def print_outcome(outcome: Any, line: str, *, as_json: bool) -> None:
    """Print `outcome` as JSON on stdout, or `line` for a person on stderr."""
    print_json(outcome) if as_json else click.echo(spell_hint(line), err=True)


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]], layout: TableLayout) -> None:
    """Print one line per row, as wide as the terminal; less important columns are left out."""
    head, *lines = lay_out_table([heads, *rows], layout, terminal_width())
    click.echo(style_text(head, "bold"))
    for line in lines:
        click.echo(line)


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print columns, with the column numbers in `right` aligned to the right.

    A pipe gets plain columns without importing rich, which takes 20 ms, unless the cells need
    wrapping, color or the width of non-ASCII letters.
    """
    rows = [[make_inert(cell) for cell in row] for row in rows]
    is_drawn = sys.stdout.isatty() or os.environ.get("FORCE_COLOR")
    plain = None if is_drawn else _plain_table(heads, rows, right)
    if plain is not None:
        click.echo(plain, nl=False)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column, head in enumerate(heads):
        table.add_column(
            head,
            justify="right" if column in right else "left",
            no_wrap=column in right,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(
        markup=False, highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS
    )
    console.print(table)


def _plain_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]
) -> str | None:
    """Return the table as rich draws it into a pipe, or None if that takes more than padding."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > PIPE_COLUMNS:
        return None
    if not all(cell.isascii() and cell.isprintable() for line in lines for cell in line):
        return None
    return "".join("  ".join(_pad_cells(line, widths, right)) + "\n" for line in lines)


def _pad_cells(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    return [
        cell.rstrip().rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]


class Progress:
    """A progress line on stderr for work longer than half a second; silent without a terminal."""

    def __init__(self, doing: str) -> None:
        """Start the clock; `doing` is the text of the line."""
        self._doing = doing
        self._began = time.monotonic()
        self._shown = False
        self._watched = sys.stderr.isatty()

    def __call__(self, done: int, whole: int) -> None:
        """Show the number of items done."""
        if self._watched and time.monotonic() - self._began > QUIET_S:
            self._shown = True
            click.echo(f"\r{self._doing} {done:,} of {whole:,}", err=True, nl=False)

    def close(self) -> None:
        """Erase the line."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def redaction_fields(redacted: "Redacted[Any] | None") -> dict[str, Any]:
    """Return the JSON fields of a redaction; `None` means that nothing was redacted."""
    if redacted is None:
        return {"redacted": False}
    return {"redacted": True, "secrets": redacted.secrets, "personal": redacted.personal}


def print_redaction(fields: Mapping[str, Any], session: str = "--all") -> None:
    """Print on stderr how much was removed, or that the output is not redacted."""
    if fields["redacted"]:
        summary = describe_redaction(fields["secrets"], fields["personal"])
        click.echo(f"{summary}; review it before you share it", err=True)
    else:
        command = f"flightlog session export {session} --redact"
        line = f"complete and not redacted, may contain secrets and personal data; before sharing: {command}"
        click.echo(spell_hint(line), err=True)
