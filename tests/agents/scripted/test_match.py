from flightlog.agents.scripted.messages_api import decode_request
from flightlog.agents.scripted.scenario import choose_reply, parse_scenario

CLI = {"user-agent": "claude-cli/2.1.325 (external, sdk-cli)"}
SCENARIO = parse_scenario(
    {
        "rules": [
            {
                "name": "sub",
                "when": {"subagent": True},
                "replies": [{"text": "s0"}, {"text": "s1"}],
            },
            {
                "name": "greet",
                "when": {"prompt": "greet"},
                "replies": [{"text": "g0"}, {"text": "g1"}],
            },
            {
                "name": "commit",
                "when": {"prompt": "commit"},
                "replies": [{"text": "c0"}, {"text": "c1"}],
            },
            {"name": "rest", "replies": [{"text": "r0"}, {"text": "r1"}]},
        ]
    }
)


def ask(*messages, headers=CLI, **body):
    roles = {"u": "user", "a": "assistant", "s": "system"}
    conversation = [{"role": roles[role], "content": content} for role, content in messages]
    request = decode_request(
        "/v1/messages",
        headers,
        {"model": "m", "tools": [{"name": "Bash"}], "messages": conversation} | body,
    )
    chosen = choose_reply(SCENARIO, request)
    return None if chosen is None else (chosen.rule, chosen.reply.text)


def result(text="ok"):
    return [{"type": "tool_result", "tool_use_id": "t", "content": text}]


def test_the_number_of_replies_since_the_prompt_says_which_comes_next():
    assert ask(("u", "greet me")) == ("greet", "g0")
    assert ask(("u", "greet me"), ("a", "g0"), ("u", result())) == ("greet", "g1")


def test_past_the_end_the_last_reply_repeats():
    assert ask(("u", "greet"), ("a", "g0"), ("u", result()), ("a", "g1"), ("u", result())) == (
        "greet",
        "g1",
    )


def test_the_latest_prompt_decides_however_long_the_history():
    history = [("u", "greet"), ("a", "g0"), ("u", result()), ("a", "g1")]

    assert ask(*history, ("u", "commit")) == ("commit", "c0")
    assert ask(*history, ("u", "commit"), ("a", "c0"), ("u", result())) == ("commit", "c1")
    assert ask(*history, ("u", "commit"), ("a", "c0"), ("u", "greet again")) == ("greet", "g0")


def test_a_prompt_no_rule_knows_continues_the_rule_before_it():
    assert ask(("u", "greet"), ("a", "g0"), ("u", "and then?")) == ("greet", "g1")


def test_without_any_matching_prompt_replies_count_from_the_start():
    assert ask(("u", "hm"), ("a", "r0"), ("u", "hm")) == ("rest", "r1")


def test_a_prompt_beside_a_tool_result_is_a_prompt():
    both = [*result(), {"type": "text", "text": "commit now"}]

    assert ask(("u", "greet"), ("a", "g0"), ("u", both)) == ("commit", "c0")


def test_reminders_of_the_client_are_not_prompts():
    reminded = [
        {"type": "text", "text": "<system-reminder>commit</system-reminder>"},
        {"type": "text", "text": "greet"},
    ]

    assert ask(("u", reminded), ("s", "commit")) == ("greet", "g0")


def test_a_subagent_is_known_by_header_or_system_prompt():
    assert ask(("u", "hm"), headers={**CLI, "x-claude-code-agent-id": "a1"}) == ("sub", "s0")
    assert ask(("u", "hm"), system=[{"type": "text", "text": "cc_is_subagent=true;"}]) == (
        "sub",
        "s0",
    )


def test_compaction_and_side_calls_have_answers_of_their_own():
    compaction = [
        {"type": "text", "text": "greet"},
        {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do"},
    ]

    assert "<summary>" in ask(("u", compaction))[1]
    assert ask(("u", "title please"), tools=[])[0] == "side call"


def test_a_plain_client_without_tools_follows_the_rules():
    assert ask(("u", "greet"), tools=[], headers={}) == ("greet", "g0")


def test_rules_may_take_compaction_and_side_calls_over():
    own = parse_scenario(
        {
            "rules": [
                {"name": "mine", "when": {"compaction": True}, "replies": [{"text": "m"}]},
                {"name": "title", "when": {"side": True}, "replies": [{"text": "t"}]},
            ]
        }
    )
    conversation = [{"role": "user", "content": "CRITICAL: Respond with TEXT ONLY"}]

    assert (
        choose_reply(own, decode_request("/v1/messages", CLI, {"messages": conversation})).rule
        == "mine"
    )
    assert (
        choose_reply(own, decode_request("/v1/messages", CLI, {"messages": conversation[:0]})).rule
        == "title"
    )
    assert (
        choose_reply(
            own, decode_request("/v1/messages", CLI, {"messages": conversation[:0], "tools": [1]})
        )
        is None
    )


def test_conditions_on_model_system_path_and_first_prompt_must_all_hold():
    rule = {"model": "opus", "system": "careful", "path": "^/run", "first": "one"}
    own = parse_scenario({"rules": [{"when": rule, "replies": [{"text": "x"}]}]})
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    body = {"model": "opus-5", "system": "be careful", "messages": messages}

    assert choose_reply(own, decode_request("/run/v1/messages", {}, body)).rule == "rule 1"
    assert choose_reply(own, decode_request("/v1/messages", {}, body)) is None
    assert (
        choose_reply(own, decode_request("/run/v1/messages", {}, body | {"model": "haiku"})) is None
    )
