import json

from flightlog.agents.claude_code.hooks import find_transcript_paths, read_new_status
from flightlog.hooks.writer import name_loss_count
from flightlog.sources.hook_log import (
    count_lost_records,
    follow_hook_records,
    measure_hook_log,
    read_hook_records,
    read_new_hook_records,
)


def line(event="Stop", at_ms=1, **payload):
    record = {
        "v": 1,
        "id": "x",
        "at_ms": at_ms,
        "agent": "claude-code",
        "event": event,
        "payload": payload,
    }
    return json.dumps(record).encode() + b"\n"


def test_records_are_typed_and_damage_between_them_is_skipped(tmp_path):
    (tmp_path / "hooks.jsonl").write_bytes(
        line("SessionStart") + b'{"at_ms":"soon"}\nnoise\n' + line("Stop", 2)
    )

    records = list(read_hook_records(tmp_path))

    assert [(record.event, record.at_ms, record.agent) for record in records] == [
        ("SessionStart", 1, "claude-code"),
        ("Stop", 2, "claude-code"),
    ]


def test_a_read_goes_on_where_the_last_one_ended(tmp_path):
    path = tmp_path / "hooks.jsonl"
    path.write_bytes(line("SessionStart") + line("Stop")[:20])

    first, end = read_new_hook_records(str(tmp_path), 0)
    path.write_bytes(line("SessionStart") + line("Stop"))
    second, last = read_new_hook_records(str(tmp_path), end)

    assert [[record.event for record in records] for records in (first, second)] == [
        ["SessionStart"],
        ["Stop"],
    ]
    assert read_new_hook_records(str(tmp_path), last) == ([], last)


def test_following_reads_events_that_could_not_wait_for_the_lock(tmp_path):
    path, ends = tmp_path / "hooks.jsonl", {}
    path.write_bytes(line("SessionStart", 1) + line("Stop", 3))
    size = measure_hook_log(tmp_path)
    (tmp_path / "hooks.jsonl.7-a.shard.jsonl").write_bytes(line("PreToolUse", 2))

    first = follow_hook_records(tmp_path, ends)
    path.write_bytes(path.read_bytes() + line("SessionEnd", 4))
    second = follow_hook_records(tmp_path, ends)

    events = [[record.event for record in records] for records in (first, second)]
    assert events == [["SessionStart", "PreToolUse", "Stop"], ["SessionEnd"]]
    assert measure_hook_log(tmp_path) > size


def test_a_missing_log_has_no_records(tmp_path):
    assert list(read_hook_records(tmp_path)) == []
    assert read_new_hook_records(str(tmp_path), 5) == ([], 0)


def test_only_absolute_transcript_paths_count(tmp_path):
    paths = (
        {"transcript_path": "/a/s.jsonl"},
        {"transcript_path": "s.jsonl"},
        {"transcript_path": 3},
        {},
    )
    (tmp_path / "hooks.jsonl").write_bytes(b"".join(line(**payload) for payload in paths))

    assert find_transcript_paths(read_hook_records(tmp_path)) == {"/a/s.jsonl"}


def test_a_status_record_holds_launch_and_payload(tmp_path):
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": None}
    payload = {
        "model": {"id": "m"},
        "context_window": {"current_usage": usage},
        "rate_limits": None,
    }
    record = {"at_ms": 7, "launch": {"pid": 3, "account": "key-1"}, "payload": payload}
    (tmp_path / "status.jsonl").write_bytes(json.dumps(record).encode() + b'\n{"at_ms":8}\n')

    (status,), _ = read_new_status(str(tmp_path), 0)

    assert (status.at_ms, status.launch.pid, status.payload.model.id) == (7, 3, "m")
    assert status.payload.context_window.current_usage.usage().total_tokens == 3


def test_lost_records_of_this_home_are_summed(tmp_path):
    (tmp_path / "lost").write_text("2")
    (tmp_path / name_loss_count(str(tmp_path))).write_text("3")
    (tmp_path / name_loss_count(f"{tmp_path}/other")).write_text("4")

    assert count_lost_records(tmp_path, tmp_path) == 5
    (tmp_path / "lost").write_text("nonsense")
    assert count_lost_records(tmp_path, tmp_path) == 3
