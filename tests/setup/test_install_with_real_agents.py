"""After `init`, with every tried version: the user's own hook still fires, a deny rule still denies."""

import json
import os
import subprocess
import sys

import pytest

from support.real_agent import VERSIONS, agent_program, make_bench, new_session


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_users_hook_still_fires_and_a_deny_rule_still_denies(tmp_path, version):
    bench = make_bench(tmp_path, version)
    own = {"type": "command", "command": f"cat > {tmp_path}/own-$$"}
    bench.config.mkdir()
    (bench.config / "settings.json").write_text(
        json.dumps(
            {
                "permissions": {"deny": ["Bash(touch:*)"]},
                "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [own]}]},
            }
        )
    )
    init(bench)
    denied = {"tool": "Bash", "input": {"command": "touch denied", "description": "Touch"}}
    allowed = {"tool": "Bash", "input": {"command": "echo allowed", "description": "Say"}}
    scenario = {
        "rules": [{"replies": [{"blocks": [denied]}, {"blocks": [allowed]}, {"text": "Done."}]}]
    }
    session = new_session()

    played = bench.run(scenario, "Touch, then say.", session=session)

    names = [event["event"] for event in bench.hooks(session)]
    assert (played.outcome.exit_code, played.result["result"]) == (0, "Done.")
    assert not (bench.project / "denied").exists()
    assert len(list(tmp_path.glob("own-*"))) == names.count("PreToolUse") >= 1
    assert {
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    } <= set(names)


@pytest.mark.slow
def test_unknown_event_in_the_settings_disarms_a_deny_rule(tmp_path):
    """Why versions are asked: this client drops its whole settings for one name it does not know."""
    bench = make_bench(tmp_path, "2.0.76")
    bench.config.mkdir()
    unknown = {
        "PostToolBatch": [{"matcher": "", "hooks": [{"type": "command", "command": "true"}]}]
    }
    rules = {"permissions": {"deny": ["Bash(touch:*)"]}, "hooks": unknown}
    (bench.config / "settings.json").write_text(json.dumps(rules))
    denied = {"tool": "Bash", "input": {"command": "touch denied", "description": "Touch"}}

    bench.run({"rules": [{"replies": [{"blocks": [denied]}, {"text": "Done."}]}]}, "Touch.")

    assert (bench.project / "denied").exists()


def init(bench):
    """Run the command itself, with this client on the path."""
    bench.home.joinpath("bin").mkdir()
    bench.home.joinpath("bin", "claude").symlink_to(agent_program(bench.version))
    path = os.pathsep.join([str(bench.home / "bin"), os.environ["PATH"]])
    subprocess.run(
        [sys.executable, "-m", "flightlog", "init", "--yes"],
        env={"PATH": path, "HOME": str(bench.home)},
        check=True,
        capture_output=True,
    )
