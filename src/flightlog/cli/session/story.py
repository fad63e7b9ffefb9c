"""Transcripts as a person reads them on a terminal.

Words wrap below their own indent; prompts and answers are rendered as Markdown, commands and file
changes in syntax colors; long output goes through a pager. A pipe gets the plain lines.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from flightlog.cli.output import terminal_width
from flightlog.model.text import UNSAFE, make_inert
from flightlog.views.transcript import TranscriptLine, TranscriptLineKind
from flightlog.views.transcript_formats import MARKS, shown_address, text_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.markdown import Markdown
    from rich.segment import Segment
    from rich.text import Text

WIDTH_MAX = 120  # longer lines are hard to read; code and output use the same columns
TEXT_LEAST = 20  # columns for text below any indent
NESTING_MAX = 20  # of lists and quotes; the parser leaves out what is deeper
DEPTH_MAX = 6  # deeper subagents are not indented further
_THEME = "ansi_dark"  # syntax colors of the terminal's own palette, also without 256 colors
_STYLES = {
    TranscriptLineKind.TITLE: "bold",
    TranscriptLineKind.FACT: "dim",
    TranscriptLineKind.TURN: "bold green",
    TranscriptLineKind.PROMPT: "bold",
    TranscriptLineKind.STEP: "dim",
    TranscriptLineKind.THINKING: "dim italic",
    TranscriptLineKind.CALL: "cyan",
    TranscriptLineKind.FAILURE: "red",
    TranscriptLineKind.NOTE: "yellow",
    TranscriptLineKind.LANE: "magenta",
}
_MARKDOWN = {TranscriptLineKind.PROMPT, TranscriptLineKind.TEXT}
_COMMAND_TOOLS = ("Bash", "shell", "bash", "exec_command", "run_shell_command")


def print_story(lines: Iterable[TranscriptLine], *, paged: bool = False) -> None:
    """Print a transcript; on a terminal wrapped and colored, with `paged` through a pager."""
    if not sys.stdout.isatty():
        for line in lines:
            click.echo("\n".join(text_lines(line)))
        return
    texts = iter_screen_lines(lines, terminal_width())
    if paged and sys.stdin.isatty():
        os.environ.setdefault("LESS", "-FRX")  # as git: colors, and no pager for one screen
        click.echo_via_pager((f"{text}\n" for text in texts), color=_has_color())
        return
    for text in texts:
        click.echo(text, color=True)


def iter_screen_lines(lines: Iterable[TranscriptLine], width: int) -> Iterator[str]:
    """Yield the lines of a screen of `width` columns, with ANSI colors unless NO_COLOR is set."""
    from rich.console import Console

    width = min(width, WIDTH_MAX)
    console = Console(
        width=width,
        force_terminal=True,
        color_system="standard" if _has_color() else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in lines:
        yield from _wrap_paragraph(console, line, width)


def _has_color() -> bool:
    return not os.environ.get("NO_COLOR")


def _wrap_paragraph(console: "Console", line: TranscriptLine, width: int) -> Iterator[str]:
    """Yield a paragraph: its mark, then the text wrapped beside it."""
    if line.kind is TranscriptLineKind.TURN and not line.depth:
        yield ""
    mark, address = MARKS.get(line.kind, ""), shown_address(line)
    style = _STYLES.get(line.kind, "")
    indent = min(2 * min(line.depth, DEPTH_MAX), max(width - TEXT_LEAST, 0))
    hang = indent + len(mark)
    options = console.options.update(width=max(width - hang, TEXT_LEAST))
    body = _render_body(line, f"{address}  " if address else "")
    rows = console.render_lines(body, options, style=console.get_style(style), pad=False)
    for number, row in enumerate(rows):
        head = " " * indent + mark if number == 0 else " " * hang
        yield head + "".join(_paint(segment) for segment in row).rstrip(" ")


def _paint(segment: "Segment") -> str:
    """Return a segment with its colors, without what Markdown made of entities such as &#8238;."""
    from rich.color import ColorSystem

    text = UNSAFE.sub("", segment.text)
    system = ColorSystem.STANDARD if _has_color() else None
    return segment.style.render(text, color_system=system) if segment.style else text


def _render_body(line: TranscriptLine, address: str) -> "RenderableType":
    from rich.text import Text

    text = make_inert(line.text)
    if line.kind in _MARKDOWN:
        return _parse_markdown(text)
    if line.kind is TranscriptLineKind.CALL:
        return _highlight_call(text)
    return Text(f"{address}{text.expandtabs(4)}", overflow="fold")


def _parse_markdown(text: str) -> "Markdown | Text":
    """Return Markdown that shows all of `text`: tags as text, and line ends as they are."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown
    from rich.text import Text

    options = {"html": False, "maxNesting": NESTING_MAX}
    parser = MarkdownIt("commonmark", options).enable(["strikethrough", "table"])
    markdown = Markdown("", code_theme=_THEME, hyperlinks=False)
    markdown.parsed = parser.parse(text)
    if any(token.level >= NESTING_MAX - 1 for token in markdown.parsed):
        return Text(text, overflow="fold")
    for token in markdown.parsed:
        for child in token.children or ():
            child.type = "hardbreak" if child.type == "softbreak" else child.type
    return markdown


def _highlight_call(text: str) -> "Text":
    """Return a tool call: commands and changed files in the colors of their language."""
    from rich.syntax import Syntax
    from rich.text import Text

    first, *rest = text.expandtabs(4).split("\n")
    tool, _, argument = first.partition(" ")
    result = Text(f"{tool} ", style="bold", overflow="fold")
    if tool in _COMMAND_TOOLS:
        command = "\n".join([argument, *rest])
        highlighted = Syntax(command, "bash", theme=_THEME).highlight(command)
        highlighted.rstrip()
        return result.append_text(highlighted)
    result.append(argument)
    path = argument.split(" {")[0]
    changed = rest and all(row[:1] in "+-…" for row in rest)
    lexer = Syntax.guess_lexer(path, "\n".join(rest)) if changed else "default"
    for row in rest:
        sign, code = (row[:2], row[2:]) if changed and row[:1] in "+-" else ("", row)
        result.append(f"\n{sign}", "green" if sign[:1] == "+" else "red")
        highlighted = Syntax(code, lexer, theme=_THEME).highlight(code)
        highlighted.rstrip()
        result.append_text(highlighted if sign else Text(code))
    return result
