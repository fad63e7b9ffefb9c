"""Samples, replicates and branches of real runs, as questions; and what `harness compare` makes of them."""

import json
import re

from flightlog.app.runtime import open_runtime
from flightlog.lab.service import open_run
from flightlog.lab.statistics import service
from flightlog.lab.statistics.analysis import DIFFERS
from support.cli_runs import within
from support.labs import again, bash, config, run, script
from support.samples_made import make_source_run, write_samples

LS = ("Bash", {"command": "ls", "description": "List"})
CAT = ("Bash", {"command": "cat <b>x</b>"})


def harness(root, verb, *words):
    done = within(None, "lab", verb, *words, "--runs-dir", str(root / "runs"))
    return done.code, done.out, done.err


def test_samples_are_compared_with_the_recording_and_with_variants(tmp_path):
    book = make_source_run(tmp_path)
    write_samples(book, 1, 0, [LS] * 9 + ["hello"])
    write_samples(book, 1, 1, [CAT] * 10, label="told to read")

    code, out, err = harness(tmp_path, "compare", "run", "--json")

    assert code == 0, err
    (answer,) = json.loads(out)["statistics"]["questions"]
    vanilla, variant = answer["groups"]
    assert answer["recorded_action"] == "Bash ls"
    assert (vanilla["name"], variant["name"], variant["label"]) == (
        "request_001",
        "request_001_v01",
        "told to read",
    )
    assert (vanilla["same_as_recorded"]["count"], variant["same_as_recorded"]["count"]) == (9, 0)
    assert [(action["label"], action["count"]) for action in vanilla["actions"]] == [
        ("Bash ls", 9),
        ("(words only)", 1),
    ]
    assert vanilla["means"]["output_tokens"]["mean"] == 36.5
    assert vanilla["means"]["cost_usd"]["interval"]["low"] > 0
    assert answer["comparisons"][0]["verdict"] == DIFFERS


def test_analysis_links_existing_files_and_keeps_a_handwritten_one(
    tmp_path,
):
    book = make_source_run(tmp_path)
    write_samples(book, 1, 0, [LS] * 6)
    write_samples(book, 1, 1, [CAT] * 6)

    code, out, err = harness(tmp_path, "compare", "run", "--write")

    page = book.path / "analysis.md"
    assert (code, "written: " in err, "request_001_v01 against request_001: differs" in out) == (
        0,
        True,
        True,
    )
    targets = set(re.findall(r"\]\(<([^>]+)>\)", page.read_text()))
    assert len(targets) == 12
    assert all((book.path / target).is_file() for target in targets)
    before = page.read_bytes()
    assert harness(tmp_path, "compare", "run", "--write")[0] == 0
    assert page.read_bytes() == before
    page.write_text("# My own thoughts\n")
    code, _, err = harness(tmp_path, "compare", "run", "--write")
    assert (code, page.read_text()) == (75, "# My own thoughts\n")
    assert "rename" in err


def test_without_anything_sampled_there_is_nothing_to_write(tmp_path):
    make_source_run(tmp_path)

    code, _, err = harness(tmp_path, "compare", "run", "--write")

    assert code == 1
    assert "flightlog lab resample" in err
    assert not (tmp_path / "runs/run/analysis.md").exists()


def test_a_stopping_rule_on_record_decides_which_interval_is_shown(tmp_path):
    book = make_source_run(tmp_path)
    write_samples(book, 1, 0, [LS] * 12, until_width=0.5)

    group = service.analyze_runs(open_runtime(), [again(tmp_path)]).questions[0].groups[0]

    assert group.is_stopped_early
    assert "confidence sequence" in group.actions[0].interval.method


def test_replicates_are_counted_by_what_their_verifiers_say(tmp_path):
    def ran(name, word):
        given = config(tmp_path, script([bash(f"echo {word} > out")], "done"), {"prompt": "go", "count": 5},
                       engine="scripted", verifiers=[{"name": "good", "command": "grep -q good out"}])  # fmt: skip
        return run(
            tmp_path, given, name, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
        )

    analysis = service.analyze_runs(open_runtime(), [ran("a", "good"), ran("b", "bad")])

    (answer,) = [question for question in analysis.questions if question.name == "session 1"]
    assert [
        (group.name, group.outcomes[0].count, group.outcomes[0].n) for group in answer.groups
    ] == [
        ("a", 5, 5),
        ("b", 0, 5),
    ]
    (outcome,) = [test for test in answer.comparisons[0].tests if test.measure == "outcome"]
    assert outcome.p_value < 0.01


def test_by_tool_is_coarser_than_by_arguments(tmp_path):
    book = make_source_run(tmp_path)
    write_samples(book, 1, 0, [LS, CAT] * 3)

    by = {
        grouping: service.analyze_runs(
            open_runtime(), [open_run(open_runtime(), tmp_path / "runs", "run")], grouping
        ).questions[0]
        for grouping in service.BY
    }

    assert [len(by[grouping].groups[0].actions) for grouping in ("arguments", "tool")] == [2, 1]
