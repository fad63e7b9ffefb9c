import os
import signal
import threading

import pytest

from flightlog.agents.claude_code.scan import scan_usage, scan_usage_mapped
from flightlog.model.session import SessionFile
from flightlog.sources import workers
from flightlog.sources.usage_rows import unpack_rows
from flightlog.sources.workers import FORK_ABOVE_BYTES
from flightlog.store.index.files import PendingRead

LINE = '{"type":"assistant","message":{"id":"msg_%d","model":"m","usage":{"output_tokens":%d}}}\n'
LARGE = FORK_ABOVE_BYTES // 8


def pending(tmp_path, count=40, size=LARGE):
    for number in range(count):
        (tmp_path / f"{number}.jsonl").write_text(LINE % (number, number + 1))
    files = [
        SessionFile(str(tmp_path / f"{number}.jsonl"), str(number), size, 0)
        for number in range(count)
    ]
    return [PendingRead(file, number, 0) for number, file in enumerate(files)]


def scan_files(reads, **options):
    scans = dict(workers.scan_files(reads, scan_usage, scan_usage_mapped, **options))
    assert sorted(scans) == list(range(len(reads)))
    return [scans[position] for position in range(len(reads))]


def rows_of(scans):
    return [unpack_rows(scan.packed) if scan.packed else (scan.rows, scan.totals) for scan in scans]


def test_forks_return_what_one_process_returns(tmp_path):
    reads = pending(tmp_path)

    scans = scan_files(reads, workers=3)

    alone = [scan_usage(read.file) for read in reads]
    assert all(scan.packed for scan in scans)
    assert rows_of(scans) == rows_of(alone)
    assert [(scan.end, scan.bytes_read) for scan in scans] == [
        (scan.end, scan.bytes_read) for scan in alone
    ]


def test_little_work_starts_no_process(tmp_path):
    reads = pending(tmp_path, 3, size=100)

    assert scan_files(reads) == [scan_usage(read.file) for read in reads]


def test_process_with_threads_does_not_fork(tmp_path):
    reads = pending(tmp_path, 3, size=FORK_ABOVE_BYTES)
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()

    scans = scan_files(reads)

    stop.set()
    other.join()
    assert scans == [scan_usage(read.file) for read in reads]


class DeadlyFile:
    """A file that kills the child that opens it."""

    def __init__(self, file):
        self.file, self.session, self.subagent, self.size = (
            file,
            file.session,
            file.subagent,
            file.size,
        )
        self.here = os.getpid()

    @property
    def path(self):
        if os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.file.path


def test_a_child_that_ends_early_costs_no_rows(tmp_path):
    reads = pending(tmp_path)
    deadly = [*reads[:7], PendingRead(DeadlyFile(reads[7].file), 7, 0), *reads[8:]]

    scans = scan_files(deadly, workers=2)

    assert rows_of(scans) == rows_of(scan_usage(read.file) for read in reads)


def test_work_that_stops_an_iteration_does_not_drop_what_is_left():
    def work(name):
        return next(iter(())) if name == "bad" else name

    with pytest.raises(RuntimeError):
        list(workers.map_forked({"bad": 2, "good": 1}, work, bytes.decode, str))
