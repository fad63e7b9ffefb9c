import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.errors import Damage, NotFound, Unreadable
from flightlog.store.jsonl import JsonlLine, append_line
from flightlog.store.recordings.recording import (
    DAMAGED_FRAME,
    Recording,
    SealedFile,
    generation_path,
    list_generations,
    list_segments,
    open_recording,
    seal_recording,
)
from support.strace_points import fail_everywhere, kill_everywhere

SEAL = """
from flightlog.store.compression import zstd
from flightlog.store.recordings.recording import seal_recording
from flightlog.model.errors import FlightlogError
begin()
try:
    for path in seal_recording(root / "t.jsonl"): ack(path.name)
except FlightlogError as error: print(error.message, file=sys.stderr)
end()
"""


def content(lines: int, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    return b"".join(
        b'{"n":%d,"fill":"%s"}\n' % (n, chance.randbytes(400).hex().encode()) for n in range(lines)
    )


def numbers(path: Path) -> list[int]:
    with open_recording(path) as recording:
        return [
            json.loads(item.data)["n"]
            for item in recording.read_lines()
            if isinstance(item, JsonlLine)
        ]


def read_all(path: Path) -> bytes:
    with open_recording(path) as recording:
        return recording.read(0, recording.size)


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=200) | st.just(b"x" * 1_200_000), max_size=5), st.data())
def test_an_address_reads_the_same_sealed_or_not(tmp_path_factory, pieces, data):
    path = tmp_path_factory.mktemp("home") / "t.jsonl"
    path.write_bytes(b"")
    original = b""
    for piece in pieces:
        original += piece
        live = [segment for segment in list_segments(path) if not segment.is_sealed]
        with (
            live[-1].path if live else path.with_name(f"t.jsonl.from-{len(original) - len(piece)}")
        ).open("ab") as file:
            file.write(piece)
        if data.draw(st.booleans()):
            seal_recording(path)
    offset = data.draw(st.integers(0, len(original) + 5))
    length = data.draw(st.integers(0, 2_000_000))

    with open_recording(path) as recording:
        assert recording.read(offset, length) == original[offset : offset + length]
        assert recording.size == len(original)


def test_lines_have_the_same_places_sealed_or_not(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content(3000)[:-20])
    with open_recording(path) as recording:
        before = list(recording.read_lines())

    assert seal_recording(path) == [tmp_path / "t.jsonl.from-0.zst"]

    assert not path.exists()
    with open_recording(path) as recording:
        assert list(recording.read_lines()) == before
        assert list(recording.read_lines(before[1500].offset)) == before[1500:]


def test_a_sealed_recording_that_grows_opens_a_new_segment(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":')
    seal_recording(path)
    (tmp_path / "t.jsonl.from-13").write_bytes(b'2}\n{"n":3}\n')

    assert numbers(path) == [1, 2, 3]
    assert seal_recording(path) == [tmp_path / "t.jsonl.from-13.zst"]
    assert numbers(path) == [1, 2, 3]
    assert seal_recording(path) == []


def test_reading_one_line_unpacks_one_frame(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content(4000))
    seal_recording(path)
    (segment,) = list_segments(path)
    sealed = SealedFile(segment.path)
    packed = bytearray(segment.path.read_bytes())
    wanted = sealed.frames[2]
    for frame in sealed.frames:
        if frame != wanted:
            packed[frame.packed_offset + 9 : frame.packed_offset + frame.packed_length] = bytes(
                frame.packed_length - 9
            )
    segment.path.write_bytes(packed)
    sealed.close()

    with open_recording(path) as recording:
        assert recording.read(wanted.offset, 7).startswith(b'{"n":')


def test_a_damaged_frame_is_reported_and_hides_nothing_else(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content(4000))
    seal_recording(path)
    (segment,) = list_segments(path)
    sealed = SealedFile(segment.path)
    frame = sealed.frames[1]
    packed = bytearray(segment.path.read_bytes())
    packed[frame.packed_offset + 100] ^= 255
    segment.path.write_bytes(packed)
    sealed.close()

    with open_recording(path) as recording:
        items = list(recording.read_lines())
        damage = [item for item in items if isinstance(item, Damage)]
        lines = [item for item in items if isinstance(item, JsonlLine)]

        assert damage == [Damage(str(path), frame.offset, frame.length, DAMAGED_FRAME)]
        assert sum(item.length + 1 for item in lines) == recording.size - frame.length
        with pytest.raises(Unreadable):
            recording.read(frame.offset, 1)


def test_a_missing_segment_is_reported_and_hides_nothing_else(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"n":1}\n')
    (tmp_path / "t.jsonl.from-20").write_bytes(b'{"n":3}\n')

    assert numbers(path) == [1, 3]
    with open_recording(path) as recording:
        assert [item.reason for item in recording.read_lines() if isinstance(item, Damage)] == [
            DAMAGED_FRAME
        ]
        with pytest.raises(Unreadable, match="missing"):
            recording.read(0, 28)


def test_dying_at_any_system_call_of_a_seal_loses_nothing(tmp_path):
    original = content(2600)

    def prepare(root):
        (root / "t.jsonl").write_bytes(original)

    def check(root, acked):
        assert read_all(root / "t.jsonl") == original
        seal_recording(root / "t.jsonl")
        assert read_all(root / "t.jsonl") == original
        assert [segment.is_sealed for segment in list_segments(root / "t.jsonl")] == [True]
        shutil.rmtree(root)

    assert len(kill_everywhere(SEAL, tmp_path, prepare, check)) > 10


def test_a_failing_disk_never_costs_the_original(tmp_path):
    original = content(20)

    def prepare(root):
        (root / "t.jsonl").write_bytes(original)

    def check(root, acked):
        assert read_all(root / "t.jsonl") == original
        assert list(root.glob(".*.tmp")) == []

    assert fail_everywhere(SEAL, tmp_path, ["EIO", "ENOSPC"], prepare, check) > 10


def test_a_sealed_file_that_differs_from_the_live_one_is_set_aside(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"n":1}\n')
    (tmp_path / "t.jsonl.from-0.zst").write_bytes(b"rubbish")

    seal_recording(path)

    assert numbers(path) == [1]
    assert (tmp_path / "t.jsonl.from-0.zst.damaged-1").read_bytes() == b"rubbish"


def test_damage_inside_a_sealed_leftover_keeps_the_live_file(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content(3000))
    (sealed,) = seal_recording(path)
    path.write_bytes(content(3000))
    harmed = bytearray(sealed.read_bytes())
    harmed[5000] ^= 255
    sealed.write_bytes(harmed)

    seal_recording(path)

    assert numbers(path) == list(range(3000))


def test_generations_are_distinguished_from_segments(tmp_path):
    for name in (
        "t.jsonl.from-0.zst",
        "t.jsonl.from-9",
        "t.g2.jsonl",
        "t.g10.jsonl.from-0.zst",
        "other.jsonl",
        "t.txt",
    ):
        (tmp_path / name).write_bytes(b"")

    assert list_generations(tmp_path / "t.jsonl") == [1, 2, 10]
    assert [generation_path(tmp_path / "t.jsonl", n).name for n in (1, 2)] == [
        "t.jsonl",
        "t.g2.jsonl",
    ]
    assert list_generations(tmp_path / "nowhere" / "t.jsonl") == []


def test_a_recording_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        open_recording(tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").symlink_to(tmp_path / "gone")
    with pytest.raises(NotFound):
        open_recording(tmp_path / "t.jsonl")


def test_a_recording_sealed_while_it_is_read_is_read_to_its_end(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content(100))
    with open_recording(path) as recording:
        lines = recording.read_lines()
        next(lines)
        seal_recording(path)

        assert len(list(lines)) == 99


def test_a_live_tail_may_grow_while_it_is_open(tmp_path):
    append_line(tmp_path / "t.jsonl", b'{"n":1}')
    with Recording(tmp_path / "t.jsonl") as recording:
        append_line(tmp_path / "t.jsonl", b'{"n":2}')

        assert recording.size == 16
