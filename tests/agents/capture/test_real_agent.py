"""The proxy between the real agent and the scripted model."""

import json

from flightlog.agents.capture.dumps import build_dump_files
from flightlog.agents.claude_code.rebuild import RebuildFidelity, hash_request, rebuild_requests
from flightlog.agents.dialects import anthropic_messages
from flightlog.agents.protocol import AgentPrompt
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.model.exchange import RequestOrigin
from flightlog.store.output_files import write_output_files
from support.captures import bytes_on_disk, exchanges, running_proxy
from support.real_agent import ALLOWED, make_bench, new_session

SUBAGENT = {
    "description": "d",
    "prompt": "SUBTASK: say so",
    "subagent_type": "general-purpose",
    "run_in_background": False,
}
SCRIPT = {
    "rules": [
        {"when": {"prompt": "SUBTASK"}, "replies": [{"text": "sub done"}]},
        {
            "replies": [
                {
                    "blocks": [
                        {
                            "tool": "Bash",
                            "input": {"command": "env | grep API_KEY; echo x > made.txt"},
                        }
                    ]
                },
                {"blocks": [{"tool": "Agent", "input": SUBAGENT}]},
                {"text": "done"},
            ]
        },
    ]
}


def test_the_real_agent_is_captured_exactly_and_its_key_nowhere(tmp_path):
    bench = make_bench(tmp_path / "bench")
    session = new_session()
    with (
        serve_scenario(parse_scenario(SCRIPT)) as model,
        running_proxy(model.url, tmp_path / "x") as (url, recorder),
    ):
        environment = bench.environment(url)
        running = bench.client.start(
            AgentPrompt(
                "Go on.",
                arguments=ALLOWED,
                cwd=bench.project,
                environment=environment,
                session=session,
            )
        )
        outcome = running.wait(60)
        running.stop()

    store = exchanges(tmp_path / "x")
    captured = store.read_exchanges()
    assert (outcome.exit_code, recorder.losses) == (0, [])
    assert [exchange.request.agent_context.value for exchange in captured] == [
        "main",
        "main",
        "subagent",
        "main",
    ]
    assert {exchange.request.session_id for exchange in captured} == {session}
    assert [bool(exchange.request.agent_id) for exchange in captured] == [False, False, True, False]
    key = environment["ANTHROPIC_API_KEY"]
    for exchange, seen in zip(captured, model.requests, strict=True):
        asked = json.loads(json.dumps(seen.body).replace(key, "[scrubbed]"))
        assert json.loads(store.sent_body(exchange)) == {
            **asked,
            "metadata": {"user_id": "[scrubbed]"},
        }
    answers = {
        exchange.response.request_id: anthropic_messages.decode_response(
            store.response_body(exchange)
        )
        for exchange in captured
    }
    assert all(answer.is_whole for answer in answers.values())
    records = bench.transcripts()[session]
    assert {r["requestId"] for r in records if r["type"] == "assistant"} <= set(answers)
    write_output_files(tmp_path / "x", build_dump_files(store))
    assert key.encode() not in bytes_on_disk(tmp_path / "x")
    rebuilt = {request.digest: request for request in rebuild_requests(records)}
    for exchange in captured:
        if (
            exchange.request.agent_context is RequestOrigin.MAIN
            and b"[scrubbed]" not in store.sent_body(exchange).partition(b'"metadata"')[0]
        ):
            betas = exchange.request.headers["anthropic-beta"].split(",")
            assert (
                rebuilt[hash_request(json.loads(store.sent_body(exchange)), betas)].fidelity
                is RebuildFidelity.EXACT
            )


def test_the_real_agents_compaction_is_known_by_what_it_says(tmp_path):
    bench = make_bench(tmp_path / "bench")
    session = new_session()
    replies = [
        {
            "when": {"prompt": "TEXT ONLY"},
            "replies": [{"text": "<analysis>a</analysis><summary>s</summary>"}],
        }
    ]
    script = parse_scenario({"rules": [*replies, {"replies": [{"text": "ok"}]}]})
    with serve_scenario(script) as model, running_proxy(model.url, tmp_path / "x") as (url, _):
        for prompt, more in (("Begin.", {"session": session}), ("/compact", {"resume": session})):
            ask = AgentPrompt(prompt, cwd=bench.project, environment=bench.environment(url), **more)
            running = bench.client.start(ask)
            running.wait(60)
            running.stop()

    captured = exchanges(tmp_path / "x").read_exchanges()
    assert [
        (exchange.request.is_compaction, exchange.request.agent_context) for exchange in captured
    ] == [
        (False, RequestOrigin.MAIN),
        (True, RequestOrigin.MAIN),
    ]
