"""The same offsets give the same bytes, plain or sealed."""

import pytest

from flightlog.model.errors import Damage
from flightlog.store.recordings.reader import open_reader, raw_lines, read_blocks, sound_lines
from flightlog.store.recordings.recording import seal_recording

LINES = [b'{"n":%d,"pad":"%s"}' % (number, b"x" * (number % 90)) for number in range(5_000)]
WHOLE = b"\n".join(LINES) + b"\n"


@pytest.fixture(params=["plain", "sealed", "sealed and grown"])
def path(request, tmp_path):
    """A recording in each of its states."""
    path = tmp_path / "transcript.jsonl"
    half = WHOLE.find(b"\n", len(WHOLE) // 2) + 1
    path.write_bytes(WHOLE if request.param != "sealed and grown" else WHOLE[:half])
    if request.param != "plain":
        seal_recording(path)
        assert not path.exists()
    if request.param == "sealed and grown":
        path.with_name(f"{path.name}.from-{half}").write_bytes(WHOLE[half:])
    return str(path)


def test_any_span_reads_the_same(path):
    reader = open_reader(path)
    try:
        for offset, length in [
            (0, 10),
            (5, 100_000),
            (len(WHOLE) - 3, 50),
            (len(WHOLE), 1),
            (77_777, 1),
        ]:
            buffer = bytearray(length)
            filled = reader.fill(memoryview(buffer), offset)

            assert reader.read(offset, length) == WHOLE[offset : offset + length]
            assert WHOLE[offset:].startswith(bytes(buffer[:filled]))
    finally:
        reader.close()


@pytest.mark.parametrize("size", [64, 1000, 1 << 20])
@pytest.mark.parametrize("start", [0, len(LINES[0]) + 1])
def test_blocks_are_whole_lines_whatever_the_buffer(path, start, size):
    reader = open_reader(path)
    try:
        blocks = [
            bytes(block.view[: block.end]) for block in read_blocks(reader, start, bytearray(size))
        ]
    finally:
        reader.close()
    assert b"".join(blocks) == WHOLE[start:]
    assert all(block.endswith(b"\n") for block in blocks)


def test_what_follows_the_last_newline_is_a_block_of_its_own(tmp_path):
    path = tmp_path / "torn.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    reader = open_reader(str(path))
    blocks = [
        (bytes(block.view[: block.end]), block.is_complete)
        for block in read_blocks(reader, 0, bytearray(2))
    ]
    reader.close()

    assert b"".join(part for part, _ in blocks) == b"one\ntwo\nthr"
    assert [whole for _, whole in blocks][-1] is False
    assert all(part.endswith(b"\n") == whole for part, whole in blocks)


@pytest.mark.parametrize("start", [0, len(LINES[0]) + 1])
def test_lines_come_with_their_ends(path, start):
    assert b"".join(raw_lines(path, start)) == WHOLE[start:]
    assert [line.data for line in sound_lines(path, start)] == LINES[1 if start else 0 :]


def test_a_last_line_without_an_end_is_the_last_line(tmp_path):
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')
    seal_recording(path)

    *_, last = raw_lines(str(path), 0)
    *_, damage = sound_lines(str(path))

    assert last == b'{"b":'
    assert isinstance(damage, Damage)


def test_missing_recording_is_reported(tmp_path):
    assert list(raw_lines(str(tmp_path / "none"), 0)) == []
    for ask in (open_reader, lambda path: list(sound_lines(path))):
        with pytest.raises(FileNotFoundError) as missing:
            ask(str(tmp_path / "none"))
        assert missing.value.strerror == "No such file or directory"
