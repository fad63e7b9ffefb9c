"""Experiments carried out: once each, whatever is killed, within the budget, with consent."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from flightlog.lab.replay.recorded_context import canonical_value
from support.cpu_time import measure_cpu
from support.experiments import experiment_file, flightlog, git, harness, report, start
from support.labs import lines
from support.pages import WEB_ROOT, running
from support.waiting import alive, until


def results(root):
    path = root / "runs" / "prices" / ".results.jsonl"
    return lines(path) if path.exists() else []


def kill_twice(root, more):
    """Run an experiment, kill its process twice on the way, and let it end."""
    whole = more["tasks"] * 2 * more["attempts"]
    peaks = []
    words = ("run", str(experiment_file(root, **more)))
    for share in (1, 2):
        process = start(root, "lab", "experiment", *words, "--runs-dir", "runs")
        until(lambda share=share: len(results(root)) >= whole * share // 3, 600)
        status = Path(f"/proc/{process.pid}/status").read_text()
        peaks.append(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]))
        process.kill()
        process.communicate()
        words = ("resume", "prices")
    assert peaks[1] <= 1.1 * peaks[0], "memory does not grow with the results"
    return harness(root, "experiment", *words)


def check_killed(root, ended, whole):
    document = report(root)
    scored = [(result["task"], result["arm"], result["attempt"]) for result in results(root)]
    assert ended.code == 0, ended.err
    assert len(scored) == len(set(scored)) == whole
    assert len({cell["session"] for cell in document["cells"]}) == whole
    for cell in document["cells"]:
        events = lines(root / "runs" / cell["run"] / ".journal.jsonl")
        ends = [event["stop_reason"] for event in events if event["kind"] == "session_ended"]
        assert ends.count("completed") == 1
    assert harness(root, "experiment", "resume", "prices").err.count("passed") == 0
    assert len(results(root)) == whole
    return document


@pytest.fixture(scope="module")
def finished_experiment(tmp_path_factory):
    """An experiment with the real client whose process was killed twice, and its report."""
    root = tmp_path_factory.mktemp("experiment")
    strong = {"model": "claude-haiku-4-5", "system_prompt": "Be exact.", "claude_md": "Be brief."}
    more = {"tasks": 1, "agent": "claude_code", "attempts": 2, "strong": strong}
    return root, check_killed(root, kill_twice(root, more), 4)


def test_a_corrected_file_runs_again_if_only_its_setup_failed(tmp_path):
    path = experiment_file(tmp_path)
    written = path.read_text()
    path.write_text(written.replace("echo ready > setup.txt", "exit 3"))
    failed = harness(tmp_path, "experiment", "run", str(path))
    path.write_text(written)

    ran = harness(tmp_path, "experiment", "run", str(path))
    again = harness(tmp_path, "experiment", "run", str(path))

    assert "run the file again" in failed.err
    assert (ran.code, report(tmp_path)["done"]) == (0, 2), ran.err
    assert (again.code, "resume prices" in again.err) == (75, True)


def test_a_setup_that_takes_too_long_ends_with_all_it_started(tmp_path):
    path = experiment_file(tmp_path)
    data = json.loads(path.read_text())
    slow = {"setup": "sleep 600 & echo $! > pid; wait", "setup_timeout_seconds": 1}
    path.write_text(json.dumps(data | {"tasks": [data["tasks"][0] | slow]}))

    ran = harness(tmp_path, "experiment", "run", str(path))

    (pid,) = (tmp_path / "runs").rglob("pid")
    assert "failed with 124" in ran.err
    assert not alive(int(pid.read_text()))


def run_once(root, changes, task=None, **arm):
    """Run one task with one arm, each with changes, and return the cell of the report."""
    path = experiment_file(root, attempts=1)
    data = json.loads(path.read_text())
    task = data["tasks"][0] | (task or {}) | {"verifiers": changes}
    data |= {"primary": "", "tasks": [task], "arms": [data["arms"][0] | arm]}
    path.write_text(json.dumps(data))
    ran = harness(root, "experiment", "run", str(path))
    assert ran.code == 0, ran.err
    (cell,) = report(root)["cells"]
    return cell


def test_whatever_a_verifier_prints_gives_a_result(tmp_path):
    outputs = {
        "deep": "'{\"a\":' + '[' * 1500 + ']' * 1500 + '}'",
        "long": "'{\"score\": 1' + '0' * 400 + '}'",
        "half": '\'{"a\\\\ud83d": 1, "score": 0.5}\'',
        "none": '\'{"score": NaN, "other": 2}\'',
    }
    checks = [{"name": name, "python": f"print({text})"} for name, text in outputs.items()]

    scores = run_once(tmp_path, checks)["scores"]

    assert [scores[name] for name in outputs] == [1, None, 0.5, None]
    assert scores["none.other"] == 2


def test_hidden_files_replace_links_and_stay_in_the_work_tree(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "empty").touch()
    script = tmp_path / "check.sh"
    script.write_text("#!/bin/sh\ntest -f result.txt\n")
    script.chmod(0o755)
    links = {"empty": "a.py", "mine": "b.py", "elsewhere": "c"}
    look = "; ".join(f"ln -s {tmp_path}/{target} {link}" for target, link in links.items())
    bash = {"blocks": [{"tool": "Bash", "input": {"command": f"{look}; echo bad > result.txt"}}]}
    names = ("a.py", "b.py", "c/d.py")
    checks = [{"command": f"python3 {name}", "files": {name: "hidden.py"}} for name in names]
    checks.append({"command": "./check.sh", "files": {"check.sh": "check.sh"}})

    cell = run_once(tmp_path, checks, scenario={"rules": [{"replies": [bash, {"text": "Done."}]}]})

    assert list(cell["passed"].values()) == [False, False, False, True]
    assert (tmp_path / "mine").read_text() == "mine"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_files_of_an_arm_are_not_written_through_links(tmp_path):
    (tmp_path / "mine.md").write_text("mine")
    setup = (
        f"mkdir .claude; ln -s {tmp_path}/mine.md CLAUDE.md; ln -s ../../mine .claude/settings.json"
    )
    check = "grep -q Brief CLAUDE.md && grep -q LANG .claude/settings.json && test ! -L CLAUDE.md"
    arm = {"claude_md": "Brief.", "settings": {"env": {"LANG": "C"}}}

    cell = run_once(tmp_path, [check], {"setup": setup}, **arm)

    assert cell["has_passed"]
    assert (tmp_path / "mine.md").read_text() == "mine"


def test_an_address_of_a_repository_is_read_or_its_failure_explained(tmp_path):
    path = experiment_file(tmp_path, attempts=1)
    data = json.loads(path.read_text())
    task = data["tasks"][0]
    here = {"repo": f"file://{tmp_path}/shop", "commit": task["commit"][:8]}
    path.write_text(json.dumps(data | {"tasks": [task | here]}))
    ran = harness(tmp_path, "experiment", "run", str(path))
    path.write_text(json.dumps(data | {"tasks": [task | {"repo": "http://127.0.0.1:9/shop"}]}))
    failed = harness(tmp_path, "experiment", "run", str(path), "--name", "other")

    assert ran.code == 0, ran.err
    assert f"http://127.0.0.1:9/shop {task['commit']} cannot be fetched" in failed.err
    assert "the whole hash of a commit" in failed.err


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(0)"])
def test_a_function_that_ends_its_process_does_not_pass(tmp_path, ending):
    path = experiment_file(tmp_path, attempts=1)
    (tmp_path / "score.py").write_text(f"import os, sys\ndef score(work):\n    {ending}\n")

    ran = harness(tmp_path, "experiment", "run", str(path))

    assert ran.code == 0, ran.err
    assert [cell["passed"]["length"] for cell in report(tmp_path)["cells"]] == [False, False]
    assert [cell["scores"]["length"] for cell in report(tmp_path)["cells"]] == [0, 0]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("shop", "no such repository"),
        ("hidden.py", "no such file"),
        ("score.py:score", "no such file"),
        ("score.py:scores", "has no function"),
    ],
)
def test_a_dry_run_finds_what_is_missing_and_no_name_is_taken(tmp_path, named, message):
    path = experiment_file(tmp_path, tasks=2)
    head, _, tail = path.read_text().rpartition(f'"{named.removesuffix("s")}"')
    other = named if named.endswith("s") else f"no-{named}"
    path.write_text(f'{head}"{other}"{tail}')

    planned = harness(tmp_path, "experiment", "run", str(path), "--dry-run")
    ran = harness(tmp_path, "experiment", "run", str(path))

    assert planned.code == ran.code == (1 if "no such" in message else 2)
    assert message in planned.err
    assert message in ran.err
    assert not (tmp_path / "runs").exists()


def test_killed_experiment_has_each_result_once(finished_experiment):
    root, document = finished_experiment

    weak, strong = document["arms"]
    assert (weak["name"], weak["attempts"], weak["pass_at_1"]) == ("weak", 2, 0.0)
    assert (strong["name"], strong["attempts"], strong["pass_at_1"]) == ("strong", 2, 1.0)
    assert strong["interval"]["low"] < 1 == strong["interval"]["high"]
    assert strong["cost_usd"] > 0
    assert strong["pass_at_k"] == {"1": 1.0, "2": 1.0}
    (tested,) = [
        comparison for comparison in document["comparisons"] if comparison["p_value"] is not None
    ]
    assert (tested["outcome"], tested["difference"]) == ("tests", 1.0)
    cell = document["cells"][1]
    assert (cell["task"], cell["arm"], cell["attempt"]) == ("task-1", "strong", 1)
    assert cell["scores"]["tests"] == 1
    assert cell["scores"]["length"] == 0.5
    assert cell["scores"]["steps"] == 3
    assert git(root / "shop", "status", "--porcelain") == ""


def test_the_agent_sees_neither_later_commits_nor_hidden_files(finished_experiment):
    root, document = finished_experiment

    shown = harness(root, "inspect", f"{document['cells'][0]['run']}#1.1", "--json")
    changes = {
        change["file_path"]: change["diff"] for change in json.loads(shown.out)["file_changes"]
    }

    assert "+1\n" in changes["commits.txt"]
    assert "setup.txt" in changes["seen.txt"]
    assert "check.py" not in changes["seen.txt"]


def test_a_cell_can_be_branched_by_the_command_it_offers(finished_experiment):
    root, document = finished_experiment

    words = document["cells"][0]["branch_command"].split()
    branched = harness(root, *words[2:-2], "--verify", "grep -q bad result.txt", "--json")

    assert branched.code == 0, branched.err
    (session,) = json.loads(branched.out)[0]["sessions"]
    assert session["verifiers"][-1]["passed"]


def test_an_attempt_goes_on_with_the_settings_of_another_arm(finished_experiment):
    root, document = finished_experiment
    cell = document["cells"][0]
    run, turn = cell["run"], ["--turn", "2"]

    ran = harness(root, "replay", run, *turn, "--arm", "strong", "--json")
    none = harness(root, "replay", run, *turn, "--arm", "none")
    (meta,) = json.loads(ran.out)
    branch = root / "runs" / meta["run_name"]
    requests = [json.loads(path.read_bytes()) for path in branch.rglob("request_00?.json")]
    first = json.loads((root / "runs" / run / "session_01/raw_dumps/request_002.json").read_bytes())

    assert cell["arm_commands"]["strong"].endswith(" --arm strong")
    assert ran.code == 0, ran.err
    made = meta["replay"]["certificate"]
    assert [made[part] for part in ("verdict", "environment")] == ["differs", "differs"]
    assert [made[part] for part in ("context", "files", "repository")] == ["exact"] * 3
    assert made["first_difference"].startswith("arm strong: model, system_prompt, claude_md")
    assert {request["model"] for request in requests} == {"claude-haiku-4-5"}
    sent = min((request["messages"] for request in requests), key=len)
    assert canonical_value(sent) == canonical_value(first["messages"])
    assert all("Be exact." in json.dumps(request["system"]) for request in requests)
    assert "Be exact." not in json.dumps(first["system"])
    assert [verifier["passed"] for verifier in meta["sessions"][0]["verifiers"]] == [True, False]
    assert none.code == 1
    assert "arms: weak, strong" in none.err


def test_an_arm_may_have_settings_that_the_recorded_one_lacks(finished_experiment):
    root, document = finished_experiment
    words = ("replay", document["cells"][1]["run"], "--turn", "2", "--arm", "weak", "--json")

    ran = harness(root, *words)

    assert ran.code == 0, ran.err
    made = json.loads(ran.out)[0]["replay"]["certificate"]
    assert made["context"] == "exact"
    assert {place[: len("messages[")] for place in made["replacements"]} == {"messages["}


def test_report_is_one_file_that_runs_and_loads_nothing(finished_experiment):
    root, document = finished_experiment

    files = ("--html", str(root / "r.html"), "--markdown", str(root / "r.md"))
    with measure_cpu() as seconds:
        ran = harness(root, "experiment", "report", "prices", *files)
    text = (root / "r.html").read_text()
    anchors = set(re.findall(r'href="#(cell-[^"]+)"', text))

    assert ran.code == 0
    assert seconds[0] < 2
    assert not re.search(r"<script|style=|src=|https?://(?!www\.w3\.org)", text)
    assert anchors == set(re.findall(r'id="(cell-[^"]+)"', text))
    assert len(anchors) == len(document["cells"])
    assert "| task-1 | ✗✗ | ✓✓ |" in (root / "r.md").read_text()


def test_the_page_links_each_cell_to_its_deciding_step(finished_experiment, monkeypatch):
    root, document = finished_experiment
    monkeypatch.chdir(root)

    with running(root / "home") as pages:
        listed = pages.ask("/lab").text
        text = pages.ask("/lab/experiments/prices").text
        links = re.findall(r'class="attempt [a-z]+" href="([^"]+)"', text)
        step = pages.ask(links[0].removeprefix(WEB_ROOT))

    assert "/lab/experiments/prices" in listed
    assert f"{document['cells'][0]['run']} --turn 2 --arm strong" in text
    assert f">{document['cells'][0]['run']}</a>" not in listed
    assert len(links) == len(document["cells"])
    assert step.status == 200
    assert "result.txt" in step.text


def test_list_and_run_show_what_verifiers_found(finished_experiment):
    root, document = finished_experiment

    listed = harness(root, "list").out
    shown = harness(root, "inspect", document["cells"][0]["run"]).out

    assert re.search(r"prices .*experiment +4/4 +2/8", listed)
    assert "tests failed, length failed" in shown


@pytest.fixture(scope="module")
def continued_experiment(tmp_path_factory):
    """An experiment that ran out of budget, got more, got more attempts, and was tampered with."""
    root = tmp_path_factory.mktemp("continued")
    file = experiment_file(root, attempts=1, max_budget_usd=0.002, max_parallel=1)
    steps = {"stopped": harness(root, "experiment", "run", str(file))}
    steps["spent"] = report(root)["cost_usd"]
    steps["ended"] = harness(root, "experiment", "resume", "prices", "--max-budget-usd", "1")
    steps["before"] = report(root)["cells"]
    steps["added"] = harness(root, "experiment", "add-attempts", "prices", "1")
    steps["after"] = report(root)["cells"]
    steps["status"] = harness(root, "experiment", "status").out
    config = root / "runs" / "prices" / "experiment.json"
    config.write_text(config.read_text().replace("python3 check.py", "touch /tmp/taken"))
    steps["refused"] = harness(root, "experiment", "add-attempts", "prices", "1")
    return steps | {"results": results(root)}


def test_a_budget_stops_the_experiment_and_more_continues_it(continued_experiment):
    stopped = continued_experiment["stopped"]

    assert stopped.code == 69
    assert "budget" in stopped.err
    assert "--max-budget-usd" in stopped.err
    assert 0 < continued_experiment["spent"] <= 0.004
    assert continued_experiment["ended"].code == 0, continued_experiment["ended"].err
    assert len(continued_experiment["before"]) == 2


def test_added_attempts_keep_the_earlier_results(continued_experiment):
    assert continued_experiment["added"].code == 0, continued_experiment["added"].err
    assert continued_experiment["after"][:2] == continued_experiment["before"]
    assert len(continued_experiment["after"]) == 4
    assert "4/4" in continued_experiment["status"]


def test_a_changed_experiment_needs_consent_to_go_on(continued_experiment):
    kinds = [record["kind"] for record in continued_experiment["results"]]

    assert continued_experiment["refused"].code == 4
    assert "was not started here" in continued_experiment["refused"].err
    assert kinds.count("attempt_scored") == 4
    assert kinds.count("attempts_added") == 2


def test_foreign_tasks_need_consent_and_get_only_listed_variables(tmp_path):
    file = experiment_file(tmp_path, attempts=1, variables=["LISTED"], primary="open")
    data = json.loads(file.read_text())
    tasks = data["tasks"]
    tasks[0]["verifiers"].append({"name": "open", "command": 'test "$A_TOKEN$LISTED" = seen'})
    tasks[0]["setup"] = "echo $A_TOKEN > taken"
    (tmp_path / "theirs.yaml").write_text(json.dumps({"tasks": tasks}))
    file.write_text(json.dumps(data | {"tasks": [{"from": "theirs.yaml"}]}))

    refused = harness(tmp_path, "experiment", "run", str(file))
    before = (tmp_path / "runs").exists()
    command = refused.err[refused.err.index("flightlog trust") :].split()[1:4]
    shown = flightlog(tmp_path, *command[:1], command[2])
    allowed = flightlog(tmp_path, *command)
    ran = harness(tmp_path, "experiment", "run", str(file), A_TOKEN="private", LISTED="seen")
    (tmp_path / "hidden.py").write_text("print('changed')\n")
    again = harness(tmp_path, "experiment", "run", str(file), "--name", "changed")

    assert (refused.code, before) == (4, False)
    for text in ("echo $A_TOKEN > taken", "A_TOKEN", "score.py:score", "python3 check.py"):
        assert text in shown.out + shown.err
    assert allowed.code == 0, allowed.err
    assert ran.code == 0, ran.err
    assert (tmp_path / "runs/prices/tasks/task-1/shop/taken").read_text() == "\n"
    assert [arm["pass_at_1"] for arm in report(tmp_path)["arms"]] == [1.0, 1.0]
    assert again.code == 4


@pytest.mark.soak
def test_120_attempts_killed_twice_have_120_results(tmp_path):
    more = {"tasks": 20, "agent": "claude_code", "attempts": 3, "max_parallel": 4}

    document = check_killed(tmp_path, kill_twice(tmp_path, more), 120)

    began = time.monotonic()
    report(tmp_path)
    assert time.monotonic() - began < 2
    assert [arm["pass_at_1"] for arm in document["arms"]] == [0.0, 1.0]
    assert document["comparisons"][0]["p_value_adjusted"] <= 0.05
    shutil.rmtree(tmp_path / "runs")
