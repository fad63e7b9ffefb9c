"""The scripted model in the dialects of OpenAI and Google, streamed and not."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from flightlog.agents.dialects import anthropic_messages, gemini
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.model.usage import Usage
from support.scripted_apis import openai_chat, openai_responses, serve_scenario

GEMINI = "/v1beta/models/scripted-1"
CONTENT = {
    "blocks": [
        {"thinking": "Let me think about it for a while."},
        {"text": "Two commands at once, “quoted” and 日本."},
        {"tool": "shell", "input": {"command": "ls"}, "id": "call_1"},
        {"tool": "read", "input": {"path": "/x"}, "id": "call_2"},
    ],
    "chunk_chars": 5,
}
COUNTS = {"input": 1000, "output": 90, "cache_read": 400, "cache_write": 50, "reasoning": 30}


class Conversation:
    """The same conversation in every dialect."""

    def __init__(self, dialect):
        self.dialect = dialect

    def body(self, *texts, tools=True):
        """A request with the user's and the model's texts in turn."""
        roles = ["user" if at % 2 == 0 else "assistant" for at in range(len(texts))]
        messages = [
            {"role": role, "content": text} for role, text in zip(roles, texts, strict=True)
        ]
        match self.dialect:
            case "gemini":
                contents = [
                    {
                        "role": message["role"].replace("assistant", "model"),
                        "parts": [{"text": message["content"]}],
                    }
                    for message in messages
                ]
                functions = [{"functionDeclarations": [{"name": "shell"}]}] if tools else []
                return {"contents": contents, "tools": functions}
            case "responses":
                key, tool = "input", {"type": "function", "name": "shell"}
            case "chat":
                key, tool = "messages", {"type": "function", "function": {"name": "shell"}}
            case _:
                key, tool = "messages", {"name": "shell"}
        return {"model": "scripted-1", key: messages, "tools": [tool] if tools else []}

    def path(self, *, stream):
        paths = {"messages": "/v1/messages", "responses": "/v1/responses"}
        paths["chat"] = "/v1/chat/completions"
        paths["gemini"] = (
            f"{GEMINI}:streamGenerateContent?alt=sse" if stream else f"{GEMINI}:generateContent"
        )
        return paths[self.dialect]

    def send(self, model, *texts, stream=False, tools=True, **headers):
        body = self.body(*texts, tools=tools) | ({"stream": True} if stream else {})
        return post(model, self.path(stream=stream), body, **headers)


def post(model, path, body=None, method="POST", **headers):
    connection = http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=10)
    try:
        connection.request(method, path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def serve(*replies):
    return serve_scenario(parse_scenario({"rules": [{"replies": list(replies)}]}))


def events(data):
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


OTHERS = ("responses", "chat", "gemini")
ALL = ("messages", *OTHERS)
DECODE = {
    "messages": anthropic_messages.decode_usage,
    "responses": openai_responses.decode_usage,
    "chat": openai_chat.decode_usage,
    "gemini": gemini.decode_usage,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ALL)
def test_scripted_counts_mean_the_same_in_every_dialect(dialect, stream):
    with serve({**CONTENT, "usage": COUNTS}) as model:
        status, data = Conversation(dialect).send(model, "hello", stream=stream)
        (request,) = model.requests

    usage = DECODE[dialect](request.usage)
    assert (status, request.dialect, request.model) == (200, dialect, "scripted-1")
    # Gemini has no price for cache writes: they are input.
    expected = Usage(1050, 90, 400) if dialect == "gemini" else Usage(1000, 90, 400, 50)
    assert usage == expected
    sent = events(data) if stream else [json.loads(data)]
    assert request.usage in list(iter_usage(sent))


def iter_usage(values):
    """Every usage object anywhere in what was sent."""
    for value in values:
        if isinstance(value, dict):
            yield from (value[key] for key in ("usage", "usageMetadata") if key in value)
            yield from iter_usage(value.values())


def test_a_responses_stream_put_together_equals_the_whole_reply():
    with serve(CONTENT) as model:
        _, whole = Conversation("responses").send(model, "hello")
        _, data = Conversation("responses").send(model, "hello", stream=True)

    sent, expected = events(data), json.loads(whole)["output"]
    texts = {}
    for event in sent:
        if event["type"].endswith(".delta"):
            texts[event["output_index"]] = texts.get(event["output_index"], "") + event["delta"]
    done = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert [kind(item) for item in done] == [kind(item) for item in expected]
    assert texts == {
        0: CONTENT["blocks"][0]["thinking"],
        1: CONTENT["blocks"][1]["text"],
        2: '{"command": "ls"}',
        3: '{"path": "/x"}',
    }
    assert sent[0]["type"] == "response.created"
    assert sent[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))


def kind(item):
    return item["type"], item.get("name"), item.get("arguments")


def test_a_chat_stream_put_together_equals_the_whole_reply():
    with serve(CONTENT) as model:
        _, whole = Conversation("chat").send(model, "hello")
        _, data = Conversation("chat").send(model, "hello", stream=True)

    text, thinking, arguments = "", "", {}
    choices = [choice for event in events(data) for choice in event["choices"]]
    for choice in choices:
        text += choice["delta"].get("content") or ""
        thinking += choice["delta"].get("reasoning_content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            arguments[call["index"]] = (
                arguments.get(call["index"], "") + call["function"]["arguments"]
            )
    message = json.loads(whole)["choices"][0]["message"]
    assert (text, thinking) == (message["content"], message["reasoning_content"])
    assert list(arguments.values()) == [
        call["function"]["arguments"] for call in message["tool_calls"]
    ]
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert data.endswith(b"data: [DONE]\n\n")


def test_a_gemini_stream_put_together_equals_the_whole_reply():
    with serve(CONTENT) as model:
        _, whole = Conversation("gemini").send(model, "hello")
        _, data = Conversation("gemini").send(model, "hello", stream=True)

    sent = events(data)
    parts = [part for event in sent for part in event["candidates"][0]["content"]["parts"]]
    thinking, text, *calls = json.loads(whole)["candidates"][0]["content"]["parts"]
    assert "".join(part["text"] for part in parts if part.get("thought")) == thinking["text"]
    plain = [part["text"] for part in parts if "text" in part and "thought" not in part]
    assert "".join(plain) == text["text"]
    names = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    assert names == [call["functionCall"]["name"] for call in calls]
    assert sent[-1]["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize("dialect", ALL)
def test_replies_follow_the_prompt_in_every_dialect(dialect):
    rules = [
        {"when": {"prompt": "greet"}, "replies": [{"text": "g0"}, {"text": "g1"}], "name": "greet"},
        {"when": {"prompt": "commit"}, "replies": [{"text": "c0"}], "name": "commit"},
    ]
    with serve_scenario(parse_scenario({"rules": rules})) as model:
        for texts in (["greet"], ["greet", "g0", "and?"], ["greet", "g0", "commit"]):
            Conversation(dialect).send(model, *texts)
        _, data = Conversation(dialect).send(model, "greet", "g0", "and?")

        assert [request.rule for request in model.requests[:3]] == ["greet", "greet", "commit"]
    assert b'"g1"' in data


@pytest.mark.parametrize("dialect", OTHERS)
def test_what_the_client_adds_is_no_prompt(dialect):
    context = "<environment_context>commit</environment_context>"
    rules = [
        {"when": {"prompt": "commit"}, "replies": [{"text": "c"}], "name": "commit"},
        {"replies": [{"text": "first"}, {"text": "second"}], "name": "rest"},
    ]
    with serve_scenario(parse_scenario({"rules": rules})) as model:
        # The model's turn before the first prompt was written by the client.
        _, data = Conversation(dialect).send(model, context, "Got it.", "hello")

        assert model.requests[0].rule == "rest"
    assert b"first" in data


@pytest.mark.parametrize(
    ("dialect", "summarize"),
    [
        ("responses", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a summary."),
        ("chat", "Here is the conversation so far:\n\n<conversation>"),
        ("chat", "Please create a detailed summary of the conversation so far. The history"),
        ("chat", "First, reason in your <analysis> block. Then, produce the summary."),
        ("gemini", "Generate a new <state_snapshot> from the history."),
    ],
)
def test_side_calls_and_compactions_have_answers_of_their_own(dialect, summarize):
    conversation = Conversation(dialect)
    with serve({"text": "main"}) as model:
        conversation.send(model, "title please", tools=False)
        conversation.send(model, "hello", "main", summarize, tools=False)
        conversation.send(model, "hello")

        assert [request.rule for request in model.requests] == ["side call", "compaction", "rule 1"]


def test_codex_names_its_subagents_in_a_header():
    rules = [
        {"when": {"subagent": True}, "replies": [{"text": "s"}], "name": "sub"},
        {"when": {"subagent": False}, "replies": [{"text": "m"}], "name": "main"},
    ]
    with serve_scenario(parse_scenario({"rules": rules})) as model:
        conversation = Conversation("responses")
        conversation.send(model, "hello")
        conversation.send(model, "hello", **{"x-openai-subagent": "collab_spawn"})

        assert [request.rule for request in model.requests] == ["main", "sub"]


def test_items_of_one_responses_reply_count_as_one():
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x"},
        {"type": "function_call_output", "call_id": "b", "output": "x"},
    ]
    with serve({"text": "zero"}, {"text": "one"}, {"text": "two"}) as model:
        body = {"input": items, "tools": [{"type": "function", "name": "shell"}]}
        _, data = post(model, "/v1/responses", body)

    assert json.loads(data)["output"][0]["content"][0]["text"] == "one"


def test_a_call_is_written_as_the_client_declares_its_tool():
    tools = [
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
    ]
    calls = [
        {"tool": "apply_patch", "input": {"input": "*** Begin Patch"}},
        {"tool": "spawn", "input": {"task": "x"}},
    ]
    with serve({"blocks": calls}) as model:
        _, data = post(model, "/v1/responses", {"input": "go", "tools": tools})

    patch, spawn = json.loads(data)["output"]
    assert (patch["type"], patch["input"]) == ("custom_tool_call", "*** Begin Patch")
    assert (spawn["type"], spawn["namespace"]) == ("function_call", "agents")


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("messages", '"stop_reason": "max_tokens"'),
        ("responses", '"reason": "max_output_tokens"'),
        ("chat", '"finish_reason": "length"'),
        ("gemini", '"finishReason": "MAX_TOKENS"'),
    ],
)
def test_a_reply_cut_by_its_limit_says_so(dialect, expected):
    with serve({"text": "cut", "stop_reason": "max_tokens"}) as model:
        _, data = Conversation(dialect).send(model, "hello")

    assert expected in data.decode()


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("responses", {"type": "rate_limit_exceeded", "param": None, "code": None}),
        ("chat", {"type": "rate_limit_exceeded", "param": None, "code": None}),
        ("gemini", {"code": 429, "status": "RESOURCE_EXHAUSTED"}),
    ],
)
def test_a_failure_has_the_form_of_its_api_and_no_usage(dialect, expected):
    with serve({"text": "done", "errors": [{"status": 429, "message": "wait"}]}) as model:
        status, data = Conversation(dialect).send(model, "hello")
        again, _ = Conversation(dialect).send(model, "hello")

        assert [bool(request.usage) for request in model.requests] == [False, True]
    error = json.loads(data)["error"]
    assert (status, again) == (429, 200)
    assert error.pop("message").startswith("wait")
    assert error == expected


@pytest.mark.parametrize("dialect", ALL)
def test_a_cut_stream_has_no_usage_in_the_log(dialect):
    with serve({"text": "Hello there.", "errors": [{"cut_after": 2}]}) as model:
        _, data = Conversation(dialect).send(model, "hello", stream=True)

        assert model.requests[0].usage == {}
    assert len(events(data)) == 2


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_later_request_reads_the_earlier_ones_from_the_cache(dialect):
    with serve({"text": "x"}) as model:
        conversation = Conversation(dialect)
        conversation.send(model, "hello " * 50)
        conversation.send(model, "hello " * 50, "x", "and then?")
        first, later = (DECODE[dialect](request.usage) for request in model.requests)

    assert first.cache_read_tokens == 0 < later.cache_read_tokens
    assert later.input_tokens < first.input_tokens


def test_models_are_listed_as_each_api_lists_them():
    with serve({"text": "x"}) as model:
        _, openai = post(model, "/v1/models", method="GET")
        _, google = post(model, "/v1beta/models?pageSize=5", method="GET")

    assert [entry["id"] for entry in json.loads(openai)["data"]] == ["scripted"]
    assert [entry["name"] for entry in json.loads(google)["models"]] == ["models/scripted"]


def test_gemini_token_counts_are_answered():
    with serve({"text": "x"}) as model:
        body = Conversation("gemini").body("hello")
        status, data = post(model, f"{GEMINI}:countTokens", body)

    assert (status, json.loads(data)["totalTokens"] > 0) == (200, True)


def test_a_call_takes_an_id_from_an_earlier_result():
    wait = {"tool": "wait", "input": {"targets": [{"from_result": r"agent_id\W+([0-9a-f]+)"}]}}
    items = [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "function_call", "call_id": "a", "name": "spawn", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": '{"agent_id": "0ff1ce"}'},
    ]
    with serve({"text": "zero"}, {"blocks": [wait]}) as model:
        body = {"input": items, "tools": [{"type": "function", "name": "wait"}]}
        _, data = post(model, "/v1/responses", body)

    assert json.loads(data)["output"][0]["arguments"] == '{"targets": ["0ff1ce"]}'
