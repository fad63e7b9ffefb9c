import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flightlog.cli.main import COMMANDS, EXIT_CODES, cli, run_alias, run_command
from flightlog.model.errors import (
    EXTRAS,
    Conflict,
    Invalid,
    Misconfigured,
    NotFound,
    Unavailable,
    Unreadable,
)
from support.cli_runs import FLIGHTLOG, environment, flightlog, within
from support.recordings import config_dir
from support.transcripts import SESSION, user, write


def commands(group, *path):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


EVERY = list(commands(cli))


def cpu_s(*command):
    """The processor time a command takes: the wall's depends on who else is working."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime


def test_help_is_quick():
    """The budget is 120 ms; a machine that needs more for Python and click alone is given three times that."""
    ours = min(cpu_s(FLIGHTLOG, "--help") for _ in range(10))
    floor = min(cpu_s(sys.executable, "-c", "import click") for _ in range(10))

    assert ours < max(0.12, 3 * floor)


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_has_help_with_an_example(path):
    ran = within(None, *path, "--help")

    assert ran.code == 0
    assert f"Usage: flightlog {' '.join(path)}" in ran.out
    assert "Example" in ran.out
    assert f"flightlog {path[0]}" in ran.out.partition("Example")[2]


def test_the_list_of_commands_says_what_the_commands_say():
    listed = "".join(within(None, "--help").out.split())  # lines are wrapped, also after a hyphen

    for name, (_, _, line) in COMMANDS.items():
        assert "".join(f"{name}{line}".split()) in listed
        assert line.endswith(".")
        assert within(None, name, "--help").code == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound, 1),
        (Invalid, 2),
        (Unreadable, 3),
        (Misconfigured, 4),
        (Unavailable, 69),
        (Conflict, 75),
    ],
)
def test_an_error_is_one_line_a_hint_and_its_exit_code(capsys, error, code):
    @click.command()
    def fails():
        raise error("no such thing: \x1b[31mx", hint="flightlog doctor")

    assert run_command(fails, "flightlog", []) == code
    assert capsys.readouterr().err == "flightlog: no such thing: x\n  flightlog doctor\n"
    assert dict(EXIT_CODES)[error if error is not NotFound else EXIT_CODES[-1][0]] == code


def test_an_interruption_is_130_and_debug_shows_the_traceback(capsys):
    @click.command()
    def raise_interrupt():
        raise KeyboardInterrupt

    @click.command()
    @click.option("--debug", is_flag=True)
    def fails(*, debug):
        raise NotFound("x")

    assert run_command(raise_interrupt, "flightlog", []) == 130
    assert "interrupted" in capsys.readouterr().err
    with pytest.raises(NotFound):
        run_command(fails, "flightlog", ["--debug"])


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("session", "nonsense"), ("session", "show"), ("up", "--nonsense")]
)
def test_invalid_arguments_exit_with_2_and_no_traceback(arguments):
    ran = within(None, *arguments)

    assert ran.code == 2
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments", [("session", "list"), ("up",), ("doctor",), ("session", "usage")]
)
def test_a_relative_config_dir_is_refused_with_what_to_type(tmp_path, arguments):
    ran = within(tmp_path, *arguments, CLAUDE_CONFIG_DIR="here/claude")

    assert ran.code == 4
    assert ran.err.splitlines() == [
        "flightlog: CLAUDE_CONFIG_DIR is not an absolute path: here/claude",
        '  export CLAUDE_CONFIG_DIR="$PWD/here/claude"',
    ]


def test_a_home_that_does_not_exist_is_refused(tmp_path):
    assert within(tmp_path, "session", "list", CLAUDE_CONFIG_DIR="~no-such-user/x").code == 4
    assert within(tmp_path, "doctor", FLIGHTLOG_HOME="relative").code == 4


def test_several_config_dirs_are_read_together(tmp_path):
    one, two = (
        write(tmp_path / "1", SESSION, user("one")),
        write(tmp_path / "2", "other", user("two")),
    )
    both = f"{one.parents[2]}, {two.parents[2]}"

    sessions = json.loads(within(tmp_path, "session", "list", "--json", CLAUDE_CONFIG_DIR=both).out)

    assert {session["title"] for session in sessions} == {"one", "two"}


def test_sessions_are_read_from_the_home_directory_by_default(tmp_path):
    write(tmp_path / ".claude", SESSION, user("at home"))
    ran = within(None, "session", "list", "--json", HOME=str(tmp_path))

    assert [session["title"] for session in json.loads(ran.out)] == ["at home"]


@pytest.mark.parametrize(
    "line", ["session list", "session show 2123f2df --full", "session usage", "--help"]
)
def test_a_reader_that_leaves_ends_the_command_quietly(tmp_path, line):
    root = config_dir(tmp_path, "2.1.325/multi-turn-tools")
    reader, writer = os.pipe()
    os.close(reader)

    command = [FLIGHTLOG, *line.split()]
    ran = subprocess.run(
        command, env=environment(root), stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)

    assert (
        ran.returncode,
        [line for line in ran.stderr.splitlines() if not line.startswith(b"prices:")],
    ) == (0, [])


def test_output_encoding_without_our_characters_is_no_failure(tmp_path):
    root = config_dir(tmp_path, "2.1.325/multi-turn-tools")

    ran = flightlog(root, "session", "show", "2123f2df", PYTHONIOENCODING="ascii")

    assert (ran.code, "Traceback" in ran.err) == (0, False)


def test_the_other_names_are_installed_beside_it():
    beside = Path(sys.executable).parent
    for name in ("ralph-runtime", "harness", "chat-retro", "issue-workflow", "ml-data-collector"):
        assert (beside / name).is_file()

    ran = subprocess.run([beside / "harness", "--help"], capture_output=True, text=True, check=True)

    assert "Usage: harness" in ran.stdout


def test_python_dash_m_is_the_same_program():
    ran = subprocess.run(
        [sys.executable, "-m", "flightlog", "--version"], capture_output=True, text=True, check=True
    )

    assert ran.stdout.startswith("flightlog, version ")


def test_every_extra_is_one_the_package_has():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    named = {name for extra in EXTRAS.values() for name in extra.split(",")}
    assert named <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("sesion",), "session"),
        (("harness", "list"), "lab"),
        (("usage", "--json"), "session usage"),
        (("session", "lst"), "list"),
        (("retro", "patern"), "patterns"),
        (("session", "list", "--projct", "x"), "--project"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(tmp_path, words, meant):
    ran = within(tmp_path, *words)

    assert ran.code == 2
    assert f"Did you mean '{meant}'?" in ran.err


def test_an_outcome_names_the_next_command_as_it_was_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["prefs", "set", "focus_areas", "a"]

    with CliRunner().isolation(env=environment(tmp_path)) as (_, err, _):
        run_alias("retro", "chat-retro", words)
        renamed = err.getvalue().decode()
    plain = within(tmp_path, "retro", *words)

    assert renamed == "it applies from the next analysis: chat-retro analyze\n"
    assert plain.err == "it applies from the next analysis: flightlog retro analyze\n"


def test_a_hint_repeats_the_program_and_the_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = {"XDG_CACHE_HOME": str(tmp_path)}

    shown = within(tmp_path, "--samples", "session", "show", "2123f2df#9", **cache)
    listed = within(
        tmp_path, "--samples", "session", "list", "--since", "2026-01-01", "--limit", "1", **cache
    )
    none = within(tmp_path, "--samples", "session", "list", "--project", "nosuch", **cache)
    with CliRunner().isolation(env=environment(tmp_path)) as (_, err, _):
        run_alias("lab", "harness", ["inspect", "nosuch"])
        lab = err.getvalue().decode()

    assert "flightlog --samples session show 2123f2df" in shown.err
    assert listed.err == "2 more: flightlog --samples session list --since 2026-01-01 --limit 0\n"
    assert "none of 3 sessions matches" in none.err
    assert "  harness list\n" in lab
