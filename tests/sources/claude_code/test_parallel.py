import os
import signal
import threading

from flightlog.store.index.usage import content
from msgspec.structs import replace

from flightlog.sources.claude_code import parallel
from flightlog.sources.claude_code.parallel import FORK_ABOVE_BYTES
from flightlog.sources.claude_code.scan import Target, scan

LINE = '{"type":"assistant","message":{"id":"msg_%d","model":"m","usage":{"output_tokens":%d}}}\n'


def targets(tmp_path, count=40):
    for number in range(count):
        (tmp_path / f"{number}.jsonl").write_text(LINE % (number, number + 1))
    return [Target(str(tmp_path / f"{number}.jsonl"), str(number)) for number in range(count)]


def scan_all(*given, **more):
    found = list(parallel.scan_all(*given, **more))
    assert sorted(place for place, _ in found) == list(range(len(given[0])))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def test_forks_return_what_one_process_returns(tmp_path):
    files = targets(tmp_path)
    sizes = [FORK_ABOVE_BYTES // 8] * len(files)

    found = scan_all(files, sizes, workers=3)

    assert [(content(each), each.end, each.read) for each in found] == [
        ((each.rows, each.totals), each.end, each.read) for each in map(scan, files)
    ]


def test_the_files_of_a_session_are_finished_together(tmp_path):
    files = [replace(target, session=f"s{place % 7}") for place, target in enumerate(targets(tmp_path))]

    def finish(scanned):
        sessions = {target.session for target, _ in scanned}
        for session in sessions:
            mine = [found for target, found in scanned if target.session == session]
            mine[0].digest = str(len(mine)).encode()

    for size in (1, FORK_ABOVE_BYTES // 8):
        found = scan_all(files, [size] * len(files), 3, finish)
        assert sorted(each.digest for each in found if each.digest) == [b"5", b"5", b"6", b"6", b"6", b"6", b"6"]


def test_little_work_is_done_here(tmp_path):
    files = targets(tmp_path, 3)

    assert scan_all(files, [100, 100, 100]) == [scan(file) for file in files]


def test_no_fork_beside_threads(tmp_path):
    files = targets(tmp_path, 3)
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()

    found = scan_all(files, [FORK_ABOVE_BYTES] * 3)

    stop.set()
    other.join()
    assert found == [scan(file) for file in files]


def test_a_child_that_ends_early_costs_no_rows(tmp_path):
    files = targets(tmp_path)
    here = os.getpid()

    def finish(scanned):
        if os.getpid() != here and any(target.session == "7" for target, _ in scanned):
            os.kill(os.getpid(), signal.SIGKILL)

    found = scan_all(files, [FORK_ABOVE_BYTES // 8] * len(files), 2, finish)

    assert [content(each) for each in found] == [(each.rows, each.totals) for each in map(scan, files)]
