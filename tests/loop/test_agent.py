"""What a loop counts while an agent works: each call of the stream at its own price."""

import json

from flightlog.model.usage import Usage
from flightlog.usage.prices import price
from loop.loops import journal, project, ralph, session_of

MODEL = "claude-opus-5-5"
PLAN = """
plan: one agent
config: {human_intervention: never, max_retries: 0}
tasks:
  - {task_id: a, name: first, run: {agent: claude-code, prompt: "work"}, verify: ["true"]}
"""


def test_cache_writes_for_an_hour_are_priced_while_a_task_runs(tmp_path):
    usage = {
        "cache_creation_input_tokens": 1000,
        "cache_creation": {"ephemeral_1h_input_tokens": 600},
    }
    reply = {"type": "assistant", "message": {"id": "m1", "model": MODEL, "usage": usage}}
    done = {"type": "result", "result": "done", "is_error": False}
    client = tmp_path / "claude"
    client.write_text(
        "#!/bin/sh\n" + "".join(f"echo '{json.dumps(record)}'\n" for record in (reply, done))
    )
    client.chmod(0o700)
    root = project(tmp_path / "p", PLAN)

    ran = ralph(root, "run", "--plan", "plan.yaml", "--autonomous", FLIGHTLOG_CLAUDE=str(client))

    assert ran.returncode == 0, ran.stderr
    (noted,) = [event for event in journal(session_of(root)) if event["kind"] == "usage"]
    assert (
        noted["cost_usd"]
        == price(MODEL, Usage(cache_write_tokens=1000, cache_write_1h_tokens=600)).usd
    )
    assert noted["cost_usd"] > price(MODEL, Usage(cache_write_tokens=1000)).usd
