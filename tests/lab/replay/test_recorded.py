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

    def flightlog(self, *words, code=0):
        env = self.bench.environment(self.model.url) | {
            "FLIGHTLOG_CLAUDE": str(agent_program(PINNED))
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
            body | {"system": [each for each in body["system"] if not is_billing(each)]}
            for body in own
        ]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    bench = make_bench(tmp_path_factory.mktemp("recorded") / "bench")
    bench.install_hooks()
    (bench.project / "old.txt").write_text("old\n")
    with serve_scenario(parse_scenario(TOLD)) as model:
        made = Recorded(bench, model)
        made.flightlog("lab", "track", str(bench.project))
        made.ask()
        (bench.project / "later").write_text("changed since\n")
        yield made


def test_every_turn_can_be_gone_back_to(recorded):
    turns = json.loads(
        recorded.flightlog("lab", "replay", recorded.session, "--list-turns", "--json").stdout
    )

    assert [each["blocked_reason"] for each in turns] == ["", "", ""]
    assert len({each["tree"] for each in turns}) == 3


def test_a_branch_of_a_recording_has_its_files_and_rebuilt_context(recorded):
    verify = "test ! -e old.txt && test -e new.bin && test ! -e later && cp two /dev/null"
    words = ("lab", "replay", recorded.session, "--turn", "2", "--verify", verify, "--json")

    (told,) = json.loads(recorded.flightlog(*words).stdout)

    certificate = told["replay"]["certificate"]
    assert (certificate["verdict"], certificate["first_difference"]) == ("exact", None)
    assert "rebuilt from the transcript" in certificate["method"]
    assert [each["passed"] for each in told["sessions"][0]["verifiers"]] == [True]
    then, now = (
        recorded.list_requests(recorded.session)[1:],
        recorded.list_requests(told["sessions"][0]["session_id"]),
    )
    assert len(now) == len(then) == 2
    assert [list(find_differences(*pair)) for pair in zip(now, then, strict=True)] == [[], []]
    assert sorted(path.name for path in recorded.bench.project.iterdir()) == [
        "later",
        "new.bin",
        "two",
    ]


def test_replay_without_snapshots_is_refused_with_a_hint(recorded):
    recorded.flightlog("lab", "track", str(recorded.bench.project), "--off")
    untracked = Recorded(recorded.bench, recorded.model)
    untracked.ask()

    done = untracked.flightlog("lab", "replay", untracked.session, "--turn", "1", code=2)

    assert "lab track" in done.stderr
    assert (
        "no such run"
        in untracked.flightlog("lab", "replay", "nothing-of-the-kind", "--turn", "1", code=1).stderr
    )
