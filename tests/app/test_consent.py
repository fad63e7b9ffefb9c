"""Nothing a foreign run, plan or link says is run, sent or written before a person allowed exactly that."""

import json
import os
import pty
import shutil
import subprocess

import pytest
from msgspec.structs import replace

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.lab.config import VerifierConfig, dump_run_config
from flightlog.lab.runner.agent_setup import resolve_upstream
from flightlog.lab.service import permit_run
from flightlog.lab.store import RunStore
from flightlog.model.errors import ConsentNeeded, Invalid
from support.cli_runs import FLIGHTLOG, Ran
from support.labs import bash, config, environment, run, script
from support.pages import running
from support.paying import paying
from support.sampled import KEY, make_run
from support.upstream import answering

HEADERS = {"X_Flightlog": "1"}
DOORS = {
    "replay": ("lab", "replay", "evil", "--turn", "2"),
    "resample": ("lab", "resample", "evil", "--request", "2"),
    "edit": ("lab", "resample-edit", "evil", "--request", "2", "--set", "temperature=0"),
    "session": ("lab", "resample-session", "evil", "--count", "1"),
    "resume": ("lab", "run", "--resume", "evil", "--again"),
}


@pytest.fixture(scope="module")
def source_run(tmp_path_factory):
    """A finished run of another person."""
    return make_run(tmp_path_factory.mktemp("theirs"))


@pytest.fixture
def place(source_run, tmp_path):
    """A machine of one's own with a copy of that run in its project."""
    shutil.copytree(source_run / "runs" / "run", tmp_path / "runs" / "evil", symlinks=True)
    (tmp_path / "work").mkdir()
    return tmp_path


def change_config(place, **values):
    """Change the configuration of the copied run."""
    path = place / "runs" / "evil"
    given = replace(
        RunStore(path, now=str, new_id=str).config, work_dir=str(place / "work"), **values
    )
    (path / "config.yaml").write_text(dump_run_config(given))


def flightlog(place, *words, stdin=subprocess.DEVNULL, **more):
    own = environment(place, FLIGHTLOG_HOME=str(place / "data"), ANTHROPIC_API_KEY=KEY, **more)
    done = subprocess.run([FLIGHTLOG, *words], cwd=place, env=own, stdin=stdin, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("door", DOORS)
def test_foreign_run_gets_no_key_and_runs_nothing(place, door):
    touch = VerifierConfig(f"touch {place}/PWNED \x1b[2J", name="v")
    with paying() as till:
        change_config(
            place, base_url=till.url, verifiers=(touch,), engine="claude_code", scenario=None
        )
        before = sorted((place / "runs").iterdir())
        done = flightlog(place, *DOORS[door])

    assert (done.code, till.came) == (4, [])
    assert not (place / "PWNED").exists()
    assert sorted((place / "runs").iterdir()) == before
    assert f'key goes to = "{till.url}"' in done.err
    assert 'verifier 1 = "touch' in done.err
    assert f"flightlog trust --yes {place}/runs/evil" in done.err
    assert "\x1b" not in done.err


def test_allowed_run_is_replayed_until_its_configuration_changes(place):
    change_config(place)
    shown = flightlog(place, "trust", "evil", "--json")
    granted = flightlog(place, "trust", "runs/evil", "--yes")
    ran = flightlog(place, "lab", "replay", "evil", "--turn", "2", "--allow-drift", "--json")
    (branch,) = (place / "runs").glob("replay_evil_*")
    again = flightlog(place, "lab", "run", "--resume", branch.name)
    change_config(place, verifiers=(VerifierConfig("true"),))
    refused = flightlog(place, "lab", "replay", "evil", "--turn", "2")
    revoked = flightlog(place, "trust", branch.name, "--revoke")

    assert (shown.code, json.loads(shown.out)["is_trusted"], granted.code) == (1, False, 0)
    assert (ran.code, again.code) == (0, 0), ran.err
    assert (refused.code, revoked.code) == (4, 1)


@pytest.mark.parametrize(("answer", "code", "branches"), [(b"n\n", 4, 0), (b"y\n", 0, 1)])
def test_person_at_a_terminal_is_asked_before_a_foreign_run(place, answer, code, branches):
    change_config(place)
    ours, theirs = pty.openpty()
    own = environment(place, FLIGHTLOG_HOME=str(place / "data"))
    words = [FLIGHTLOG, "lab", "replay", "evil", "--turn", "2", "--allow-drift"]
    child = subprocess.Popen(
        words, cwd=place, env=own, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    screen = b""
    while b"Allow exactly this?" not in screen:
        screen += os.read(ours, 1 << 16)
    os.write(ours, answer)
    # The terminal holds few bytes: read it to the end, which Linux reports as an error.
    try:
        while part := os.read(ours, 1 << 16):
            screen += part
    except OSError:
        pass
    os.close(ours)

    assert child.wait(120) == code, screen
    assert len(list((place / "runs").glob("replay_evil_*"))) == branches


def test_page_refuses_to_replay_a_foreign_run(place, monkeypatch):
    change_config(place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("FLIGHTLOG_HOME", str(place / "data"))
    with running(place / "config") as served:
        sent = {"Origin": f"http://127.0.0.1:{served.port}", **HEADERS}
        answer = served.ask("/lab/runs/evil/1/2/replay", "POST", body="count=1&prompt=", **sent)

    assert answer.status == 400
    assert "flightlog trust --yes" in answer.text
    assert [path.name for path in (place / "runs").iterdir()] == ["evil"]


def test_mark_of_a_foreign_run_restores_nothing(place):
    change_config(place)
    (place / "runs" / "evil" / ".in_place").write_text("baseline")
    (place / "work" / "mine").write_text("mine")

    assert flightlog(place, "lab", "inspect", "evil").code == 0
    assert (place / "work" / "mine").read_text() == "mine"
    assert (place / "runs" / "evil" / ".in_place").exists()


def test_key_goes_over_an_open_network_only_when_allowed(tmp_path):
    address = "http://192.0.2.1:8080"
    given = config(tmp_path, None, "go", base_url=address + "/")
    env = {"FLIGHTLOG_HOME": str(tmp_path / "data"), "ANTHROPIC_API_KEY": KEY}

    with pytest.raises(ConsentNeeded, match="without encryption"):
        permit_run(open_runtime(env), given, tmp_path, "")
    assert flightlog(tmp_path, "trust", address, "--yes").code == 0
    permit_run(open_runtime(env), given, tmp_path, "")
    permit_run(open_runtime(env), replace(given, base_url="https://192.0.2.1"), tmp_path, "")


GATEWAY, OTHER, VENDOR = (
    "https://gateway.example/v1",
    "https://other.example",
    "https://api.anthropic.com",
)


@pytest.mark.parametrize(
    ("own", "given", "key", "sent"),
    [
        ("", "", KEY, ("anthropic", VENDOR)),
        ("", GATEWAY, KEY, ("anthropic", GATEWAY)),
        (OTHER, "", KEY, ("anthropic", OTHER)),
        (OTHER, GATEWAY, KEY, ("anthropic", None)),
        (OTHER, GATEWAY, "", ("anthropic", OTHER)),
        (GATEWAY, "https://GATEWAY.example", KEY, ("anthropic", GATEWAY)),
        ("", GATEWAY, KEY, ("openrouter", "https://openrouter.ai/api")),
        ("", GATEWAY, KEY, ("bedrock", "")),
        ("ftp://x", "", KEY, ("anthropic", None)),
    ],
)
def test_address_is_the_runs_then_the_environments_then_the_vendors(
    tmp_path, own, given, key, sent
):
    provider, expected = sent
    asked = config(tmp_path, None, "go", base_url=own, provider=provider)
    env = {"ANTHROPIC_BASE_URL": given, "ANTHROPIC_AUTH_TOKEN": key}

    if expected is None:
        with pytest.raises(Invalid):
            resolve_upstream(asked, env)
    else:
        assert resolve_upstream(asked, env) == expected


def test_run_uses_the_gateway_and_no_proxy_on_loopback(tmp_path):
    seen = []
    scenario = parse_scenario(script([bash("echo hi > x")], "done"))
    with (
        serve_scenario(scenario) as model,
        answering(lambda _, request: seen.append(request)) as proxy,
    ):
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        env = environment(
            tmp_path, ANTHROPIC_BASE_URL=model.url, ANTHROPIC_AUTH_TOKEN=KEY, **proxies
        )
        captured = run(tmp_path, config(tmp_path, None, "go"), "captured", env)
        plain = run(
            tmp_path, config(tmp_path, None, "go", capture_api_requests=False), "plain", env
        )
        asked = len(model.requests)

    assert [store.state.last_attempt("session_01").stop_reason for store in (captured, plain)] == [
        "completed"
    ] * 2
    assert asked >= 4
    assert seen == []


def test_key_of_a_gateway_goes_to_the_gateway(tmp_path):
    with paying() as till:
        env = environment(tmp_path, ANTHROPIC_BASE_URL=till.url, ANTHROPIC_AUTH_TOKEN=KEY)
        run(tmp_path, config(tmp_path, None, "go", session_timeout_seconds=20), "run", env)

    assert {request.headers["authorization"] for request in till.came} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs", ("lab", "list")),
        ("ralph-loop-sessions", ("loop", "run", "--plan", "plan.yaml", "--autonomous")),
        (".chat-retro-runtime", ("retro", "prefs", "set", "focus_areas", "x")),
        (".claude", ("init", "--project", "--yes", "--no-guard")),
        (".claude/settings.local.json", ("init", "--project", "--yes", "--no-guard")),
        ("CLAUDE.md", ("init", "--project", "--yes", "--no-guard", "--dataset")),
        (".git-ml", ("dataset", "session", "sync-to-jsonl")),
        (".git-ml/tracked/pending", ("dataset", "session", "sync-to-jsonl")),
        ("scripts", ("dataset", "install-hooks")),
    ],
)
def test_link_that_leads_out_of_the_project_is_refused(tmp_path, name, words):
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    (outside / "file").write_text("{}")
    (project / name).parent.mkdir(parents=True)
    (project / name).symlink_to(outside / "file" if name.endswith(("json", "md")) else outside)
    (project / "plan.yaml").write_text(
        "plan: x\ntasks: [{task_id: a, name: b, run: {command: touch it}}]\n"
    )
    subprocess.run(["git", "init", "-q", project], check=True)

    done = flightlog(project, *words)

    assert (done.code, "a symbolic link leads out of the project" in done.err) == (2, True), done
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "{}"}


def test_run_that_is_a_link_out_of_the_runs_is_no_run(place):
    shutil.move(place / "runs" / "evil", place / "elsewhere")
    (place / "runs" / "evil").symlink_to(place / "elsewhere")

    assert flightlog(place, "lab", "replay", "evil", "--turn", "2").code == 2
    assert "evil" not in flightlog(place, "lab", "list").out
