import os

from flightlog.lab.inspect import compare_runs
from support.labs import bash, config, run, script


def test_runs_are_compared_session_by_session_and_file_by_file(tmp_path):
    def make_run(name, word, **more):
        root = tmp_path / name
        root.mkdir()
        scenario = script([bash(f"echo same > same; echo {word} > other")], "done")
        return run(
            root,
            config(root, scenario, {"prompt": "go", "count": 2}, engine="scripted", **more),
            name,
        )

    comparison = compare_runs(
        [make_run("a", "left"), make_run("b", "right", max_turns=7)], os.environ["PATH"]
    )

    (session,) = comparison["sessions"]
    assert (session["files_equal"], session["files_different"]) == (["same"], ["other"])
    assert [(group["count"], group["stop_reasons"]) for group in session["groups"]] == [
        (2, {"completed": 2})
    ] * 2
    assert session["groups"][0]["file_writes"] == {"mean": 2, "sd": 0, "n": 2}
    assert set(comparison["config_differences"]) == {"max_turns", "scenario"}
