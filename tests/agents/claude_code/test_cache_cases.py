"""The recorded cache cases are whole, and the real client still attributes misses as in them."""

import json
import re

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.archive.archive import Archive
from support.cache_cases import CASES, ROOT, client_verdicts, read_case, read_status_lines
from support.real_clients import fake_key
from support.terminal_client import TerminalClient

CASE_BYTES_MAX = 200_000
# Read and written; the client seeks a cause only for less than the request before has read.
USAGE = ((0, 20_000), (20_000, 500), (0, 20_600))


def read_records(case):
    files = (ROOT / case / "projects").rglob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def scripted_usage(case):
    """The (read, written) tokens of the responses to the main thread, as they were scripted."""
    for step in read_case(case)["steps"]:
        if "usage" in step:
            yield tuple(step["usage"])
        for reply in step.get("replies", ()):
            yield reply["usage"]["cache_read"], reply["usage"]["cache_write"]


@pytest.mark.parametrize("case", [case for case in CASES if read_status_lines(case)])
def test_the_status_line_gives_the_verdicts_of_the_case(case):
    requests = read_case(case)["requests"]

    verdicts = client_verdicts(read_status_lines(case))

    assert verdicts == [
        (request["client_verdict"], request["client_causes"]) for request in requests
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_transcript_holds_the_scripted_usage(case):
    archive = Archive({"claude-code": (str(ROOT / case),)})
    sessions = [archive.read_session(name) for name in archive.recordings]
    sessions.sort(key=lambda session: session.started_ms)

    steps = [step for session in sessions for turn in session.turns for step in turn.steps]

    used = [(step.usage.cache_read_tokens, step.usage.cache_write_tokens) for step in steps]
    assert used == list(scripted_usage(case))
    assert len(used) == len(read_case(case)["requests"])
    assert [session.damage for session in sessions] == [()] * len(sessions)


@pytest.mark.parametrize("case", CASES)
def test_every_response_has_its_request_in_the_log(case):
    records = read_records(case)
    requests = {record["id"]: record for record in records if record["type"] == "api-request"}
    shapes = {record["shapeHash"] for record in records if record["type"] == "api-request-shape"}
    references = [record["requestRef"] for record in records if record["type"] == "assistant"]

    assert sorted(references) == sorted(requests)
    assert {request.get("base") for request in requests.values()} <= {None, *requests}
    assert {request["shapeHash"] for request in requests.values()} == shapes


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_small_and_holds_no_words_of_the_vendor(case):
    files = [path for path in (ROOT / case).rglob("*") if path.is_file()]
    text = "".join(path.read_text() for path in files)
    shapes = [record["shape"] for record in read_records(case) if "shape" in record]

    assert sum(path.stat().st_size for path in files) <= CASE_BYTES_MAX
    assert shapes
    for shape in shapes:
        described = [tool["description"] for tool in shape["tools"] if "description" in tool]
        words = [*described, *(block["text"] for block in shape["system"])]
        assert [
            word for word in words if not re.fullmatch(r"\[[a-z ]+, [\d,]+ chars\]", word)
        ] == []
    assert set(re.findall(r'"(/(?!home/dev/)\w+/[^"]*)"', text)) == set()
    assert fake_key() not in text


def test_the_real_client_says_why_it_missed_the_cache(bench):
    prompts = [f"Answer prompt {number}." for number in range(len(USAGE))]
    replies = [
        {"text": "Done.", "usage": {"input": 10, "cache_read": read, "cache_write": written}}
        for read, written in USAGE
    ]
    rules = [
        {"when": {"prompt": prompt}, "replies": [reply]}
        for prompt, reply in zip(prompts, replies, strict=True)
    ]
    with (
        serve_scenario(parse_scenario({"rules": rules})) as model,
        TerminalClient(bench, model.url) as client,
    ):
        client.start()
        for prompt, usage in zip(prompts, USAGE, strict=True):
            client.type_prompt(prompt, *usage)
        payloads = client.status_lines()

    assert client_verdicts(payloads) == [
        ("cold", None),
        ("hit", None),
        ("miss", ["likely_server_side"]),
    ]
    recorded = read_status_lines("nothing")[-1]["prompt_cache"]
    assert payloads[-1]["prompt_cache"].keys() == recorded.keys()
    assert len(model.requests) == len(USAGE)
