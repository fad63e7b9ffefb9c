"""Going back into a session nobody ran for an experiment: recorded by the hook, its files saved along the way."""

import json
import subprocess

import pytest

from flightlog.agents.protocol import AgentPrompt
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.lab.replay.recorded_context import find_differences, is_billing
from support.cli_runs import FLIGHTLOG
from support.labs import bash, script
from support.real_agent import ALLOWED, PINNED, agent_program, make_bench, new_session
from support.replays import normal
from support.terminal_client import TerminalClient

TOLD = script(
    [bash("printf '\\000\\377' > new.bin; rm old.txt") | {"id": "toolu_one"}],
    [bash("echo two > two") | {"id": "toolu_two"}],
    "done",
)


class Recorded:
    """A machine with one session on it, and the model it talks to."""

    def __init__(self, bench, model):
        self.bench, self.model, self.session = bench, model, new_session()

    def ask(self):
        env = self.bench.environment(self.model.url)
        ask = AgentPrompt(
            "do it",
            cwd=self.bench.project,
            environment=env,
            arguments=("--session-id", self.session, *ALLOWED),
        )
        assert not self.bench.client.start(ask).wait(60).timed_out

    def flightlog(self, *words, code=0, version=PINNED):
        env = self.bench.environment(self.model.url) | {
            "FLIGHTLOG_CLAUDE": str(agent_program(version))
        }
        command = [FLIGHTLOG, *words]
        done = subprocess.run(
            command, env=env, cwd=self.bench.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr[-2000:]
        return done

    def list_requests(self, session):
        """What a session asked, but for who asks and who pays."""
        own = [
            normal(seen.body)
            for seen in self.model.requests
            if seen.headers.get("x-claude-code-session-id") == session
        ]
        return [
            body | {"system": [block for block in body["system"] if not is_billing(block)]}
            for body in own
        ]


@pytest.fixture(scope="module")
def recorded_session(tmp_path_factory):
    bench = make_bench(tmp_path_factory.mktemp("recorded") / "bench")
    bench.install_hooks()
    (bench.project / "old.txt").write_text("old\n")
    with serve_scenario(parse_scenario(TOLD)) as model:
        made = Recorded(bench, model)
        made.flightlog("lab", "track", str(bench.project))
        made.ask()
        (bench.project / "later").write_text("changed since\n")
        yield made


def test_every_turn_of_a_recording_can_be_branched(recorded_session):
    turns = json.loads(
        recorded_session.flightlog(
            "lab", "replay", recorded_session.session, "--list-turns", "--json"
        ).stdout
    )

    assert [turn["blocked_reason"] for turn in turns] == ["", "", ""]
    assert len({turn["tree"] for turn in turns}) == 3


def test_a_branch_of_a_recording_has_its_files_and_rebuilt_context(recorded_session):
    verify = "test ! -e old.txt && test -e new.bin && test ! -e later && cp two /dev/null"
    words = ("lab", "replay", recorded_session.session, "--turn", "2", "--verify", verify, "--json")

    (branch,) = json.loads(recorded_session.flightlog(*words).stdout)

    certificate = branch["replay"]["certificate"]
    assert (certificate["verdict"], certificate["first_difference"]) == ("exact", None)
    assert "rebuilt from the transcript" in certificate["method"]
    later = {"compared": 1, "equal": 1, "first_difference": None}
    assert certificate["later_requests"] == later
    assert not [place for place in certificate["replacements"] if place.startswith("tools.")]
    assert [verifier["passed"] for verifier in branch["sessions"][0]["verifiers"]] == [True]
    then, now = (
        recorded_session.list_requests(recorded_session.session)[1:],
        recorded_session.list_requests(branch["sessions"][0]["session_id"]),
    )
    assert len(now) == len(then) == 2
    assert [list(find_differences(*pair)) for pair in zip(now, then, strict=True)] == [[], []]
    assert sorted(path.name for path in recorded_session.bench.project.iterdir()) == [
        "later",
        "new.bin",
        "two",
    ]


def test_replay_with_a_client_that_is_too_old_says_so(recorded_session):
    words = ("lab", "replay", recorded_session.session, "--turn", "2")

    done = recorded_session.flightlog(*words, code=1, version="1.0.128")

    assert "this client is too old: it has no option --tools" in done.stderr


def test_replay_without_snapshots_is_refused_with_a_hint(recorded_session):
    recorded_session.flightlog("lab", "track", str(recorded_session.bench.project), "--off")
    untracked = Recorded(recorded_session.bench, recorded_session.model)
    untracked.ask()

    done = untracked.flightlog("lab", "replay", untracked.session, "--turn", "1", code=2)

    assert "lab track" in done.stderr
    assert (
        "no such run"
        in untracked.flightlog("lab", "replay", "nothing-of-the-kind", "--turn", "1", code=1).stderr
    )


def test_replay_for_a_client_that_logs_no_requests_is_called_unknown(tmp_path):
    bench = make_bench(tmp_path / "bench", "2.1.100")
    bench.install_hooks()
    with serve_scenario(parse_scenario(script("done"))) as model:
        recorded = Recorded(bench, model)
        recorded.flightlog("lab", "track", str(bench.project))
        recorded.ask()
        words = ("lab", "replay", recorded.session, "--turn", "1", "--json")
        asked = len(model.requests)

        refused = recorded.flightlog(*words, code=1, version="2.1.100")
        (refused_branch,) = json.loads(refused.stdout)
        message = recorded.flightlog(*words[:-1], code=1, version="2.1.100").stderr
        assert len(model.requests) == asked
        allowed = recorded.flightlog(*words, "--allow-drift", version="2.1.100")
        (allowed_branch,) = json.loads(allowed.stdout)

    assert "cannot be compared: no request was recorded: refused before any request" in message
    assert "--allow-drift continues" in message
    parts = ("verdict", "context", "files", "repository", "environment")
    for branch, is_refused in ((refused_branch, True), (allowed_branch, False)):
        certificate = branch["replay"]["certificate"]
        expected = ["unknown", "unknown", "exact", "exact", "unknown"]
        assert [certificate[name] for name in parts] == expected
        assert certificate["is_refused"] is is_refused
    assert allowed_branch["sessions"][0]["stop_reason"] == "completed"


def test_replay_of_an_interactive_session_is_exact(tmp_path):
    data = str(tmp_path / "bench" / "flightlog")
    bench = make_bench(tmp_path / "bench", FLIGHTLOG_HOME=data)
    scenario = script(
        [{"tool": "Read", "input": {"file_path": str(bench.project)}}], "It is empty."
    )
    with (
        serve_scenario(parse_scenario(scenario)) as model,
        TerminalClient(bench, model.url) as client,
    ):
        bench.install_hooks()
        recorded = Recorded(bench, model)
        recorded.flightlog("lab", "track", str(bench.project))
        client.start("--session-id", recorded.session)
        client.terminal.type_text("Look around")
        client.terminal.wait_for("It is empty")
        client.stop()

        words = ("lab", "replay", recorded.session, "--turn", "1", "--json")
        (branch,) = json.loads(recorded.flightlog(*words).stdout)

    certificate = branch["replay"]["certificate"]
    assert (certificate["verdict"], certificate["first_difference"]) == ("exact", None)
    assert certificate["later_requests"]["equal"] == 1
