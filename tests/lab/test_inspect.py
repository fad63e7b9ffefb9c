import os

import pytest

from flightlog.lab.inspect import RunAddress, inspect_address, parse_run_address
from flightlog.model.errors import Invalid, NotFound
from support.labs import bash, config, replies, run, script

PATH = os.environ["PATH"]


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("my-run", RunAddress("my-run")),
        ("runs/my-run#2", RunAddress("runs/my-run", 2)),
        ("r#2.14", RunAddress("r", 2, turn=14)),
        ("r#2r3.14", RunAddress("r", 2, 3, turn=14)),
        ("r#1@abc.2", RunAddress("r", 1, subagent="abc", turn=2)),
    ],
)
def test_address_is_parsed_as_people_write_it(written, where):
    assert parse_run_address(written) == where


@pytest.mark.parametrize("written", ["", "#2", "r#0", "r#2.0", "r#x", "r#2@../x.1"])
def test_invalid_address_is_refused(written):
    with pytest.raises(Invalid):
        parse_run_address(written)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    root = tmp_path_factory.mktemp("inspect")
    scenario = script([{"text": "I write."}, bash("echo a > a; echo b > b")], "done")
    return run(root, config(root, scenario, {"prompt": "go", "count": 2}, engine="scripted"))


def test_a_step_is_shown_with_its_request_tools_changes_and_cost(book):
    step = inspect_address(book, RunAddress("r", 1, 2, turn=1), PATH)

    assert (step["session_dir"], step["text"]) == ("session_01_r02", ["I write."])
    assert [tool["name"] for tool in step["tools"]] == ["Bash"]
    assert [change["file_path"] for change in step["file_changes"]] == ["a", "b"]
    assert (step["request"]["index"], step["request"]["status"]) == (1, 200)
    assert step["cost_usd"] > 0
    assert step["uuid_map"]["shadow_git_tag"] == "_step_01_r02_002"


def test_a_session_lists_its_turns_and_a_run_its_files(book):
    session = inspect_address(book, RunAddress("r", 1), PATH)
    whole = inspect_address(book, RunAddress("r"), PATH)

    assert [(turn["tools"], turn["files_changed"]) for turn in session["turns"]] == [
        (["Bash"], 2),
        ([], 0),
    ]
    assert session["session_dir"] == "session_01_r01"
    assert [change["path"] for change in whole["file_changes"]] == ["a", "b"]


@pytest.mark.parametrize(
    "where",
    [
        RunAddress("r", 2),
        RunAddress("r", 1, 3),
        RunAddress("r", 1, turn=3),
        RunAddress("r", 1, subagent="x", turn=1),
    ],
)
def test_missing_address_is_refused_with_those_that_exist(book, where):
    with pytest.raises(NotFound) as error:
        inspect_address(book, where, PATH)

    assert error.value.hint.startswith("it has")


def test_subagents_have_addresses_of_their_own(tmp_path):
    agent = {"tool": "Agent", "input": {"description": "d", "prompt": "write", "subagent_type": "general-purpose",
                                        "run_in_background": False}}  # fmt: skip
    scenario = {
        "rules": [
            {"when": {"subagent": True}, "replies": replies([bash("echo sub > sub")], "done")},
            {"replies": replies([agent], "done")},
        ]
    }
    book = run(tmp_path, config(tmp_path, scenario, "go"))

    subagent = next(iter(inspect_address(book, RunAddress("r", 1), PATH)["subagents"]))
    step = inspect_address(book, RunAddress("r", 1, subagent=subagent, turn=1), PATH)

    assert [change["file_path"] for change in step["file_changes"]] == ["sub"]
    assert step["request"]["agent_context"] == "subagent"
    assert list((book.path / "session_01").glob(f"subagent_*_{subagent}.json"))
