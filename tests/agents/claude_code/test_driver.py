import os
import signal

import pytest

from flightlog.agents.claude_code.driver import ClaudeCode, clean_environment, find, project_folder
from flightlog.agents.claude_code.stream import read_session_id
from flightlog.agents.process import AgentProcess, find_descendants
from flightlog.model.errors import NotFound
from support.real_agent import VERSIONS, agent_program, make_bench, new_session, types
from support.waiting import alive, command_line, until

HELLO = {"rules": [{"replies": [{"text": "Hello."}]}]}
FOREVER = {
    "rules": [
        {
            "replies": [
                {"blocks": [{"tool": "Bash", "input": {"command": "tail -f /dev/null"}}]},
                {"text": "?"},
            ]
        }
    ]
}


def test_a_real_session_runs_offline_and_leaves_a_transcript(bench):
    session = new_session()

    played = bench.run(HELLO, "Say hello.", session=session)

    assert (played.outcome.exit_code, played.outcome.session, played.result["result"]) == (
        0,
        session,
        "Hello.",
    )
    assert len(played.requests) == 1
    assert types(bench.transcripts()[session])["assistant"] == 1


def test_a_prompt_may_begin_with_a_dash(bench):
    assert bench.run(HELLO, "--help me").result["result"] == "Hello."


def test_resume_and_fork_follow_their_own_history(bench):
    scenario = {
        "rules": [
            {"when": {"prompt": "first"}, "replies": [{"text": "one"}]},
            {"when": {"prompt": "second"}, "replies": [{"text": "two"}]},
            {"when": {"prompt": "third"}, "replies": [{"text": "three"}]},
        ]
    }
    session, forked = new_session(), new_session()
    bench.run(scenario, "first", session=session)

    resumed = bench.run(scenario, "second", resume=session)
    branch = bench.run(scenario, "third", resume=session, fork=True, session=forked)

    assert (resumed.outcome.session, resumed.result["result"]) == (session, "two")
    assert (branch.outcome.session, branch.result["result"]) == (forked, "three")


def test_a_timeout_ends_the_agent_and_everything_it_started(bench):
    with bench.start(FOREVER, "Wait.") as (session, _):
        family = family_with(session.pid, "tail -f /dev/null")
        outcome = session.wait(0.1)

    assert outcome.timed_out
    assert not [pid for pid in family if alive(pid)]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_client_tells_its_version_and_writes_nowhere(tmp_path, version):
    client = ClaudeCode(agent_program(version))

    assert client.version({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}) == version
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_says_no_version_has_none(tmp_path):
    assert ClaudeCode(tmp_path / "absent").version({}) == ""
    assert ClaudeCode(find("true", os.environ["PATH"])).version({}) == ""


def test_the_named_client_is_found_first_then_the_path(tmp_path):
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert find("", str(tmp_path)) == program
    assert find(str(program), "") == program
    with pytest.raises(NotFound, match="no `claude` on the path"):
        find("", str(tmp_path / "empty"))
    with pytest.raises(NotFound, match="no program at"):
        find(str(tmp_path / "absent"), str(tmp_path))


def start_script(script, cwd):
    """A shell script in the place of an agent."""
    environment = {"PATH": os.environ["PATH"]}
    return AgentProcess(
        ["sh", "-c", script], cwd=cwd, environment=environment, session_of=read_session_id
    )


def test_output_that_is_not_json_is_passed_over(tmp_path):
    script = 'echo noise; echo "[1]"; echo "{\\"a\\": 1}"; echo trouble >&2'
    process = start_script(script, tmp_path)

    outcome = process.wait(10)

    assert (outcome.exit_code, outcome.records, outcome.stderr) == (0, ({"a": 1},), "trouble\n")
    assert outcome.plain == "noise\n[1]\n"


def test_a_child_that_ignores_the_signal_is_killed(tmp_path):
    script = "trap '' TERM; echo '{}'; while :; do sleep 0.1; done"
    process = start_script(script, tmp_path)
    until(process.records)

    assert process.stop().exit_code == -signal.SIGKILL


def family_with(pid, words):
    """The agent's process and all below it, once one of them runs `words`."""

    def find_processes():
        below = find_descendants(pid)
        return {pid, *below} if any(words in command_line(one) for one in below) else None

    return until(find_processes)


@pytest.mark.parametrize(
    "name",
    ["plain", "with space.and-dots_", "ünïcode 漢字 😀", "long-" + "x" * 120 + "/" + "y" * 120],
)
def test_a_projects_folder_is_named_as_the_client_names_it(tmp_path, name):
    bench = make_bench(tmp_path / "bench")
    place = tmp_path / name
    place.mkdir(parents=True)

    bench.run(HELLO, "Say hello.", cwd=place)

    assert [path.name for path in (bench.config / "projects").iterdir()] == [
        project_folder(str(place))
    ]


def test_what_a_surrounding_agent_leaves_is_not_passed_on():
    left = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "x",
        "ANTHROPIC_API_KEY": "k",
        "AI_AGENT": "a",
        "FLIGHTLOG_HOME": "h",
    }
    own = {"PATH": "/bin", "HOME": "/root", "AI_AGENTS_DIR": "mine", "MY_ANTHROPIC_": "mine"}

    assert clean_environment(left | own) == own
