import json
from pathlib import Path

from flightlog.agents.claude_code.scan import UsageEvidence, find_evidence
from flightlog.archive.archive import Archive
from flightlog.store.recordings.recording import seal_recording


def write(tmp_path, *records):
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    return [str(path), str(tmp_path / "missing.jsonl")]


def test_compactions_and_cuts_are_counted(tmp_path):
    cut = {
        "type": "system",
        "subtype": "api_error",
        "error": {"connection": {"code": "StreamTruncated"}},
    }
    quoted = {
        "type": "user",
        "message": {"content": "compact_boundary"},
        "note": "compact_boundary",
    }

    paths = write(tmp_path, {"type": "system", "subtype": "compact_boundary"}, cut, quoted)

    assert find_evidence(paths) == UsageEvidence(1, 1, has_copied_records=False, web_searches=0)


def test_replies_whose_requests_stand_elsewhere_are_copies(tmp_path):
    request, answer = {"type": "api-request", "id": "r1"}, {"type": "assistant", "requestRef": "r1"}

    assert not find_evidence(write(tmp_path, request, answer)).has_copied_records
    assert find_evidence(write(tmp_path, answer)).has_copied_records
    assert find_evidence(write(tmp_path)) == UsageEvidence(
        0, 0, has_copied_records=False, web_searches=0
    )


def test_an_archive_without_files_has_no_usage(tmp_path):
    assert Archive({"claude-code": (str(tmp_path),)}).recordings == {}


def test_a_sealed_recording_explains_as_much_as_a_plain_one(tmp_path):
    boundary = {"type": "system", "subtype": "compact_boundary"}
    padding = [{"type": "user", "message": {"content": "x" * 1000}}] * 400
    paths = write(tmp_path, *padding, boundary, *padding, {**boundary, "uuid": "2"}, *padding)
    plain = find_evidence(paths)
    seal_recording(Path(paths[0]))

    assert plain == UsageEvidence(2, 0, has_copied_records=False, web_searches=0)
    assert find_evidence(paths) == plain


def test_web_searches_of_the_client_are_counted(tmp_path):
    search = {"type": "user", "toolUseResult": {"query": "x", "searchCount": 2}}

    assert find_evidence(write(tmp_path, search)).web_searches == 2
