import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.agents.claude_code.source import entries, read_subagent_info
from flightlog.model.entries import Entry, SubagentInfo, UserPrompt, text_of
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from support.recordings import ROOT
from support.transcripts import SESSION, assistant, user, write
from support.unprivileged import run_unprivileged


def read(path, subagent="", start=0):
    return list(entries(SessionFile(str(path), SESSION, 0, 0, subagent), start))


def list_prompts(items):
    return [
        text_of(item.event.content)
        for item in items
        if isinstance(item, Entry) and isinstance(item.event, UserPrompt)
    ]


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"\x00\x00\x00",
        b'{"type":"user","message":{"cont',
        b"[1,2]",
        b"\xff\xfe",
        b"null",
        b'{"no":"type"}',
        b"}{",
    ],
)
def test_damage_between_records_is_reported_and_hides_none(tmp_path, broken):
    path = write(tmp_path, SESSION, user("one", 1), broken, user("two", 2))

    items = read(path)

    assert list_prompts(items) == ["one", "two"]
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert (
        path.read_bytes()[damage.offset : damage.offset + damage.length].strip() == broken.strip()
    )


def test_two_records_on_one_line_and_a_torn_end_are_all_reported(tmp_path):
    path = write(tmp_path, SESSION, user("one", 1))
    text = path.read_bytes().strip()
    path.write_bytes(
        b"\xef\xbb\xbf"
        + text
        + text.replace(b'"one"', b'"two"').replace(b"u1", b"u2")
        + b'\n{"type":"us'
    )

    items = read(path)

    assert list_prompts(items) == ["one", "two"]
    assert sum(isinstance(item, Damage) for item in items) == 2


@pytest.mark.parametrize(
    "odd", ['"\\ud83d"', '"\\u0000"', "1e999", "1" + "0" * 400, '"\\u001b]0;x\\u0007"']
)
def test_odd_values_cost_no_record(tmp_path, odd):
    path = write(tmp_path, SESSION, '{"type":"user","message":{"content":"one"},"odd":' + odd + "}")

    assert list_prompts(read(path)) == ["one"]


def test_records_without_a_time_take_the_one_before(tmp_path):
    path = write(
        tmp_path,
        SESSION,
        {"type": "mode"},
        user("a", 1),
        {"type": "last-prompt"},
        user("b", 2, timestamp="nonsense"),
    )

    times = [item.order_ms for item in read(path)]

    assert times[0] == 0
    assert len({*times[1:]}) == 1


def test_every_entry_has_its_location(tmp_path):
    path = write(tmp_path, SESSION, user("one", 1), assistant("m", 2))

    for item in read(path):
        line = path.read_bytes()[item.offset : item.offset + item.length]
        assert line.startswith(b'{"type"')
        assert line.endswith(b"}")
        assert (item.session, item.path) == (SESSION, str(path))


def test_records_of_a_subagents_file_name_the_subagent(tmp_path):
    path = write(tmp_path, "agent-a1", user("one", 1, agentId="other", isSidechain=True))

    assert read(path, subagent="a1")[0].subagent == "a1"


def test_reading_goes_on_where_it_ended(tmp_path):
    path = write(tmp_path, SESSION, user("one", 1), user("two", 2))
    first, second = read(path)

    assert read(path, start=second.offset) == [second]
    assert read(path, start=first.offset + first.length)[0].key == second.key


def test_a_file_that_is_gone_or_no_file_is_damage(tmp_path):
    (gone,) = read(tmp_path / "gone.jsonl")
    (folder,) = read(tmp_path)

    assert gone.reason == "No such file or directory"
    assert folder.reason == "file system error: Is a directory"


def test_a_file_that_may_not_be_read_is_damage():
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    path = root / "closed.jsonl"
    path.write_text("{}")
    path.chmod(0)

    reasons = run_unprivileged(lambda: [item.reason for item in read(path)])
    shutil.rmtree(root)

    assert reasons == ["file system error: Permission denied"]


@pytest.mark.parametrize("body", ["", "[]", "nonsense", '{"agentType":1}', "\udcff"])
def test_broken_info_file_of_a_subagent_is_ignored(tmp_path, body):
    file = SessionFile(str(tmp_path / "agent-a1.jsonl"), SESSION, 0, 0, "a1")
    (tmp_path / "agent-a1.meta.json").write_bytes(body.encode("utf-8", "surrogateescape"))

    assert read_subagent_info(file) == SubagentInfo("a1")
    assert read_subagent_info(
        SessionFile(str(tmp_path / "agent-a2.jsonl"), SESSION, 0, 0, "a2")
    ) == SubagentInfo("a2")


def test_info_file_of_a_subagent_links_it_to_its_call(tmp_path):
    (tmp_path / "agent-a1.meta.json").write_text(
        '{"agentType":"Explore","description":"look","toolUseId":"t1"}'
    )

    info = read_subagent_info(SessionFile(str(tmp_path / "agent-a1.jsonl"), SESSION, 0, 0, "a1"))

    assert info == SubagentInfo("a1", "Explore", "look", "t1")


SMALL = [
    path for path in sorted(ROOT.glob("*/*/transcripts/**/*.jsonl")) if path.stat().st_size < 60_000
]


@settings(max_examples=60)
@given(data=st.data())
def test_random_damage_never_raises_and_loses_only_the_lines_it_hits(data):
    path = data.draw(st.sampled_from(SMALL))
    lines = path.read_bytes().splitlines(keepends=True)
    body = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(body) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=20).filter(lambda piece: b"\n" not in piece))
    body[at : at + len(noise)] = noise
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        Path(file.name).write_bytes(body)
        items = read(Path(file.name))

    hit, passed = set(), 0
    for place, line in enumerate(lines):
        if passed < at + len(noise) and passed + len(line) > at:
            hit |= {place, place + 1} if at + len(noise) >= passed + len(line) else {place}
        passed += len(line)
    keys = {item.key for item in items if isinstance(item, Entry)}
    for place, line in enumerate(lines):
        uuid = json.loads(line).get("uuid")
        if place not in hit and uuid:
            assert f"{uuid}:0" in keys
