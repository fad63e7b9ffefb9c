from flightlog.agents.claude_code.stream import (
    AgentResult,
    StreamToolCall,
    read_model_call,
    read_outcome,
    read_session_id,
    read_stream,
    read_tool_calls,
)
from flightlog.agents.protocol import AgentOutcome
from flightlog.model.usage import Usage


def outcome(*records, exit_code=0, timed_out=False):
    return AgentOutcome(exit_code, "s", records, "it broke", timed_out)


def test_only_an_explicit_flag_and_status_count_as_done():
    def read_result(text):
        return read_stream([{"type": "result", "result": text, "is_error": False}])

    block = read_result("All good.\nSTATUS: COMPLETE\nTESTS_STATUS: PASSING\nEXIT_SIGNAL: true")
    fenced = read_result(
        '```json\n{"exit_signal": true, "status": "COMPLETE", "tests_status": "PASSING"}\n```'
    )
    passing = read_result(
        "I will set EXIT_SIGNAL: true when the status is COMPLETE, but I am not done."
    )

    assert (block.exit_signal, len(block.indicators)) == (True, 2)
    assert (fenced.exit_signal, len(fenced.indicators)) == (True, 2)
    assert (passing.exit_signal, len(passing.indicators)) == (False, 0)


def test_a_limit_differs_from_a_timeout_and_a_harmless_error_flag():
    limited = read_stream(
        [{"type": "result", "result": "Claude AI usage limit reached|1768816800", "is_error": True}]
    )
    rejected = read_stream(
        [{"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 99.0}}]
    )
    fine = read_stream(
        [{"type": "result", "result": "the request timed out once, then worked", "is_error": False}]
    )

    assert (limited.is_rate_limited, limited.resets_at) == (True, 1768816800.0)
    assert (rejected.is_rate_limited, rejected.resets_at) == (True, 99.0)
    assert (fine.is_rate_limited, fine.is_error) == (False, False)


def test_a_call_is_counted_by_its_message():
    record = {
        "type": "assistant",
        "message": {"id": "m1", "model": "claude-opus-5-5", "usage": {"input_tokens": 10}},
    }

    assert read_model_call(record).usage == Usage(input_tokens=10)
    assert (
        read_model_call({"type": "assistant", "message": {"id": "m2", "model": "<synthetic>"}})
        is None
    )
    assert read_model_call({"type": "user"}) is None


def test_cache_writes_for_an_hour_are_counted_apart():
    usage = {
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_1h_input_tokens": 60},
    }
    record = {
        "type": "assistant",
        "message": {"id": "m1", "model": "claude-opus-5-5", "usage": usage},
    }

    assert read_model_call(record).usage == Usage(cache_write_tokens=100, cache_write_1h_tokens=60)


def test_the_stop_reason_comes_from_the_last_result():
    limited = {"type": "result", "is_error": True, "api_error_status": 429, "result": "slow down"}
    turns = {"type": "result", "subtype": "error_max_turns", "num_turns": 3, "total_cost_usd": 0.5}

    assert read_outcome(outcome(limited)) == AgentResult("rate_limited", "slow down")
    assert read_outcome(outcome(limited, turns)) == AgentResult("max_turns", "", 3, 0.5)


def test_without_a_result_the_exit_code_decides():
    assert read_outcome(outcome()) == AgentResult("completed")
    assert read_outcome(outcome(exit_code=3)) == AgentResult("error", "exit code 3: it broke")
    assert read_outcome(outcome(timed_out=True)).stop_reason == "timeout"


def test_tool_calls_are_joined_with_their_results():
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
    records = [
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "user", "message": {"content": [result]}},
    ]

    assert read_tool_calls(records) == [StreamToolCall("Read", {"file_path": "a"}, "text")]


def test_the_first_init_names_the_session():
    start = {"type": "system", "subtype": "hook_started", "session_id": "thrown-away"}
    init = {"type": "system", "subtype": "init", "session_id": "kept"}

    assert read_session_id((start, init)) == "kept"
    assert read_session_id((start,)) == "thrown-away"
    assert read_session_id(()) == ""
