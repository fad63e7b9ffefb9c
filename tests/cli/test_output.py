"""Tables in a pipe: plain columns where padding is enough, and rich where it is not."""

import gc
import subprocess
import sys

import pytest

from flightlog.cli.output import read_only

PRINT = """
import sys
from flightlog.cli.output import print_table
print_table(["day", "cost", "title"], eval(sys.argv[1]), right=[1])
print("rich" in sys.modules, file=sys.stderr)
"""


def print_piped(rows, **environ):
    ran = subprocess.run(
        [sys.executable, "-c", PRINT, repr(rows)],
        env=environ,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return ran.stdout, ran.stderr.strip() == "True"


def test_a_pipe_gets_padded_columns_without_rich():
    out, with_rich = print_piped([["2026-11-01", "$1.25", "a"], ["2026-11-02", "$12.50 ", "bb"]])

    assert not with_rich
    assert out == (
        "day            cost  title\n"
        "2026-11-01    $1.25  a    \n"
        "2026-11-02   $12.50  bb   \n"
    )  # fmt: skip


@pytest.mark.parametrize("title", ["日本", "word " * 40, "two\nlines"])
def test_wide_letters_and_long_cells_are_left_to_rich(title):
    out, with_rich = print_piped([["d", "$1", title]])

    assert with_rich
    assert max(map(len, out.splitlines())) <= 140


def test_color_that_is_asked_for_is_left_to_rich():
    out, with_rich = print_piped([["d", "$1", "a"]], FORCE_COLOR="1", TERM="xterm-256color")

    assert with_rich
    assert "\x1b[1m" in out


def test_control_sequences_in_a_cell_are_removed():
    out, _ = print_piped([["d", "$1", "\x1b[31mred"]])

    assert out.splitlines()[1].split() == ["d", "$1", "red"]


def test_a_read_only_command_runs_without_garbage_collection():
    gc.enable()
    try:
        inside = read_only(gc.isenabled)()
    finally:
        gc.enable()

    assert inside is False
