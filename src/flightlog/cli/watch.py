"""`flightlog watch`: the board, kept up to date in a terminal; plain sequences, so any terminal and ssh will do."""

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from flightlog.app import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime

CODES = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command(epilog=format_examples("flightlog watch", "flightlog watch --once --json"))
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Look once, print, and end.")
@json_option("With --once: print what was gathered as JSON.")
def watch(every: float, *, once: bool, as_json: bool) -> None:
    """Watch who is running, what it costs and what is wrong; q ends it."""
    if as_json and not once:
        raise Invalid("--json needs --once", hint="flightlog watch --once --json")
    runtime = open_runtime()
    if once or not sys.stdout.isatty():
        from flightlog.cli.status import print_dashboard

        print_dashboard(runtime, as_json=as_json)
        return
    with _full_screen():
        while True:
            size = os.get_terminal_size()
            _draw_screen(_dashboard_lines(runtime, size.columns, size.lines), size.lines)
            if _read_key(every) in {b"q", b"Q", b"\x03", b"\x1b"}:
                return


def paint_lines(lines: Sequence[Any], *, color: bool) -> list[str]:
    """Lines as a terminal shows them."""
    return [
        f"\x1b[{CODES[each.color]}m{each.text}\x1b[0m" if color and each.color and each.text else each.text
        for each in lines
    ]


def _dashboard_lines(runtime: Runtime, width: int, height: int) -> Sequence[Any]:
    from flightlog.app.live import watch_here
    from flightlog.live.board import TerminalSize, dashboard_lines

    return dashboard_lines(watch_here(runtime), TerminalSize(width, height - 1, runtime.zone))


def _draw_screen(lines: Sequence[Any], height: int) -> None:
    """Draw over what is there, line by line: nothing flickers over a slow line."""
    shown = paint_lines(lines, color=not os.environ.get("NO_COLOR"))[: height - 1]
    foot = "\x1b[2mq ends\x1b[0m" if not os.environ.get("NO_COLOR") else "q ends"
    body = "".join(f"{line}\x1b[K\r\n" for line in shown)
    sys.stdout.write(f"\x1b[H{body}{foot}\x1b[K\x1b[J")
    sys.stdout.flush()


@contextlib.contextmanager
def _full_screen() -> Iterator[None]:
    """A screen of our own, keys as they are pressed; all of it given back, whatever happens."""
    import termios
    import tty

    keys = sys.stdin.fileno() if sys.stdin.isatty() else -1
    before = termios.tcgetattr(keys) if keys >= 0 else None
    try:
        if keys >= 0:
            tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _read_key(seconds: float) -> bytes:
    if not sys.stdin.isatty():
        select.select([], [], [], seconds)
        return b""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1) if ready else b""
