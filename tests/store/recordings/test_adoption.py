import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flightlog.store.jsonl import JsonlLine
from flightlog.store.recordings.adoption import adopt_file
from flightlog.store.recordings.recording import (
    generation_path,
    list_generations,
    list_segments,
    open_recording,
    seal_recording,
)

FIRST, MORE = b'{"n":1}\n' * 700, b'{"n":2}\n{"n":'


def read_all(path: Path) -> bytes:
    with open_recording(path) as recording:
        return recording.read(0, recording.size)


def history(dest: Path) -> list[bytes]:
    return [read_all(generation_path(dest, number)) for number in list_generations(dest)]


class Source(RuleBasedStateMachine):
    """An agent that writes, rewrites and truncates its file; we adopt and seal at any time."""

    def __init__(self):
        super().__init__()
        self.top = Path(tempfile.mkdtemp())
        self.source, self.dest = self.top / "source", self.top / "copy" / "t.jsonl"
        self.source.write_bytes(b"")
        self.adopted: list[bytes] = []
        self.seen = None

    @rule(data=st.binary(min_size=1, max_size=5000))
    def grow(self, data):
        with self.source.open("ab") as file:
            file.write(data)

    @rule(keep=st.floats(0, 1))
    def truncate(self, keep):
        os.truncate(self.source, int(self.source.stat().st_size * keep))

    @rule(data=st.binary(max_size=9000))
    def replace(self, data):
        (self.top / "new").write_bytes(data)
        (self.top / "new").rename(self.source)

    @rule(place=st.floats(0, 1))
    def edit_in_place(self, place):
        content = bytearray(self.source.read_bytes())
        if content:
            content[int(place * (len(content) - 1))] ^= 1
            self.source.write_bytes(content)

    @rule(remembers=st.booleans())
    def adopt(self, remembers):
        done = adopt_file(self.source, self.dest, self.seen if remembers else None)
        self.seen = done.source_state
        self.adopted.append(self.source.read_bytes())
        assert done.source_state.line_end_offset == self.adopted[-1].rfind(b"\n") + 1

    @rule()
    def seal(self):
        for number in list_generations(self.dest):
            seal_recording(generation_path(self.dest, number))

    @invariant()
    def every_adopted_version_is_stored(self):
        copies = history(self.dest)
        for version in self.adopted[:-1]:
            assert any(copy.startswith(version) or _is_nearly(copy, version) for copy in copies)
        if self.adopted:
            assert _is_nearly(copies[-1], self.adopted[-1])

    def teardown(self):
        shutil.rmtree(self.top)


def _is_nearly(copy: bytes, version: bytes) -> bool:
    """Equal, but for an edit in place between the compared blocks of a file that also grew."""
    return len(copy) >= len(version) and (
        copy[: len(version)] == version or len(version) > 8 * 4096
    )


class TestAnySource(Source.TestCase):
    settings = settings(max_examples=60, stateful_step_count=25)


@given(st.lists(st.binary(max_size=9000), max_size=6), st.booleans())
def test_a_copy_grows_with_its_source_byte_for_byte(tmp_path_factory, pieces, remembers):
    top = tmp_path_factory.mktemp("home")
    source_bytes, seen = b"", None
    for piece in pieces:
        source_bytes += piece
        (top / "source").write_bytes(source_bytes)
        done = adopt_file(top / "source", top / "copy" / "t.jsonl", seen if remembers else None)
        seen = done.source_state

        assert (done.end - done.start, done.source_state.generation) == (len(piece), 1)
        assert history(top / "copy" / "t.jsonl") == [source_bytes]


def test_growing_costs_the_new_bytes_only(tmp_path):
    (tmp_path / "source").write_bytes(os.urandom(20_000_000))
    seen = adopt_file(tmp_path / "source", tmp_path / "t.jsonl").source_state
    with (tmp_path / "source").open("ab") as file:
        file.write(b"\nnew\n")
    before = _bytes_read()

    adopt_file(tmp_path / "source", tmp_path / "t.jsonl", seen)

    assert _bytes_read() - before < 2_500_000  # blocks to compare and the end of the last line


def test_an_unchanged_source_is_not_opened_for_more_than_a_look(tmp_path):
    (tmp_path / "source").write_bytes(os.urandom(3_000_000))
    seen = adopt_file(tmp_path / "source", tmp_path / "t.jsonl").source_state
    before = _bytes_read()

    done = adopt_file(tmp_path / "source", tmp_path / "t.jsonl", seen)

    assert (done.start, done.end) == (3_000_000, 3_000_000)
    assert _bytes_read() - before < 10_000


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(FIRST[:400], id="truncated"),
        pytest.param(b"", id="emptied"),
        pytest.param(b'{"n":9}\n' * 700, id="rewritten at the same length"),
        pytest.param(b'{"n":1}\n' * 300 + b'{"n":7}\n' + b'{"n":1}\n' * 399, id="one line changed"),
        pytest.param(b'{"n":1,"x":2}\n' + FIRST * 2, id="rewritten and longer"),
    ],
)
@pytest.mark.parametrize("how", ["in place", "renamed over"])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_source_that_was_rewritten_begins_a_new_generation(tmp_path, after, how, is_sealed):
    source, dest = tmp_path / "source", tmp_path / "t.jsonl"
    source.write_bytes(FIRST)
    seen = adopt_file(source, dest).source_state
    if is_sealed:
        seal_recording(dest)
    target = source if how == "in place" else tmp_path / "new"
    target.write_bytes(after)
    target.rename(source)

    done = adopt_file(source, dest, seen)

    assert done.source_state.generation == 2
    assert history(dest) == [FIRST, after]
    assert adopt_file(source, dest).source_state.generation == 2


def test_an_edit_in_a_large_source_is_noticed_when_nothing_was_added(tmp_path):
    source, dest = tmp_path / "source", tmp_path / "t.jsonl"
    source_bytes = bytearray(os.urandom(3_000_000))
    source.write_bytes(source_bytes)
    seen = adopt_file(source, dest).source_state
    source_bytes[1_234_567] ^= 1
    source.write_bytes(source_bytes)

    assert adopt_file(source, dest, seen).source_state.generation == 2
    assert history(dest)[1] == source_bytes


def test_an_adoption_ends_the_seal_that_a_crash_cut_short(tmp_path):
    source, dest = tmp_path / "source", tmp_path / "t.jsonl"
    source.write_bytes(FIRST)
    adopt_file(source, dest)
    seal_recording(dest)
    dest.write_bytes(FIRST)  # as if the power went before the original was removed
    source.write_bytes(FIRST + MORE)

    adopt_file(source, dest)

    assert [segment.path.name for segment in list_segments(dest)] == [
        "t.jsonl.from-0.zst",
        f"t.jsonl.from-{len(FIRST)}",
    ]
    assert history(dest) == [FIRST + MORE]


def test_a_source_that_was_only_touched_or_moved_stays_one_generation(tmp_path):
    source, dest = tmp_path / "source", tmp_path / "t.jsonl"
    source.write_bytes(FIRST)
    seen = adopt_file(source, dest).source_state
    os.utime(source, (1, 1))
    shutil.copy(source, tmp_path / "moved")
    seal_recording(dest)

    adopt_file(source, dest, seen)
    adopt_file(tmp_path / "moved", dest, seen)

    assert history(dest) == [FIRST]
    assert len(list_segments(dest)) == 1


def test_a_sealed_copy_grows_in_a_new_segment(tmp_path):
    source, dest = tmp_path / "source", tmp_path / "t.jsonl"
    source.write_bytes(FIRST + MORE)
    adopt_file(source, dest)
    seal_recording(dest)
    source.write_bytes(FIRST + MORE + b"3}\n")

    done = adopt_file(source, dest)

    assert (done.start, done.source_state.line_end_offset) == (
        len(FIRST + MORE),
        len(FIRST + MORE) + 3,
    )
    assert [segment.is_sealed for segment in list_segments(dest)] == [True, False]
    with open_recording(dest) as recording:
        assert [
            json.loads(item.data)["n"]
            for item in recording.read_lines()
            if isinstance(item, JsonlLine)
        ][-2:] == [
            2,
            3,
        ]


def test_a_copy_with_damaged_sealed_data_is_left_and_begun_again(tmp_path):
    source, dest = tmp_path / "source", tmp_path / "t.jsonl"
    source.write_bytes(FIRST)
    adopt_file(source, dest)
    (sealed,) = seal_recording(dest)
    harmed = bytearray(sealed.read_bytes())
    harmed[10] ^= 255
    sealed.write_bytes(harmed)
    os.utime(source, (1, 1))

    assert adopt_file(source, dest).source_state.generation == 2
    assert read_all(generation_path(dest, 2)) == FIRST
    assert sealed.read_bytes() == harmed


def test_a_removed_copy_is_made_again(tmp_path):
    (tmp_path / "source").write_bytes(FIRST)
    seen = adopt_file(tmp_path / "source", tmp_path / "t.jsonl").source_state
    (tmp_path / "t.jsonl").unlink()

    adopt_file(tmp_path / "source", tmp_path / "t.jsonl", seen)

    assert read_all(tmp_path / "t.jsonl") == FIRST


def test_our_copy_shares_no_file_with_the_source(tmp_path):
    (tmp_path / "source").write_bytes(FIRST)
    adopt_file(tmp_path / "source", tmp_path / "t.jsonl")

    assert not (tmp_path / "source").samefile(tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").stat().st_nlink == 1
    assert (tmp_path / "t.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="needs a second file system")
def test_a_copy_between_file_systems_is_made_the_plain_way(tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        (Path(elsewhere) / "source").write_bytes(FIRST)
        adopt_file(Path(elsewhere) / "source", tmp_path / "t.jsonl")

    assert read_all(tmp_path / "t.jsonl") == FIRST


def _bytes_read() -> int:
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])
