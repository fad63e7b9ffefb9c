"""What a person sees on terminals of several widths, and what a pipe gets."""

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import click
import pytest

from flightlog.cli.main import COMMANDS, cli
from flightlog.live.dashboard_text import SPARKS
from flightlog.views.transcript_formats import MARKS
from support.cli_runs import FLIGHTLOG, environment, within
from support.transcripts import SESSION, assistant, user, write

WIDE = "表が広い" * 30
HOSTILE = "\x1b]0;owned\x07 &#8238;gnp.exe &#27;]0;owned&#7; \x1b[2J"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(config, columns, *words, **environ):
    """Return what a command prints on a terminal of `columns`, lines as they were written."""
    leader, terminal = pty.openpty()
    os.set_blocking(leader, False)
    env = environment(config, TERM="xterm", COLUMNS=str(columns), PAGER="cat", **environ)
    child = subprocess.Popen(
        [FLIGHTLOG, *words], env=env, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL
    )
    os.close(terminal)
    data, end = b"", time.monotonic() + 30
    while time.monotonic() < end:
        select.select([leader], [], [], 0.2)
        try:
            data += os.read(leader, 1 << 16)
        except BlockingIOError:
            continue
        except OSError:  # the other end is closed
            break
    child.wait()
    os.close(leader)
    return data.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")


def width_of(line):
    from rich.cells import cell_len

    return cell_len(ANSI.sub("", line))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    config = tmp_path_factory.mktemp("terminal")
    titles = ("short", "a long title " * 20, WIDE, HOSTILE, "two\nlines\tand a tab")
    for number, title in enumerate(titles):
        name = f"{number}{SESSION[1:]}"
        write(config, name, user(title, 1, cwd=f"/home/ada/{'p' * 40}"), assistant(f"m{number}", 2))
    return config


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_session_list_has_one_line_per_session(archive, columns):
    head, *rows = on_terminal(archive, columns, "session", "list")

    assert len(rows) == 5
    assert "session" in head
    assert all(width_of(line) <= columns for line in (head, *rows))
    assert all(row.startswith(tuple("01234")) for row in rows)
    assert not any("\x1b]" in row for row in rows)
    assert sum("…" in row for row in rows) >= 2


def test_session_list_on_a_pipe_has_one_line_per_session(archive):
    out = within(archive, "session", "list").out

    assert len(out.splitlines()) == 6
    assert "\x1b" not in out


def test_show_wraps_words_below_their_indent_and_renders_markdown(tmp_path):
    code = "```python\ndef f():\n    return 1\n```\n"
    text = f"## Plan\n\na <title> tag\nnext line\n\n- **first** {'word ' * 40}\n\n{code}"
    block = {"type": "text", "text": text}
    write(tmp_path, SESSION, user("x " + HOSTILE, 1), assistant("m", 2, block))

    lines = on_terminal(tmp_path, 60, "session", "show", SESSION)
    plain = [ANSI.sub("", line) for line in lines]

    (first,) = (number for number, line in enumerate(plain) if " • first word" in line)
    indent = plain[first].index("first")
    assert plain[first + 1][:indent].strip() == ""
    assert plain[first + 1][indent:].startswith("word word")
    assert all(width_of(line) <= 60 for line in lines)
    assert "**" not in "\n".join(plain)
    at = plain.index("    a <title> tag")
    assert plain[at + 1] == "    next line"
    assert any(len(ANSI.findall(line)) > 3 for line in lines if "def" in line), "syntax color"
    assert not any("\x1b]" in line or "\u202e" in line for line in lines)
    assert "gnp.exe" in "\n".join(plain)


def test_show_without_colors_and_on_a_pipe_is_plain(archive):
    session = f"0{SESSION[1:]}"

    assert not any(
        code in line
        for line in on_terminal(archive, 80, "session", "show", session, NO_COLOR="1")
        for code in ("\x1b[3", "\x1b[9")
    )
    assert "\x1b" not in within(archive, "session", "show", session).out


def test_brief_keeps_prompts_last_answers_and_failures(tmp_path):
    texts = [{"type": "text", "text": text} for text in ("first thought", "the answer")]
    write(
        tmp_path, SESSION, user("do it", 1), assistant("m1", 2, texts[0]),
        assistant("m2", 3, texts[1]), user("again", 4), assistant("m3", 5, texts[0]),
    )  # fmt: skip

    out = within(tmp_path, "session", "show", SESSION, "--brief").out

    assert [word in out for word in ("do it", "the answer", "again")] == [True] * 3
    assert out.count("first thought") == 1
    assert within(tmp_path, "session", "show", SESSION, "--brief", "--full").code == 2


def test_usage_is_sorted_by_cost_and_until_includes_its_day(tmp_path):
    for number, (day, tokens) in enumerate([(1, 10), (2, 9_000_000), (3, 500)]):
        at = f"2026-11-0{day}T12:00:00Z"
        use = {"input_tokens": tokens, "output_tokens": 1}
        name = f"{number}{SESSION[1:]}"
        write(
            tmp_path, name, user("x", 1, timestamp=at, cwd=f"/p{number}"),
            assistant(f"m{number}", 2, tokens=use, timestamp=at, cwd=f"/p{number}"),
        )  # fmt: skip

    out = within(tmp_path, "session", "usage", "--by", "project").out
    days = within(tmp_path, "session", "usage", "--since", "2026-11-02", "--until", "2026-11-02")
    wrong = within(tmp_path, "session", "list", "--since", "1d", "--until", "7d")

    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["/p1", "/p2", "/p0"]
    assert "████████" in out.splitlines()[1]
    assert [line.split()[0] for line in days.out.splitlines()[1:]] == ["2026-11-02", "total"]
    assert (wrong.code, "--until is not after --since" in wrong.err) == (2, True)


def test_models_keep_their_names_while_a_bar_can_go(tmp_path):
    models = ("claude-sonnet-4-5-20250929", "claude-sonnet-4-20250514")
    for number, model in enumerate(models):
        record = assistant(f"m{number}", 2, tokens={"cache_read_input_tokens": 10_000_000})
        record["message"]["model"] = model
        write(tmp_path, f"{number}{SESSION[1:]}", user("x", 1), record)

    lines = on_terminal(tmp_path, 72, "session", "usage", "--by", "model")

    assert {line.split()[0] for line in lines[1:3]} == set(models)


def test_the_active_block_has_a_projection(tmp_path):
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 60))
    use = {"input_tokens": 1_000_000, "output_tokens": 1}
    write(
        tmp_path, SESSION, user("x", 1, timestamp=at), assistant("m", 2, tokens=use, timestamp=at)
    )

    block = json.loads(within(tmp_path, "session", "usage", "--by", "block", "--json").out)
    shown = within(tmp_path, "session", "usage", "--by", "block").out

    active = block["active_block"]
    assert active["projected_usd"] > active["cost_usd"] > 0
    assert active["cost_per_hour_usd"] == pytest.approx(active["cost_usd"] * 12), "five minutes"
    assert "active block: $" in shown


def test_every_mark_of_a_transcript_is_in_the_legend_and_in_its_page():
    out = within(None, "help", "symbols").out
    page = (Path(__file__).parents[2] / "docs/reference/symbols.md").read_text()

    for mark in (*MARKS.values(), *SPARKS, "≥", "↑", "░"):
        assert mark.strip() in out
        assert mark.strip() in page


def test_help_of_a_command_is_that_of_its_option():
    assert "Usage: flightlog session list" in within(None, "help", "session", "list").out
    assert "Usage: flightlog [OPTIONS]" in within(None, "help").out
    wrong = within(None, "help", "sesion")
    assert (wrong.code, "did you mean 'session'" in wrong.err.lower()) == (2, True)


def test_no_short_help_line_is_cut():
    def cut_lines(command, path):
        context = click.Context(command)
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            inner = command.get_command(context, name)
            is_root = command is cli
            text = COMMANDS[name][2] if is_root else inner.get_short_help_str(1000)
            if len(text) > 45:
                yield f"{path} {name}: {text}"
            yield from cut_lines(inner, f"{path} {name}")

    assert list(cut_lines(cli, "flightlog")) == []


def test_facts_and_passages_are_cut_between_words(tmp_path):
    words = "zebra " + "elephants giraffes " * 8
    write(tmp_path, SESSION, user(words, 1), assistant("m", 2, {"type": "text", "text": "ok"}))

    for command in (("up",), ("session", "search", "zebra")):
        lines = [ANSI.sub("", line) for line in on_terminal(tmp_path, 50, *command)]
        shown = [line for line in lines if "elephants" in line or "giraffes" in line]
        assert len(shown) > 1
        assert max(map(width_of, shown)) <= 50
        assert {word.strip("'…,") for line in shown[1:-1] for word in line.split()} <= set(
            words.split()
        )
