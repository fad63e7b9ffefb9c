"""What filled each prompt, held against a model that counts every block by a fixed rule."""

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.agents.dialects.anthropic_messages import AGENT_ID
from flightlog.analysis.context_parts import find_server
from flightlog.analysis.service import analyze_archive, analyze_session, list_blocks
from flightlog.archive.archive import Archive
from flightlog.model.usage import Usage
from flightlog.usage.prices import price
from support.cli_runs import flightlog
from support.counted_sessions import CountedRequest, CountedThread, make_session
from support.pages import running
from support.real_agent import new_session
from support.recordings import CASES
from support.recordings import archive as recorded_archive
from support.scripted_apis import counting_apis
from support.scripted_apis.counts import count_blocks, count_text, count_words
from support.transcripts import MODEL, SESSION, archive, assistant, user, write

SEEDS = range(50)
LEAST_EXACT = 0.8  # of all tokens


def measure(config):
    return analyze_session(Archive({"claude-code": (str(config),)}), SESSION).context


def find_kind(block, names):
    match (block.role, block.kind):
        case ("assistant", "thinking"):
            return ("thinking", "")
        case ("assistant", _):
            return ("response", "")
        case (_, "tool_result"):
            return ("tool_result", names[block.name])
        case _:
            return ("text", "")


def sum_parts(parts):
    """Return exact and estimated tokens by kind and name; texts beside results are one kind."""
    sums = Counter()
    for part in parts:
        is_text = part.kind in {"prompt", "context", "memory", "summary"}
        sums["text" if is_text else part.kind, "" if is_text else part.name, part.exact] += (
            part.tokens
        )
    return sums


def is_near(tokens, counted):
    return abs(tokens - counted) <= max(0.2 * counted, 1)


def check_requests(context, counted):
    """Compare each request with the counts of the model; return exact tokens and all tokens."""
    exact = total = 0
    in_start, start, sent = set(), None, 0
    for request, truth in zip(context.requests, counted, strict=True):
        if request.start != start:
            messages = truth.body["messages"]
            fresh = {at for at, one in enumerate(messages) if one["role"] != "assistant"}
            is_first = not request.parts
            added = {at for at in fresh if at >= sent}
            in_start = set(range(len(messages))) if is_first else in_start | added
            start = request.start
        sent = len(truth.body["messages"])
        begin = context.starts[request.start]
        check_parts(request, truth, in_start)
        assert begin.tokens == sum(
            block.tokens for block in truth.blocks if block.message in {-1, *in_start}
        )
        assert request.input_tokens == sum(block.tokens for block in truth.blocks)
        assert request.input_tokens == begin.tokens + sum(part.tokens for part in request.parts)
        assert sum(share.tokens for share in begin.shares) == begin.tokens
        exact += begin.tokens + sum(part.tokens for part in request.parts if part.exact)
        total += request.input_tokens
    return exact, total


def check_parts(request, truth, in_start):
    counts = Counter()
    for block in truth.blocks:
        if block.message >= 0 and block.message not in in_start:
            counts[find_kind(block, truth.tool_names)] += block.tokens
    sums = sum_parts(request.parts)
    for kind, name in {key[:2] for key in sums} | counts.keys():
        exact, estimated = sums[kind, name, True], sums[kind, name, False]
        tokens = counts[kind, name]
        assert exact == tokens if not estimated else exact < tokens, (request.address, kind, name)
        assert is_near(exact + estimated, tokens), (request.address, kind, name)


def check_blocks(blocks):
    """Compare each block with the rule: the model counts a text by its length alone."""
    for block in blocks:
        counted = count_text("x" * block.chars)
        if block.exact and block.kind != "response":  # a response is several blocks
            assert block.tokens == counted, block
        if block.kind != "other":
            assert is_near(block.tokens, counted), block


@pytest.mark.parametrize("count", [count_text, count_words])
def test_generated_sessions_agree_with_the_counts_of_the_model(count, tmp_path):
    exact = total = kinds = 0
    for seed in SEEDS:
        threads = make_session(tmp_path / str(seed), seed, count)
        counted = [request for thread in threads.values() for request in thread.requests]

        context = measure(tmp_path / str(seed))

        sums = check_requests(context, counted)
        if count is count_text:
            check_blocks(context.blocks)
        exact, total = exact + sums[0], total + sums[1]
        kinds += len(context.starts) > 1
    assert exact / total >= LEAST_EXACT
    assert kinds > 10  # compactions, subagents and changed tools are among them


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_recorded_session_sum_to_each_prompt(case, tmp_path):
    opened = recorded_archive(tmp_path, case)
    for session in opened.recordings:
        detail = analyze_session(opened, session)
        context = detail.context

        assert len(context.requests) == len(detail.cache)
        for request in context.requests:
            parts = sum(part.tokens for part in request.parts)
            assert context.starts[request.start].tokens + parts == request.input_tokens
            assert all(part.tokens > 0 for part in request.parts)


def test_real_client_agrees_with_the_counts_of_the_model(bench):
    (bench.project / "CLAUDE.md").write_text("Prefer short functions. " * 30)
    (bench.project / "log.txt").write_text("the test of the basket passed\n" * 900)
    task = {"description": "Count", "prompt": "Count to 200.", "subagent_type": "general-purpose"}
    work = [
        *(run_commands("cat log.txt"), run_commands("seq 300", "seq 400 900")),
        *({"blocks": [{"tool": "Agent", "input": task}]}, run_commands("tail -5 log.txt")),
    ]
    rules = [
        {"when": {"subagent": True}, "replies": [run_commands("seq 200"), {"text": "Counted."}]},
        {"when": {"prompt": "look"}, "replies": [*work, {"text": "Done."}]},
        {"when": {"prompt": "go on"}, "replies": [run_commands("seq 50"), {"text": "Done."}]},
    ]
    scenario = {"rules": [*rules, {"replies": [{"text": "Noted."}]}]}
    session, bench = new_session(), replace(bench, apis=counting_apis())

    runs = [
        bench.run(scenario, "Please look at the log.", "--session-id", session),
        bench.run(scenario, "/compact", "--resume", session),
        bench.run(scenario, "Please go on.", "--resume", session),
    ]

    served = [one for run in runs for one in run.requests if one.usage and one.rule != "compaction"]
    served.sort(key=lambda one: AGENT_ID in one.headers)
    context = analyze_session(Archive({"claude-code": (str(bench.config),)}), session).context
    exact, total = check_requests(context, list(map(to_counted, served)))
    assert exact / total >= LEAST_EXACT
    assert len(context.starts) == 3  # of the thread, of the subagent and after the compaction
    for start in context.starts:
        check_shares(start, served[[one.address for one in context.requests].index(start.address)])


@pytest.mark.parametrize("count", [count_text, count_words])
def test_shares_of_a_response_follow_the_rule_of_the_model(count, bench):
    thoughts = "I should look at the failing test first and then find out why. "
    dense = [f"echo {'packages/shop/' * 9}{at} && echo {'x' * 80}" for at in range(4)]
    work = [run_commands(f"seq {at}9", command) for at, command in enumerate(dense)]
    for at, reply in enumerate(work):
        reply["blocks"].insert(0, {"thinking": thoughts * (at + 1)})
    work += [run_commands("ls -la"), {"text": "All of it was looked at, and it is done."}]
    bench = replace(bench, apis=counting_apis(count))

    ran = bench.run({"rules": [{"replies": work}]}, "Please look at the log.")

    served = [to_counted(one, count) for one in ran.requests if one.usage]
    opened = Archive({"claude-code": (str(bench.config),)})
    context = analyze_session(opened, next(iter(opened.recordings))).context
    exact, total = check_requests(context, served)
    assert exact / total >= LEAST_EXACT
    assert {part.exact for part in context.requests[-1].parts if part.kind == "thinking"} == {False}


def run_commands(*commands):
    given = ({"command": command, "description": "Run"} for command in commands)
    return {"blocks": [{"tool": "Bash", "input": arguments} for arguments in given]}


def to_counted(served, count=count_text):
    contents = (message["content"] for message in served.body["messages"])
    blocks = (block for content in contents if isinstance(content, list) for block in content)
    names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
    return CountedRequest(served.body, count_blocks(served.body, count), names)


def check_shares(start, served):
    """Compare tools, system prompt and messages of a start with the counts of the model."""
    shares, counts = Counter(), Counter()
    for share in start.shares:
        shares[share.kind if share.kind in {"tools", "system"} else "messages"] += share.tokens
    for block in count_blocks(served.body):
        counts[block.role if block.message < 0 else "messages"] += block.tokens
    assert all(is_near(shares[kind], tokens) for kind, tokens in counts.items())


def reply(number, prompt, output, *, read=0, written=0, call="", **fields):
    """A response that read `prompt` tokens, with a call if it is named."""
    tokens = {
        "input_tokens": prompt - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": output,
    }
    use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "make test"}}
    content = [use] if call else [{"type": "text", "text": "Done."}]
    return assistant(f"m{number}", number, *content, tokens=tokens, **fields)


def result(number, call, text, **fields):
    given = [{"type": "tool_result", "tool_use_id": call, "content": text}]
    return user(given, number, **fields)


def measure_records(tmp_path, *records):
    return analyze_session(archive(tmp_path, *records), SESSION).context


def find_result(context, address=""):
    results = (block for block in context.blocks if block.kind == "tool_result")
    return next(block for block in results if block.address.startswith(address))


def test_block_costs_what_each_later_request_paid_for_it(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 50, written=10_000, call="a"),
        result(3, "a", "x" * 40_000),
        reply(4, 20_050, 30, read=10_000, written=10_050),  # first sent
        user("And now?", 5),
        reply(6, 20_100, 30, read=20_050, written=50),  # read from the cache
        user("Again?", 7),
        reply(8, 20_150, 30, read=10_000, written=10_150),  # a miss wrote it again
    ]

    block = find_result(measure_records(tmp_path, *records))

    again = price(MODEL, Usage(cache_read_tokens=10_000)).usd
    again += price(MODEL, Usage(cache_write_tokens=10_000)).usd
    assert (block.tokens, block.exact, block.times_read) == (10_000, True, 2)
    assert block.carrying_cost_usd == pytest.approx(again)
    assert block.address == f"{SESSION}#1.1"


def test_compaction_ends_a_block_and_begins_a_window(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 50, call="a"),
        result(3, "a", "x" * 40_000),
        reply(4, 20_050, 30),
        {**user("", 5), "type": "system", "subtype": "compact_boundary", "compactMetadata": {}},
        user("The summary of it all.", 6, isCompactSummary=True),
        user("And now?", 7),
        reply(8, 11_000, 30),
    ]

    context = measure_records(tmp_path, *records)

    assert find_result(context).times_read == 0
    assert [start.tokens for start in context.starts] == [10_000, 11_000]
    assert "summary" in {share.kind for share in context.starts[1].shares}


def test_rewound_turn_does_not_fill_later_prompts(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 50),
        user("Take this back.", 3),
        reply(4, 10_060, 60, call="a"),
        result(5, "a", "x" * 4_000),
        reply(6, 11_120, 40),
        user("Instead do that, please.", 7, parentUuid="u2"),
        reply(8, 10_070, 30),
    ]

    context = measure_records(tmp_path, *records)

    last = context.requests[-1]
    assert [(part.kind, part.tokens) for part in last.parts] == [("prompt", 20), ("response", 50)]
    assert find_result(context).exact
    assert [block.times_read for block in context.blocks if block.kind == "other"] == [3]


def test_prompt_that_lost_tokens_still_sums_up_and_is_no_longer_exact(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 50, call="a"),
        result(3, "a", "x" * 40_000),
        reply(4, 20_050, 30),
        user("And now?", 5),
        reply(6, 12_000, 30),
    ]

    context = measure_records(tmp_path, *records)

    last = context.requests[-1]
    assert context.starts[0].tokens + sum(part.tokens for part in last.parts) == 12_000
    assert not any(part.exact for part in last.parts)
    assert not any(block.exact for block in context.blocks if block.times_read)


def test_removed_tokens_leave_the_cost_of_the_others(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 50, read=10_000, call="a"),
        result(3, "a", "x" * 4_000),
        reply(4, 11_050, 60, read=11_050, call="b"),
        result(5, "b", "x" * 40_000),
        reply(6, 21_110, 30, read=21_110),
        user("And now?", 7),
        reply(8, 21_200, 30, read=21_200),
        user("Again?", 9),
        reply(10, 13_000, 30, read=13_000),
    ]

    first = find_result(measure_records(tmp_path, *records), f"{SESSION}#1.1")

    again = price(MODEL, Usage(cache_read_tokens=1_000)).usd
    assert (first.tokens, first.times_read) == (1_000, 3)
    assert first.carrying_cost_usd == pytest.approx(3 * again)


def test_server_that_comes_later_is_read_from_then_on(tmp_path):
    thread = CountedThread(Random(1))
    for turn in range(4):
        thread.servers += turn == 1
        thread.prompt("Look at this, please.")
        thread.answer({"type": "text", "text": "It is done."})
    write(tmp_path, SESSION, *thread.records)

    context = measure(tmp_path)

    check_requests(context, thread.requests)
    tools = [(block.name, block.times_read) for block in context.blocks if block.kind == "tools"]
    before, after = {("built-in", 0), ("server0", 0)}, {("built-in", 2), ("server0", 2)}
    assert sorted(tools) == sorted(before | after | {("server1", 2)})
    assert [start.address for start in context.starts] == [f"{SESSION}#1.1", f"{SESSION}#2.1"]


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 9_999), st.integers(0, 9_999))))
def test_blocks_cost_together_what_reading_the_window_again_cost(steps):
    records, prompt, paid = [user("Go.", 1), reply(2, 5_000, 40)], 5_000, 0.0
    for growth, most_read, most_written in steps:
        previous, prompt = prompt, prompt + 40 + growth
        read = min(most_read, prompt)
        written = min(most_written, prompt - read)
        tokens = (min(read, previous), min(read + written, previous))
        usage = Usage(previous - tokens[1], 0, tokens[0], tokens[1] - tokens[0])
        paid += price(MODEL, usage).usd
        records.append(user("x" * 4 * growth, len(records) + 1))
        records.append(reply(len(records) + 1, prompt, 40, read=read, written=written))

    with TemporaryDirectory() as folder:
        blocks = measure_records(Path(folder), *records).blocks

    assert sum(block.carrying_cost_usd for block in blocks) == pytest.approx(paid)


def test_growth_that_no_record_explains_is_not_given_to_a_short_result(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 50, call="a"),
        result(3, "a", "ok"),
        reply(4, 15_000, 30),
    ]

    parts = measure_records(tmp_path, *records).requests[-1].parts

    assert [(part.kind, part.exact) for part in parts if part.tokens > 10] == [
        ("other", False),
        ("response", True),
    ]


def test_long_result_for_few_tokens_is_not_exact(tmp_path):
    records = [
        user("Test it.", 1),
        reply(2, 10_000, 900, call="a"),  # most of it is reasoning that is not sent again
        result(3, "a", "x" * 4_000),
        reply(4, 11_000, 30),
    ]

    parts = measure_records(tmp_path, *records).requests[-1].parts

    assert not any(part.exact for part in parts)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 30_000),  # tokens of the prompt
            st.integers(0, 2_000),  # of the response
            st.integers(0, 9_000),  # characters of the result
            st.sampled_from(["", "", "", "turn", "compact", "rewind", "model", "abort"]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_parts_sum_to_any_sequence_of_prompts(rows):
    records = [user("Go.", 1)]
    for prompt, output, chars, event in rows:
        number, call = len(records) + 1, f"call{len(records)}"
        if event in {"turn", "rewind"}:
            back = {"parentUuid": "u1"} if event == "rewind" else {}
            records.append(user("Another prompt.", number, **back))
        if event == "compact":
            boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {}}
            records.append({**user("", number), **boundary})
        number = len(records) + 1
        fields = {"isAbortedMidStream": True} if event == "abort" else {}
        records.append(reply(number, prompt, output, read=prompt // 2, call=call, **fields))
        if event == "model":
            records[-1]["message"]["model"] = "claude-haiku-4-5"
        records.append(result(number + 1, call, "x" * chars))

    with TemporaryDirectory() as folder:
        context = measure_records(Path(folder), *records)

    assert len(context.requests) == len(rows)
    for request in context.requests:
        parts = (*context.starts[request.start].shares, *request.parts)
        assert sum(part.tokens for part in parts) == request.input_tokens
        assert all(part.tokens >= 0 for part in parts)
    assert all(block.times_read >= 0 for block in context.blocks)
    assert all((block.carrying_cost_usd or 0) >= -1e-9 for block in context.blocks)


def test_model_without_a_price_has_no_carrying_cost(tmp_path):
    records = [user("Go.", 1), reply(2, 9_000, 50), user("On.", 3), reply(4, 9_070, 30)]
    for record in records[1::2]:
        record["message"]["model"] = "a-model-of-nobody-1"

    blocks = measure_records(tmp_path, *records).blocks

    assert {block.carrying_cost_usd for block in blocks if block.times_read} == {None}


def test_server_of_a_tool_is_the_middle_of_its_name():
    names = {"mcp__git_hub__search": "git_hub", "mcp__a__b__c": "a", "Bash": "", "mcp__x": ""}

    assert {name: find_server(name) for name in names} == names


def test_command_prints_requests_blocks_and_bars(tmp_path):
    make_session(tmp_path, 1)

    printed = flightlog(tmp_path, "context", SESSION[:8], "--json")
    shown = flightlog(tmp_path, "context", SESSION[:8])
    ranked = flightlog(tmp_path, "context", "--project", "shop", "--json")
    other = flightlog(tmp_path, "context", "--project", "elsewhere", "--json")

    document = json.loads(printed.out)
    assert document.keys() == {"requests", "blocks"}
    for request in document["requests"]:
        assert request.keys() == {"address", "input_tokens", "parts"}
        assert sum(part["tokens"] for part in request["parts"]) == request["input_tokens"]
        assert {"kind", "name", "tokens", "exact"} <= request["parts"][0].keys()
    keys = {"address", "kind", "tokens", "times_read", "carrying_cost_usd"}
    assert keys <= document["blocks"][0].keys()
    costs = [block["carrying_cost_usd"] for block in document["blocks"]]
    assert all(one >= other for one, other in pairwise(costs))
    assert "█" in shown.out
    assert f"{document['blocks'][0]['tokens']:,}" in shown.out
    assert json.loads(ranked.out)["blocks"] == document["blocks"][:10]
    assert json.loads(other.out)["blocks"] == []


def test_session_page_has_a_column_for_each_request_that_opens_its_step(tmp_path):
    make_session(tmp_path, 3)
    context = measure(tmp_path)
    steps = [one.address.partition("#")[2] for one in context.requests if not one.thread]

    with running(tmp_path) as pages:
        page = pages.ask(f"/sessions/{SESSION}").text
        panel = pages.ask(f"/sessions/{SESSION}/context").text

    assert f'hx-get="/sessions/{SESSION}/context"' in page
    assert re.findall(r'<a href="[^"]*\?at=([\d.]+)#\1" data-jump', panel) == steps
    assert f"{context.blocks[0].tokens:,}" in panel
    assert "<script" not in panel
    assert " style=" not in panel


def test_archive_ranks_the_blocks_of_all_sessions(tmp_path):
    make_session(tmp_path, 2)

    blocks = list_blocks(analyze_archive(Archive({"claude-code": (str(tmp_path),)})))

    assert blocks == list(measure(tmp_path).blocks[:10])
