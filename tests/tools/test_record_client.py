"""The recorder: real sessions without a vendor's words or a path of the machine."""

import json
import re
import shutil

import pytest
from tools.record_client import Scrubber, record_case

from flightlog.agents.scripted.server import ServedRequest
from support.client_recordings import ROOT, lay_out_home, list_cases, wire_lines, wire_usage
from support.real_clients import ClientRun, make_machine

SYSTEM = "You are an agent of a vendor. " * 10
TOOL = "Runs a command in the shell of the person, and returns what it printed. " * 2
CONTEXT = f"<session_context>\n{'Today is a day. ' * 20}\n</session_context>"


@pytest.fixture
def scrubber(tmp_path):
    """A scrubber that has seen one request."""
    body = {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": [{"type": "text", "text": CONTEXT + "make a file"}]},
            {"role": "tool", "content": "a line of the result\n" * 40},
        ],
        "tools": [{"function": {"name": "shell", "description": TOOL}}],
    }
    request = ServedRequest("POST", "/v1/chat/completions", {}, body, "main", 200)
    machine = make_machine(tmp_path, "qwen")
    machine.write_config(".qwen/installation_id", "0f1e2d3c-aaaa-4bbb-8ccc-123456789abc")
    return Scrubber([ClientRun(0, "", "", 0.1, [request])], ["make a file"], machine)


def scrub(scrubber, record):
    text, _ = scrubber.scrub_lines([json.dumps(record) + "\n"], "x.jsonl", {})
    return json.loads(text)


def test_a_system_prompt_becomes_a_placeholder_with_its_length(scrubber):
    record = {"prompt": SYSTEM, "part": SYSTEM[30:150], "both": f"make a file\n{SYSTEM}"}

    assert scrub(scrubber, record) == {
        "prompt": "[system prompt, 300 chars]",
        "part": "[system prompt, 120 chars]",
        "both": "make a file\n[system prompt, 300 chars]",
    }


def test_context_keeps_its_tag_and_the_prompt_beside_it(scrubber):
    clean = scrub(scrubber, {"text": CONTEXT + "make a file"})

    expected = f"<session_context>[context, {len(CONTEXT)} chars]</session_context>make a file"
    assert clean == {"text": expected}


def test_tool_descriptions_become_placeholders_however_short(scrubber):
    tools = [{"name": "shell", "description": "Runs", "parameters": {"description": "x"}}]

    (clean,) = scrub(scrubber, {"toolsAdded": tools})["toolsAdded"]

    assert clean["description"] == "[tool description, 4 chars]"
    assert clean["parameters"] == {"description": "[tool description, 1 chars]"}


def test_a_long_text_of_unknown_origin_is_replaced_and_a_result_is_kept(scrubber):
    result = "a line of the result\n" * 40

    clean = scrub(scrubber, {"odd": "unknown " * 100, "output": f"{result}exit 0"})

    assert clean == {"odd": "[text, 800 chars]", "output": f"{result}exit 0"}


def test_a_line_without_foreign_words_keeps_its_bytes(scrubber):
    line = '{"a":  "make a file",\t"b": "é"}\n'

    assert scrubber.scrub_lines([line], "x.jsonl", {})[0] == line


def test_ids_of_the_machine_become_zeros(scrubber):
    record = {"installation": "0f1e2d3c-aaaa-4bbb-8ccc-123456789abc"}

    assert scrub(scrubber, record) == {"installation": "00000000-0000-0000-0000-000000000000"}


def test_a_fork_points_at_the_same_line_of_its_rewritten_parent(scrubber):
    first, second = json.dumps({"text": SYSTEM}) + "\n", json.dumps({"text": "make"}) + "\n"
    text, ends = scrubber.scrub_lines([first, second], "parent.jsonl", {})
    base = {"thread_id": "t", "end_byte_offset": len(first)}

    fork, _ = scrubber.scrub_lines(
        [json.dumps({"payload": {"history_base": base}}) + "\n"], "fork.jsonl", {"t": ends}
    )

    offset = json.loads(fork)["payload"]["history_base"]["end_byte_offset"]
    assert text[offset:] == second


def test_a_recorded_case_equals_the_one_in_the_repository_but_for_ids(tmp_path):
    directory = tmp_path / "codex" / "0.166.0" / "tool-call"
    directory.mkdir(parents=True)
    shutil.copy(ROOT / "codex/0.166.0/tool-call/case.yaml", directory)

    record_case(directory, tmp_path / "machine")

    assert (directory / "wire.jsonl").read_text() == (
        ROOT / "codex/0.166.0/tool-call/wire.jsonl"
    ).read_text()
    (again,) = directory.rglob("rollout-*.jsonl")
    (recorded,) = (ROOT / "codex/0.166.0/tool-call").rglob("rollout-*.jsonl")
    assert record_types(again) == record_types(recorded)
    assert "/home/dev/project" in again.read_text()


def record_types(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted((record["type"], record["payload"].get("type", "")) for record in records)


@pytest.mark.parametrize("case", list_cases())
def test_a_recording_names_no_path_of_the_machine_that_made_it(case):
    texts = [path.read_text() for path in (ROOT / case / "session").rglob("*") if path.is_file()]

    assert texts
    assert [re.findall(r"/(?:work|root|tmp)/[\w/.-]*", text) for text in texts] == [[]] * len(texts)


@pytest.mark.parametrize("case", list_cases())
def test_a_recording_has_the_usage_of_its_responses(case, tmp_path):
    home = lay_out_home(tmp_path / "home", case)

    assert wire_usage(case).output_tokens > 0
    assert {line.get("status", 200) for line in wire_lines(case)} >= {200}
    assert [path for path in home.rglob("*") if path.suffix in {".jsonl", ".json", ".db"}]
