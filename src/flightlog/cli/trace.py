"""`flightlog trace` follows links between artifacts; `flightlog blame` says what wrote a line."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import Progress, format_examples, json_option, print_json, print_table

if TYPE_CHECKING:
    from flightlog.tracing.blame import BlameLine
    from flightlog.tracing.trace import Trace


SHOWN = 8  # items of one kind without --all
WIDTH = 56  # characters of a title, so that a row fits in 140 columns
_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?)?")


@click.command(
    epilog=format_examples(
        "flightlog trace '2123f2df#1.4'",
        "flightlog trace HEAD",
        "flightlog trace task:session-001/T1",
    )
)
@click.argument("address")
@click.option(
    "--all", "every", is_flag=True, help="Show all items of a kind, not only the first 8."
)
@json_option()
def trace(address: str, *, every: bool, as_json: bool) -> int:
    """Follow links between sessions, commits, rows.

    Shows every session, step, commit, hunk, row, task, run, request, finding and issue that
    ADDRESS is linked to. ADDRESS is an id as other commands print it: SESSION#turn.step, a commit,
    RUN/session_01/request_003. If it is ambiguous, put the kind before it: commit:2123f2df.
    Exit 3 if a link is broken.
    """
    from flightlog.tracing.providers import TraceContext
    from flightlog.tracing.trace import build_trace

    progress = Progress("reading sessions")
    result = build_trace(address, TraceContext(open_runtime(), progress=progress))
    progress.close()
    print_json(result) if as_json else _print_trace(result, every=every)
    return 3 if result.broken_links else 0


@click.command(
    epilog=format_examples(
        "flightlog blame src/shop.py:12", "flightlog blame src/shop.py:1-40 --json"
    )
)
@click.argument("place", metavar="FILE[:LINE[-LINE]]")
@json_option()
def blame(place: str, *, as_json: bool) -> None:
    """Show which prompt wrote a line. Works for committed and uncommitted lines."""
    from flightlog.tracing.blame import attribute_lines
    from flightlog.tracing.providers import TraceContext

    match = _PLACE.fullmatch(place)
    assert match is not None, "the pattern matches any text"
    first = int(match["first"] or 1)
    last = int(match["last"] or 0) or (first if match["first"] else 0)
    path = Path(match["file"])
    progress = Progress("reading sessions")
    folder = path.resolve().parent if path.exists() else None
    context = TraceContext(open_runtime(), folder, progress=progress)
    lines = attribute_lines(path, first, last, context)
    progress.close()
    if as_json:
        print_json(lines)
    elif len(lines) == 1:
        _print_line(place, lines[0])
    else:
        heads = ("line", "step", "commit", "prompt", "text")
        print_table(heads, [_blame_row(line) for line in lines], right=(0,))


def _print_trace(trace_result: "Trace", *, every: bool) -> None:
    from flightlog.model.addresses import KINDS
    from flightlog.model.text import one_line

    rows = []
    for kind in KINDS:
        items = trace_result.items_of_kind(kind)
        shown = items if every else items[:SHOWN]
        rows += [
            (kind if not index else "", item.address, item.distance, one_line(item.title, WIDTH))
            for index, item in enumerate(shown)
        ]
        if len(items) > len(shown):
            rows.append(("", f"and {len(items) - len(shown):,} more", "", "use --all to show them"))
        if not items and kind != trace_result.start.kind:
            rows.append((kind, "none", "", ""))
    click.echo(one_line(f"{trace_result.start.kind} {trace_result.start.address}", 200))
    print_table(("", "address", "where", "what"), rows)
    for item in trace_result.broken_links:
        line = one_line(f"broken: {item.source} names {item.target}: {item.reason}", 300)
        click.echo(line, err=True)


def _print_line(location: str, line: "BlameLine") -> None:
    from flightlog.model.text import one_line

    click.echo(one_line(f"{location}  {line.text}", 200))
    facts = [("prompt", one_line(line.prompt, 300) or "unknown"), ("step", line.step or "unknown")]
    facts += [("hunk", line.hunk)] if line.hunk else []
    facts += [("commit", line.commit or "not committed"), ("how", line.attribution)]
    print_table(("", ""), facts)
    if line.step:
        click.echo(f"next: flightlog trace '{line.step}'", err=True)


def _shorten_step(step: str) -> str:
    session, separator, rest = step.partition("#")
    return f"{session[:8]}{separator}{rest}" if step else "-"


def _blame_row(line: "BlameLine") -> tuple[str, ...]:
    from flightlog.model.text import one_line

    prompt, step = one_line(line.prompt, 40) or "-", _shorten_step(line.step)
    return (str(line.line_number), step, line.commit[:8] or "-", prompt, line.text)
