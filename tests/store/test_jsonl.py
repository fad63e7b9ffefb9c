import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.errors import Damage, Invalid, Unavailable
from flightlog.store.jsonl import (
    LINE_BYTES_MAX,
    TORN_TAIL,
    JsonlLine,
    append_built_line,
    append_line,
    list_shards,
    read_lines,
    read_together,
    scan_lines,
)
from support.strace_points import fail_everywhere, kill_everywhere, run

APPEND = """
from flightlog.store.jsonl import append_line
begin()
append_line(root / "new" / "log.jsonl", b'{"n":1}', durable=True); ack(1)
append_line(root / "log.jsonl", b'{"n":2}', durable=True); ack(2)
append_line(root / "log.jsonl", b'{"n":3}'); ack(3)
end()
"""
GUARDED = """
from flightlog.store.jsonl import append_line
from flightlog.model.errors import FlightlogError
begin()
for n in (1, 2):
    try: append_line(root / "log.jsonl", b'{"n":%d}' % n, durable=True); ack(n)
    except FlightlogError as error: print(error.message, file=sys.stderr)
end()
"""
WRITER = """
import os, random, sys
from pathlib import Path
from flightlog.store.jsonl import append_line
log, acks, writer = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
chance = random.Random(writer)
ack = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for n in range(10**9):
    size = chance.choice([20, 500, 5_000, 60_000, 200_000])
    append_line(log, b'{"id":"%s-%d","fill":"%s"}' % (writer.encode(), n, b"x" * chance.randrange(size)))
    os.write(ack, b"%s-%d\\n" % (writer.encode(), n))
"""


def numbers(path: Path) -> list[int]:
    return [
        json.loads(item.data)["n"] for item in read_together(path) if isinstance(item, JsonlLine)
    ]


def split(path: Path) -> tuple[list[bytes], list[tuple[int, int, str]]]:
    items = list(read_lines(path))
    sound = [item.data for item in items if isinstance(item, JsonlLine)]
    return sound, [
        (item.offset, item.length, item.reason) for item in items if isinstance(item, Damage)
    ]


def test_lines_come_back_in_order_with_their_places(tmp_path):
    log = tmp_path / "made" / "for" / "us" / "log.jsonl"
    places = [append_line(log, b'{"n":%d}' % n) for n in range(5)]

    assert [(item.offset, item.length) for item in read_lines(log)] == [
        (place.offset, place.length) for place in places
    ]
    assert numbers(log) == [0, 1, 2, 3, 4]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700


@given(st.lists(st.integers(), min_size=1, max_size=6), st.integers(min_value=0))
def test_a_crash_costs_at_most_the_last_record(tmp_path_factory, written, lost):
    log = tmp_path_factory.mktemp("home") / "log.jsonl"
    for n in written:
        append_line(log, b'{"n":%d}' % n)
    data = log.read_bytes()
    last = len(data.splitlines(keepends=True)[-1])
    log.write_bytes(data[: len(data) - 1 - lost % last])  # the writer dies mid-line

    append_line(log, b'{"n":-7}')

    assert numbers(log)[: len(written) - 1] == written[:-1]
    assert numbers(log)[-1] == -7
    assert log.read_bytes().splitlines()[-1] == b'{"n":-7}', "a record begins a line of its own"
    assert b"\n\n" not in log.read_bytes()


def test_a_line_may_depend_on_the_lines_before_it(tmp_path):
    log = tmp_path / "log.jsonl"
    append_line(log, b'{"n":41}')

    append_built_line(
        log, lambda last: b'{"n":%d}' % (json.loads(last(100).splitlines()[-1])["n"] + 1)
    )

    assert numbers(log) == [41, 42]


def test_a_line_too_long_for_a_journal_is_refused(tmp_path):
    with pytest.raises(Invalid, match="bytes"):
        append_line(tmp_path / "log.jsonl", b"x" * (LINE_BYTES_MAX + 1))


def test_a_symbolic_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "log.jsonl").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Unavailable):
        append_line(tmp_path / "log.jsonl", b"{}")

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_moved_aside_while_a_writer_waits_gets_no_more_lines(tmp_path, is_replaced):
    log = tmp_path / "log.jsonl"
    append_line(log, b'{"n":1}')
    code = (
        "import sys, pathlib; from flightlog.store.jsonl import append_line\n"
        "append_line(pathlib.Path(sys.argv[1]), b'{}')"
    )
    waiting = []

    def move_while_another_waits(_):
        waiting.append(subprocess.Popen([sys.executable, "-c", code, str(log)]))
        time.sleep(0.5)
        log.rename(tmp_path / "aside")
        if is_replaced:
            log.touch()
        return b'{"n":2}'

    append_built_line(log, move_while_another_waits)

    assert waiting[0].wait() == 0
    assert (tmp_path / "aside").read_bytes() == b'{"n":1}\n{"n":2}\n'
    assert log.read_bytes() == b"{}\n"


def test_dying_at_any_system_call_of_an_append_loses_nothing_acknowledged(tmp_path):
    def prepare(root):
        (root / "log.jsonl").write_bytes(b'{"n":0}\n{"n":"torn')

    def check(root, acked):
        append_line(root / "log.jsonl", b'{"n":9}')
        append_line(root / "new" / "log.jsonl", b'{"n":9}')
        stored = numbers(root / "log.jsonl")
        assert stored[0] == 0
        assert stored[-1] == 9
        assert {int(word) for word in acked} - {1} <= set(stored)
        assert stored == sorted(stored)
        possible = [[1, 9]] if "1" in acked else [[9], [1, 9]]
        assert numbers(root / "new" / "log.jsonl") in possible

    points = kill_everywhere(APPEND, tmp_path, prepare, check)

    assert len(points) > 20


def test_a_failing_disk_leaves_no_half_line_and_says_so(tmp_path):
    def prepare(root):
        (root / "log.jsonl").write_bytes(b'{"n":0}\n')

    def check(root, acked):
        sound, damaged = split(root / "log.jsonl")
        assert damaged == []
        assert [json.loads(line)["n"] for line in sound] == [0, *map(int, acked)]

    errors = ["EIO", "ENOSPC", "EROFS", "EACCES"]

    assert fail_everywhere(GUARDED, tmp_path, errors, prepare, check) > 10


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_without_locks_each_process_writes_its_own_shard(tmp_path, error):
    done = run(
        GUARDED,
        tmp_path,
        "-o",
        os.devnull,
        "-e",
        "trace=flock",
        "-e",
        f"inject=flock:error={error}",
    )

    assert done.stdout.split() == ["1", "2"]
    assert numbers(tmp_path / "log.jsonl") == [1, 2]
    assert len(list_shards(tmp_path / "log.jsonl")) == 1
    assert (tmp_path / "log.jsonl").read_bytes() == b""


def test_a_full_disk_takes_the_half_line_back(tmp_path):
    code = """
import os, sys
from pathlib import Path
from flightlog.store.jsonl import append_line, read_lines, JsonlLine
from flightlog.model.errors import Unavailable
log = Path(sys.argv[1]) / "log.jsonl"
acked = 0
try:
    while True:
        append_line(log, b'{"fill":"%s"}' % (b"x" * 1811), durable=True)
        acked += 1
except Unavailable as error:
    assert "No space" in error.message, error.message
    assert "space" in error.hint
items = list(read_lines(log))
assert all(isinstance(item, JsonlLine) for item in items), items
assert len(items) == acked > 20, (len(items), acked)
Path(log.parent / "other").unlink()
append_line(log, b'{"n":1}')
assert len(list(read_lines(log))) == acked + 1
"""
    script = (
        'mount -t tmpfs -o size=64k none "$1" && echo room > "$1/other" && exec "$2" -c "$3" "$1"'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("foreign", [b"", b'{"n":2}\n'])
def test_a_short_write_is_undone_but_never_a_foreign_writers_line(tmp_path, foreign):
    log = tmp_path / "log.jsonl"
    append_line(log, b'{"n":1}')

    def after_a_writer_that_knows_no_locks(_):
        with log.open("ab") as file:
            file.write(foreign)
        return b'{"fill":"%s"}' % (b"x" * 500)

    with _files_no_longer_than(100), pytest.raises(Unavailable):
        append_built_line(log, after_a_writer_that_knows_no_locks)
    append_line(log, b'{"n":3}')

    assert numbers(log) == ([1, 2, 3] if foreign else [1, 3])


def test_forty_killed_writers_lose_nothing_and_hurt_no_neighbour(tmp_path):
    _kill_writers(tmp_path, writers=8, kills=40)


@pytest.mark.soak
def test_three_hundred_killed_writers_lose_nothing_and_hurt_no_neighbour(tmp_path):
    _kill_writers(tmp_path, writers=16, kills=300)


@pytest.mark.parametrize(
    ("content", "sound", "damage"),
    [
        (b'{"a":1}\n{"b":2\n{"c":3}\n', [b'{"a":1}', b'{"c":3}'], [(8, 6, "torn")]),
        (
            b'{"a":1}\n{"b":"x{"c":3}\n',
            [b'{"a":1}', b'{"c":3}'],
            [(8, 7, "torn, then joined to the next record")],
        ),
        (b'{"a":1}{"b":2}\n', [b'{"a":1}', b'{"b":2}'], []),
        (b'{"a":1}\n\0\0\0\0{"b":2}\n', [b'{"a":1}', b'{"b":2}'], [(8, 4, "NUL bytes")]),
        (b'{"a":1}\n\0\0\0\0', [b'{"a":1}'], [(8, 4, TORN_TAIL)]),
        (
            b'{"a":"\xff\xfe!"}\n{"b":2}\n',
            ['{"a":"\ufffd\ufffd!"}'.encode(), b'{"b":2}'],
            [(6, 2, "not UTF-8")],
        ),
        (b'\xef\xbb\xbf{"a":1}\n', [b'{"a":1}'], [(0, 3, "byte order mark")]),
        (b'{"a":"\\ud83d"}\n', [b'{"a":"\\ufffd"}'], [(6, 6, "lone surrogate")]),
        (b'\n  \r\n{"a":1}\r\n\n', [b'{"a":1}\r'], []),
        (b'{"a":"\xe2\x80\xa8\xc2\x85\x7f"}\n', [b'{"a":"\xe2\x80\xa8\xc2\x85\x7f"}'], []),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}'], []),
        (b'{"a":1}\n{"b":', [b'{"a":1}'], [(8, 5, TORN_TAIL)]),
        (b'{"a":1}\n{"a":1}\n', [b'{"a":1}', b'{"a":1}'], []),
        (
            b'{"a":' * 3000 + b"1" + b"}" * 3000 + b'\n{"b":2}\n',
            [b'{"b":2}'],
            [(0, 18001, "nested too deeply")],
        ),
        (b"", [], []),
    ],
)
def test_what_broke_in_the_field_is_read_around(tmp_path, content, sound, damage):
    (tmp_path / "log.jsonl").write_bytes(content)

    assert split(tmp_path / "log.jsonl") == (sound, damage)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=4), st.data())
def test_every_record_that_damage_did_not_touch_is_returned(tmp_path_factory, sizes, data):
    sizes.append(1_200_000)  # longer than one read
    lines = [b'{"n":%d,"fill":"%s"}' % (n, b"x" * size) for n, size in enumerate(sizes)]
    content = bytearray(b"".join(line + b"\n" for line in lines))
    start = data.draw(st.integers(0, len(content) - 1))
    end = min(len(content), start + data.draw(st.integers(1, 5000)))
    content[start:end] = data.draw(
        st.sampled_from([b"\0" * (end - start), b"\xff" * (end - start), b""])
    )
    log = tmp_path_factory.mktemp("home") / "log.jsonl"
    log.write_bytes(content)

    sound, _ = split(log)

    at = 0
    for line in lines:
        if at + len(line) + 1 <= start or at > end:
            assert line in sound
        at += len(line) + 1


@given(st.integers(1, 40), st.integers(0, 60))
def test_following_in_pieces_reads_what_reading_at_once_does(tmp_path_factory, step, junk):
    whole = b"".join(b'{"n":%d}\n' % n for n in range(8)) + b"?" * junk + b'\n{"n":8}\n{"n":9}\n'
    log = tmp_path_factory.mktemp("home") / "log.jsonl"
    seen, at = [], 0
    for size in [*range(0, len(whole), step), len(whole)]:
        log.write_bytes(whole[:size])
        for item in read_lines(log, at):
            if isinstance(item, Damage) and item.reason == TORN_TAIL:
                break
            seen.append(item)
            at = item.offset + item.length

    assert seen == list(read_lines(log))


def test_a_line_beyond_the_limit_is_reported_and_not_held():
    data = b'{"n":1}\n{"fill":"' + b"x" * 3_000_000 + b'"}\n{"n":2}\n'
    items = list(
        scan_lines("log", lambda offset, length: data[offset : offset + length], longest=2_000_000)
    )

    assert [item.data for item in items if isinstance(item, JsonlLine)] == [b'{"n":1}', b'{"n":2}']
    assert [item for item in items if isinstance(item, Damage)] == [
        Damage("log", 8, 3_000_011, "longer than 2000000 bytes")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("filler", [b"x", "é".encode(), b'\\"'])
def test_a_line_of_200_megabytes_needs_little_more_memory_than_itself(tmp_path, filler):
    with (tmp_path / "log.jsonl").open("wb") as file:
        file.write(b'{"n":1}\n{"fill":"')
        for _ in range(200):
            file.write(filler * (1_000_000 // len(filler)))
        file.write(b'"}\n{"n":2}\n')
    code = """
import resource, sys
from pathlib import Path
from flightlog.store.jsonl import read_lines, JsonlLine
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lines = [item for item in read_lines(Path(sys.argv[1])) if isinstance(item, JsonlLine)]
assert [line.length > 100_000_000 for line in lines] == [False, True, False]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log.jsonl")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) < 2.5 * 200_000


@contextmanager
def _files_no_longer_than(size: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _kill_writers(tmp_path, *, writers, kills):
    log, chance = tmp_path / "log.jsonl", random.Random(1)
    names = iter(range(10**6))

    def start():
        name = f"w{next(names)}"
        return subprocess.Popen(
            [sys.executable, "-c", WRITER, str(log), str(tmp_path / f"{name}.acks"), name]
        )

    running = [start() for _ in range(writers)]
    while not log.exists():
        time.sleep(0.05)
    for _ in range(kills):
        time.sleep(chance.uniform(0.02, 0.15))
        victim = chance.randrange(writers)
        running[victim].send_signal(signal.SIGKILL)
        running[victim].wait()
        running[victim] = start()
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.wait()

    acked = {word for path in tmp_path.glob("*.acks") for word in path.read_text().split("\n")[:-1]}
    items = list(read_lines(log))
    ids = [json.loads(item.data)["id"] for item in items if isinstance(item, JsonlLine)]
    assert len(acked) > kills
    assert acked <= set(ids)
    assert len(ids) == len(set(ids))
    assert len(ids) - len(acked) <= kills + writers  # what was written and not yet acknowledged
    assert all(item.reason in {"torn", TORN_TAIL} for item in items if isinstance(item, Damage))
