import http.client
import json
import socket
import struct
import threading
import time
from urllib.parse import urlsplit

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import LOGGED_HEADERS, serve_scenario

KEY = "sk-" + "canary-" + "1234567890"


def scenario(*replies):
    return parse_scenario({"rules": [{"replies": list(replies)}]})


def call(model, method="POST", path="/v1/messages?beta=true", body=None, **headers):
    connection = http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=10)
    try:
        connection.request(
            method, path, json.dumps(body) if isinstance(body, dict) else body, headers
        )
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def ask(model, *, stream=True, messages=(), **more):
    conversation = list(messages) or [{"role": "user", "content": "hello"}]
    return call(
        model, body={"model": "scripted-1", "stream": stream, "messages": conversation} | more
    )


def events(data):
    return [
        json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")
    ]


def rebuilt(data):
    """What a client makes of the stream: the content blocks, put together again."""
    blocks = {}
    for event in events(data):
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"], json="")
        if event["type"] == "content_block_delta":
            delta = {key: value for key, value in event["delta"].items() if key != "type"}
            for key, value in delta.items():
                target = "json" if key == "partial_json" else key
                blocks[event["index"]][target] += value
    for block in blocks.values():
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return [blocks[index] for index in sorted(blocks)]


EVERYTHING = {
    "blocks": [
        {"thinking": "Let me think about it for a while.", "signature": "sig"},
        {"redacted": "opaque"},
        {"text": "Two commands at once, “quoted” and 日本."},
        {"tool": "Bash", "input": {"command": "ls"}, "id": "toolu_1"},
        {"tool": "Read", "input": {"file_path": "/x"}, "id": "toolu_2"},
    ]
}


def test_a_stream_put_together_equals_the_reply_that_was_not_streamed():
    with serve_scenario(scenario(EVERYTHING)) as model:
        _, _, streamed = ask(model)
        _, _, whole = ask(model, stream=False)

    assert rebuilt(streamed) == json.loads(whole)["content"]
    assert [block["type"] for block in rebuilt(streamed)] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
        "tool_use",
    ]


def test_a_stream_has_the_events_of_the_messages_api_in_order():
    with serve_scenario(scenario({"text": "Hello.", "chunk_chars": 3})) as model:
        status, headers, data = ask(model)

    kinds = [event["type"] for event in events(data)]
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[3:] == ["content_block_delta"] * 2 + [
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_stop_reason_follows_from_the_blocks_or_the_script():
    with serve_scenario(scenario(EVERYTHING)) as model:
        assert json.loads(ask(model, stream=False)[2])["stop_reason"] == "tool_use"
    with serve_scenario(scenario({"text": "cut", "stop_reason": "max_tokens"})) as model:
        assert json.loads(ask(model, stream=False)[2])["stop_reason"] == "max_tokens"


def test_scripted_usage_follows_the_request_size_and_is_repeatable():
    more = [
        {"role": "user", "content": "x" * 400},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "z"},
    ]
    with serve_scenario(scenario({"text": "Hello."})) as model:
        first = json.loads(ask(model, stream=False, system="s" * 400)[2])["usage"]
        again = json.loads(ask(model, stream=False, system="s" * 400)[2])["usage"]
        later = json.loads(ask(model, stream=False, messages=more)[2])["usage"]

    assert first == again
    assert first["cache_read_input_tokens"] == 0 < first["cache_creation_input_tokens"]
    assert later["cache_creation_input_tokens"] == 0 < later["cache_read_input_tokens"]


def test_a_scripted_usage_wins():
    with serve_scenario(
        scenario({"text": "Hello.", "usage": {"input_tokens": 130000, "output_tokens": 7}})
    ) as model:
        usage = json.loads(ask(model, stream=False)[2])["usage"]

    assert (usage["input_tokens"], usage["output_tokens"]) == (130000, 7)


def test_no_two_responses_share_an_id_even_for_the_same_question():
    with serve_scenario(scenario(EVERYTHING)) as model:
        answers = [ask(model, stream=False) for _ in range(3)]

    assert len({headers["request-id"] for _, headers, _ in answers}) == 3
    assert len({json.loads(data)["id"] for _, _, data in answers}) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_has_the_words_of_the_api(status, kind):
    with serve_scenario(scenario({"errors": [{"status": status, "retry_after_s": 0.5}]})) as model:
        got, headers, data = ask(model)

    answer = json.loads(data)
    assert (got, headers["retry-after"], answer["error"]["type"]) == (status, "0.5", kind)
    assert headers["request-id"] == answer["request_id"]


def test_a_reply_succeeds_after_its_errors():
    with serve_scenario(
        scenario({"text": "Hello.", "errors": [{"status": 529}, {"status": 429}]})
    ) as model:
        assert [ask(model)[0] for _ in range(4)] == [529, 429, 200, 200]


def test_a_reply_of_errors_alone_never_succeeds():
    with serve_scenario(scenario({"errors": [{"status": 401, "message": "no"}]})) as model:
        assert [ask(model)[0] for _ in range(3)] == [401] * 3


def test_errors_are_counted_for_each_conversation_by_itself():
    with serve_scenario(scenario({"text": "Hello.", "errors": [{"status": 529}]})) as model:
        statuses = [ask(model, messages=[{"role": "user", "content": text}])[0] for text in "aabb"]

    assert statuses == [529, 200, 529, 200]


def test_a_stream_can_be_cut_and_is_whole_the_next_time():
    with serve_scenario(scenario({"text": "Hello.", "errors": [{"cut_after": 3}]})) as model:
        cut, whole = events(ask(model)[2]), events(ask(model)[2])

    assert len(cut) == 3
    assert whole[-1]["type"] == "message_stop"


def test_a_slow_stream_is_slow_and_ends_with_the_server():
    with serve_scenario(scenario({"text": "x" * 240, "chunk_delay_s": 30})) as model:
        thread = threading.Thread(target=ask, args=[model], daemon=True)
        thread.start()
        time.sleep(0.2)
        assert thread.is_alive()
    thread.join(5)

    assert not thread.is_alive()


def test_probes_and_counts_are_answered():
    with serve_scenario(scenario({"text": "Hello."})) as model:
        assert call(model, "HEAD", "/")[0] == 200
        assert call(model, "HEAD", "/api/hello")[0] == 200
        assert call(model, "GET", "/api/hello")[0] == 200
        assert call(model, "GET", "/elsewhere")[0] == 404
        status, _, data = call(
            model,
            "POST",
            "/v1/messages/count_tokens",
            {"messages": [{"role": "user", "content": "x"}]},
        )

    assert (status, json.loads(data)["input_tokens"] > 0) == (200, True)


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/messages", b"{"), ("/v1/messages", b"[]"), ("/v1/other", {})]
)
def test_what_is_not_a_request_gets_an_error(path, body):
    with serve_scenario(scenario({"text": "Hello."})) as model:
        assert call(model, "POST", path, body)[0] in {400, 404}


def test_a_request_no_rule_knows_is_refused():
    with serve_scenario(
        parse_scenario({"rules": [{"when": {"prompt": "other"}, "replies": [{"text": "x"}]}]})
    ) as model:
        status, _, data = ask(model)

    assert (status, "no rule" in json.loads(data)["error"]["message"]) == (400, True)


def test_requests_are_kept_without_the_key():
    with serve_scenario(scenario({"text": "Hello."})) as model:
        call(
            model, body={"messages": []}, **{"x-api-key": KEY, "authorization": KEY, "x-app": "cli"}
        )
        (seen,) = model.requests

    assert (seen.method, seen.status, seen.headers) == ("POST", 200, {"x-app": "cli"})
    assert KEY not in repr(seen)
    assert not {"x-api-key", "authorization", "cookie"} & set(LOGGED_HEADERS)


def test_a_client_that_resets_its_connection_leaves_no_traceback(capfd):
    with serve_scenario(scenario({"text": "Hello."})) as model:
        host = urlsplit(model.url)
        with socket.create_connection((host.hostname, host.port)) as connection:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\n")
            time.sleep(0.1)
            # Closing with a linger of zero sends a reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.1)

        assert ask(model)[0] == 200
    assert capfd.readouterr().err == ""


def test_nothing_is_kept_unless_asked():
    with serve_scenario(scenario({"text": "Hello."}), keep=False) as model:
        ask(model)

        assert model.requests == []
