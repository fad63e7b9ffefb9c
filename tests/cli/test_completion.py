"""Completion as a shell asks for it: commands, options, ids of every kind; and nothing where nothing is."""

import subprocess

import pytest

from flightlog.cli.completion import NAMES
from support.cli_runs import FLIGHTLOG
from support.real_agent import make_bench
from support.traced import build


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return build(make_bench(tmp_path_factory.mktemp("tab") / "machine"))


def complete_word(project, *words, program="flightlog", shell="zsh", cwd=None):
    """What a shell is offered for the last word."""
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    typed = {
        variable: f"{shell}_complete",
        "COMP_WORDS": " ".join((program, *words)),
        "COMP_CWORD": str(len(words)),
    }
    ran = subprocess.run([FLIGHTLOG.with_name(program)], cwd=cwd or project.top, env={**project.environment(), **typed},
                         capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def test_commands_options_and_ids_are_offered(project):
    assert "trace" in complete_word(project, "tr")
    assert "--json" in complete_word(project, "session", "list", "--js")
    assert project.session in complete_word(project, "session", "show", project.session[:3])
    assert project.session in complete_word(project, "trace", project.session[:3])
    assert project.issue in complete_word(project, "trace", project.issue[:4])
    assert project.issue in complete_word(project, "issue", "preview", "")
    assert "tax" in complete_word(project, "lab", "inspect", "t")
    assert "session-001-shop" in complete_word(project, "loop", "status", "--session", "s")
    assert any(
        word.startswith("chat-") for word in complete_word(project, "dataset", "judge", "chat")
    )
    assert "cost-models" in complete_word(project, "retro", "feedback", "rate", "cost")


def test_the_other_names_complete_too(project):
    assert "tax" in complete_word(project, "inspect", "t", program="harness")
    assert "status" in complete_word(project, "st", program="ralph-runtime")


def test_unknown_prefix_completes_nothing_and_prints_no_error(project, tmp_path):
    assert complete_word(project, "lab", "inspect", "", cwd=tmp_path) == []
    assert complete_word(project, "session", "show", "no-such-beginning") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_every_name(project, shell):
    ran = project.flightlog("completion", shell)

    assert ran.returncode == 0
    for name in NAMES:
        assert f"_{name.replace('-', '_').upper()}_COMPLETE={shell}_complete" in ran.stdout


def test_a_real_bash_completes_an_id(project):
    script = (
        f'PATH="{FLIGHTLOG.parent}:$PATH"; eval "$(flightlog completion bash)"; '
        f"COMP_WORDS=(flightlog session show {project.session[:4]}); COMP_CWORD=3; "
        '_flightlog_completion flightlog; echo "${COMPREPLY[@]}"; complete -p harness'
    )
    ran = subprocess.run(["bash", "-c", script], cwd=project.top, env=project.environment(), capture_output=True,
                         text=True, timeout=60, check=False)  # fmt: skip

    assert ran.stdout.split()[0] == project.session
    assert "_harness_completion" in ran.stdout
