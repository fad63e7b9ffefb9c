import json
import os
import signal

from flightlog.agents.claude_code.search_text import read_records
from flightlog.model.session import SessionFile
from flightlog.sources.workers import FORK_ABOVE_BYTES, read_all
from flightlog.store.index.files import PendingRead


def readings(tmp_path, size):
    pending = []
    for number in range(5):
        path = tmp_path / f"{number}.jsonl"
        record = {"type": "user", "uuid": f"u{number}", "message": {"content": f"word{number}"}}
        path.write_text(json.dumps(record) + "\n" + "{torn")
        pending.append(PendingRead(SessionFile(str(path), "s", size, 0), number, 0))
    return pending


def test_a_second_process_reads_what_one_reads(tmp_path):
    few, many = readings(tmp_path, 100), readings(tmp_path, FORK_ABOVE_BYTES)

    alone, ahead = list(read_all(few, read_records)), list(read_all(many, read_records))

    assert alone == ahead == [read_records(reading.file, 0) for reading in few]
    assert [reading.records[0].text for reading in ahead] == [
        "word0",
        "word1",
        "word2",
        "word3",
        "word4",
    ]


def test_missing_file_is_reported(tmp_path):
    assert (
        read_records(SessionFile(str(tmp_path / "none"), "s", 0, 0)).error
        == "No such file or directory"
    )


def test_files_that_a_dead_reader_did_not_deliver_are_read_here(tmp_path):
    own_pid = os.getpid()
    pending = readings(tmp_path, FORK_ABOVE_BYTES)

    def read_until_third(file, start):
        if os.getpid() != own_pid and file.path.endswith("2.jsonl"):
            os.kill(os.getpid(), signal.SIGKILL)
        return read_records(file, start)

    assert list(read_all(pending, read_until_third)) == [
        read_records(read.file, 0) for read in pending
    ]


def test_abandoned_stream_leaves_no_child_process(tmp_path):
    ahead = read_all(readings(tmp_path, FORK_ABOVE_BYTES), read_records)
    assert next(ahead).records
    ahead.close()
