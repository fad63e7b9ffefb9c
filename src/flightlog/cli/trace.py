"""`flightlog trace` and `flightlog blame`: from one thing to all the others, and who wrote a line."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import Progress, format_examples, json_option, print_json, print_table

if TYPE_CHECKING:
    from flightlog.tracing.blame import BlameLine
    from flightlog.tracing.trace import Trace


SHOWN = 8
WIDTH = 56
_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?)?")


@click.command(
    epilog=format_examples(
        "flightlog trace '2123f2df#1.4'", "flightlog trace HEAD", "flightlog trace task:session-001/T1"
    )
)
@click.argument("address")
@click.option("--all", "every", is_flag=True, help="Show every one of a kind, not only the first few.")
@json_option()
def trace(address: str, *, every: bool, as_json: bool) -> int:
    """Follow a session, step, commit, row, task or issue to all the others.

    Requests, hunks, runs and findings too. ADDRESS is what the other commands print: SESSION#turn.step, a
    commit, RUN/session_01/request_003, an id. Where two kinds begin alike, write the kind before it:
    commit:2123f2df. A link that leads nowhere is said; exit 3 then.
    """
    from flightlog.tracing.providers import TraceContext
    from flightlog.tracing.trace import build_trace as follow

    progress = Progress("reading sessions")
    told = follow(address, TraceContext(open_runtime(), progress=progress))
    progress.close()
    if as_json:
        print_json(told)
    else:
        _print_trace(told, every=every)
    return 3 if told.broken else 0


@click.command(epilog=format_examples("flightlog blame src/shop.py:12", "flightlog blame src/shop.py:1-40 --json"))
@click.argument("place", metavar="FILE[:LINE[-LINE]]")
@json_option()
def blame(place: str, *, as_json: bool) -> None:
    """Say which prompt wrote a line, committed or not."""
    from flightlog.tracing.blame import attribute_lines
    from flightlog.tracing.providers import TraceContext

    said = _PLACE.fullmatch(place)
    assert said is not None, "the pattern takes every text"
    first = int(said["first"] or 1)
    last = int(said["last"] or 0) or (first if said["first"] else 0)
    path = Path(said["file"])
    progress = Progress("reading sessions")
    lines = attribute_lines(
        path,
        first,
        last,
        TraceContext(open_runtime(), path.resolve().parent if path.exists() else None, progress=progress),
    )
    progress.close()
    if as_json:
        print_json(lines)
    elif len(lines) == 1:
        _print_line(place, lines[0])
    else:
        print_table(("line", "step", "commit", "prompt", "text"), [_blame_row(each) for each in lines], right=(0,))


def _print_trace(told: "Trace", *, every: bool) -> None:
    from flightlog.model.addresses import KINDS
    from flightlog.model.text import one_line

    rows = []
    for kind in KINDS:
        own = told.items_of_kind(kind)
        shown = own if every else own[:SHOWN]
        rows += [
            (kind if not at else "", each.address, each.near, one_line(each.title, WIDTH))
            for at, each in enumerate(shown)
        ]
        if len(own) > len(shown):
            rows.append(("", f"and {len(own) - len(shown):,} more", "", "--all shows them"))
        if not own and kind != told.start.kind:
            rows.append((kind, "none on record", "", ""))
    click.echo(one_line(f"{told.start.kind} {told.start.address}", 200))
    print_table(("", "address", "where", "what"), rows)
    for each in told.broken:
        click.echo(one_line(f"broken: {each.by} names {each.names}: {each.why}", 300), err=True)


def _print_line(place: str, line: "BlameLine") -> None:
    from flightlog.model.text import one_line

    click.echo(one_line(f"{place}  {line.text}", 200))
    facts = [("prompt", one_line(line.prompt, 300) or "not known"), ("step", line.step or "not known")]
    facts += [("hunk", line.hunk)] if line.hunk else []
    facts += [("commit", line.commit or "not committed"), ("how", line.how)]
    print_table(("", ""), facts)
    if line.step:
        click.echo(f"next: flightlog trace '{line.step}'", err=True)


def _shorten_step(step: str) -> str:
    session, mark, rest = step.partition("#")
    return f"{session[:8]}{mark}{rest}" if step else "-"


def _blame_row(line: "BlameLine") -> tuple[str, ...]:
    from flightlog.model.text import one_line

    prompt = one_line(line.prompt, 40) or "-"
    return str(line.number), _shorten_step(line.step), line.commit[:8] or "-", prompt, line.text
