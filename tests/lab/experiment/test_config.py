"""Experiment files: what they may say, what is refused, and what another file may not do."""

import json
import re

import pytest
from markdown_it import MarkdownIt

from flightlog.lab.experiment.config import (
    CELLS_MAX,
    arm_differences,
    list_variables,
    parse_experiment,
    resolve_references,
)
from flightlog.lab.experiment.report import (
    build_report,
    describe_budget,
    difference_table,
    render_html,
    render_markdown,
)
from flightlog.lab.experiment.service import _check_count
from flightlog.lab.experiment.tasks import build_run_config, check_task, freeze_files
from flightlog.model.errors import Invalid, Misconfigured

TASK = {"id": "one", "directory": "work", "prompt": "Do it.", "verifiers": ["true"]}
ARM = {"name": "base", "model": "claude-opus-5-5"}


def parse(folder, task=TASK, arms=(ARM,), **more):
    data = {"tasks": [task], "arms": list(arms)} | more
    return parse_experiment(json.dumps(data), folder, "file")


def test_paths_are_relative_to_the_file_and_defaults_are_set(tmp_path):
    config = parse(tmp_path, TASK | {"setup": "make"})

    (task,) = config.tasks
    assert task.directory == str(tmp_path / "work")
    assert task.setup_commands == ("make",)
    assert (config.name, config.attempts) == ("file", 1)
    assert config.primary_outcome == "verifier 1"


@pytest.mark.parametrize("key", ["container", "image", "dockerfile", "docker_image"])
def test_a_task_with_a_container_is_refused_with_the_reason(tmp_path, key):
    with pytest.raises(Misconfigured, match="flightlog starts none") as refused:
        parse(tmp_path, TASK | {key: "python:3.12"})

    assert "setup" in refused.value.hint


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"atempts": 2}, "atempts"),
        ({"primary": "speed"}, "primary is one of: verifier 1, cost_usd"),
        ({"attempts": 0}, "at least 1"),
        ({"max_budget_usd": 0}, "above 0"),
        ({"arms": [ARM, ARM]}, "two of the arms are called base"),
        ({"arms": [ARM | {"agent": "cursor"}]}, "agent is one of"),
        ({"tasks": [TASK | {"repo": "shop"}]}, "one of repo, directory"),
        (
            {"tasks": [TASK | {"verifiers": [{"command": "a", "function": "b:c"}]}]},
            "one of command",
        ),
        ({"tasks": [{"from": "none.yaml", "id": "x"}]}, "only `from`"),
        ({"tasks": []}, "at least one task"),
        ({"tasks": 5}, "`tasks` is not a list"),
        ({"tasks": [TASK | {"verifiers": 5}]}, "`verifiers` is not a list"),
        ({"tasks": [TASK | {"verifiers": [{"name": "steps", "command": "a"}]}]}, "called steps"),
        ({"tasks": [TASK | {"setup": "a\0b"}]}, "a NUL character"),
        ({"attempts": 10**9}, "at most 100,000 attempts"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path, more, message):
    data = {"tasks": [TASK], "arms": [ARM]} | more

    with pytest.raises(Misconfigured, match=message):
        parse_experiment(json.dumps(data), tmp_path, "file")


@pytest.mark.parametrize(
    ("task", "arm"),
    [({"max_turns": 0}, {}), ({}, {"env": {"A_TOKEN": "plain"}})],
)
def test_a_setting_that_runs_refuse_is_refused_before_the_start(tmp_path, task, arm):
    config = parse(tmp_path, TASK | task, (ARM | arm,))

    with pytest.raises(Misconfigured, match="the experiment cannot be used"):
        build_run_config(tmp_path / "exp", config, ("one", "base"), None)


@pytest.mark.parametrize(
    ("code", "message"),
    [("def other(work): pass", "has no function f"), ("def (", "is not Python")],
)
def test_a_verifier_whose_function_is_missing_is_refused_before_the_start(tmp_path, code, message):
    (tmp_path / "checks.py").write_text(code)
    config = parse(tmp_path, TASK | {"verifiers": [{"function": "checks.py:f"}]})

    with pytest.raises(Invalid, match=message):
        check_task(config.tasks[0])


def test_differences_between_arms_are_the_settings_that_differ(tmp_path):
    other = ARM | {"name": "careful", "system_prompt": "Test first.", "tools": ["Read"]}
    other["agent"] = "claude-code"  # another spelling of the same agent

    differences = arm_differences(parse(tmp_path, arms=(ARM, other)).arms)

    assert differences["system_prompt"] == ["", "Test first."]
    assert set(differences) == {"system_prompt", "tools"}


def test_a_difference_inside_a_setting_is_named_and_shown(tmp_path):
    text = "Be exact. " * 20
    one = ARM | {"settings": {"env": {"A": "1", "B": "2"}}, "system_prompt": f"{text}Test first."}
    other = ARM | {
        "name": "b",
        "settings": {"env": {"A": "1"}},
        "system_prompt": f"{text}Be brief.",
    }

    config = parse(tmp_path, arms=(one, other))

    assert arm_differences(config.arms)["settings.env.B"] == ["2", None]
    assert difference_table(build_report(config, {}))[1] == [
        [
            "system_prompt",
            "…ct. Be exact. Be exact. Test first.",
            "…ct. Be exact. Be exact. Be brief.",
        ],
        ["settings.env.B", "2", "-"],
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "Nothing limits the cost"),
        ({"max_budget_usd": 5}, "cost at most about $5.00"),
        (
            {"max_budget_usd": 5, "arms": [ARM, ARM | {"name": "b", "model": "none-9"}]},
            "for none-9:",
        ),
    ],
)
def test_what_limits_the_cost_is_said_before_anything_is_paid(tmp_path, more, message):
    assert message in describe_budget(parse(tmp_path, **more))


@pytest.mark.parametrize("limit", ["timeout_seconds", "setup_timeout_seconds"])
@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_limit_that_is_not_positive_is_refused_with_its_task(tmp_path, limit, seconds):
    with pytest.raises(Misconfigured, match="time limits of task one"):
        parse(tmp_path, TASK | {limit: seconds})


def test_variables_are_found_in_commands_and_code():
    code = 'import os\nos.environ["A"], os.getenv("B"), os.environ.get("C")'

    assert list_variables("echo $D ${E}", code) == ["A", "B", "C", "D", "E"]


def test_a_reference_is_resolved_only_for_a_listed_variable():
    environ = {"TOKEN": "t", "OTHER": "o"}

    assert resolve_references({"KEY": "x-${TOKEN}"}, ["TOKEN"], environ) == {"KEY": "x-t"}
    with pytest.raises(Misconfigured, match="not listed: OTHER"):
        resolve_references({"KEY": "${OTHER}"}, ["TOKEN"], environ)


def test_an_arm_becomes_a_run_with_its_overlay(tmp_path):
    arm = ARM | {"claude_md": "Be brief.", "settings": {"model": "x"}, "system_prompt": "Hello."}
    config = freeze_files(tmp_path / "exp", parse(tmp_path, arms=(arm,)))

    run = build_run_config(tmp_path / "exp", config, ("one", "base"), 0.5)

    assert (tmp_path / "exp/arms/base/CLAUDE.md").read_text() == "Be brief."
    assert run.load_project_settings
    assert "cp -R " in run.pre_run_commands[0].command
    assert (run.system_prompt, run.max_budget_usd) == ("Hello.", 0.5)
    assert run.tags == ("experiment:exp", "task:one", "arm:base")


def test_a_verifier_may_be_text_code_or_a_function(tmp_path):
    function = {"function": "c.py:score"}
    listed = ["make test", {"python": "print(1)"}, function, {"python": "c.py:score"}]

    (task,) = parse(tmp_path, TASK | {"verifiers": listed}).tasks

    assert [verifier.command for verifier in task.verifiers] == [
        "make test",
        "python3 -c 'print(1)'",
        "",
        "",
    ]
    functions = {verifier.function for verifier in task.verifiers[2:]}
    assert functions == {str(tmp_path / "c.py:score")}


def test_a_hidden_file_outside_the_work_tree_is_refused(tmp_path):
    (tmp_path / "h").write_text("x")
    task = TASK | {"verifiers": [{"command": "true", "files": {"../h": "h"}}]}

    with pytest.raises(Invalid, match="outside the work tree"):
        check_task(parse(tmp_path, task).tasks[0])


def test_added_attempts_stay_within_the_limit_of_an_experiment(tmp_path):
    config = parse(tmp_path, attempts=CELLS_MAX - 1)

    _check_count(config, 1)
    with pytest.raises(Invalid, match="at most 100,000"):
        _check_count(config, 2)


def test_hostile_text_in_a_report_is_inert(tmp_path):
    evil = "<script>x</script>\x1b]0;t\x07 [a](javascript:x) ![i](http://x.example/i)"
    task = TASK | {"verifiers": [{"name": evil, "command": "true"}]}
    arms = (ARM, ARM | {"name": "other", "system_prompt": evil})
    report = build_report(parse(tmp_path, task, arms, hypothesis=evil), {})

    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(render_markdown(report))
    page = render_html(report, {})

    for text in (shown, page):
        assert "&lt;script&gt;" in text
        assert not re.search(r"<script|<img|<a |\x1b", text)
