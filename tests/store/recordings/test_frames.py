import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.errors import Unreadable
from flightlog.store.recordings.recording import (
    FRAME_BYTES_MAX,
    SealedFile,
    SealedFrame,
    encode_frame_table,
    pack_frame,
    seal_recording,
    split_into_frames,
)


@pytest.fixture
def sealed_path(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(
        b"".join(b'{"n":%d,"fill":"%s"}\n' % (n, b"x" * 900) for n in range(3000))
    )
    (path,) = seal_recording(tmp_path / "t.jsonl")
    return path


@given(st.lists(st.integers(0, 900_000), max_size=4), st.booleans())
def test_pieces_end_at_line_ends_and_are_never_longer_than_a_frame(
    tmp_path_factory, sizes, ends_torn
):
    content = b"\n".join(b"x" * size for size in [*sizes, 2_500_000]) + (
        b"" if ends_torn else b"\n"
    )
    path = tmp_path_factory.mktemp("home") / "t"
    path.write_bytes(content)
    file = os.open(path, os.O_RDONLY)
    try:
        pieces = list(split_into_frames(file, 0, len(content)))
    finally:
        os.close(file)

    assert b"".join(pieces) == content
    assert all(0 < len(piece) <= FRAME_BYTES_MAX for piece in pieces)
    assert all(piece.endswith(b"\n") or len(piece) == FRAME_BYTES_MAX for piece in pieces[:-1])


def test_zstd_itself_reads_a_sealed_file(sealed_path):
    done = subprocess.run(["zstd", "-dc", str(sealed_path)], capture_output=True, check=True)

    assert done.stdout.startswith(b'{"n":0,')
    assert done.stdout.count(b"\n") == 3000


def test_frames_are_found_again_when_the_table_is_lost(sealed_path):
    whole = SealedFile(sealed_path)
    packed = sealed_path.read_bytes()
    sealed_path.write_bytes(packed[:-5])
    walked = SealedFile(sealed_path)

    assert walked.frames == whole.frames
    assert len(walked.frames) > 2
    whole.close()
    walked.close()


def test_a_sealed_file_cut_short_still_gives_its_first_frames(sealed_path):
    whole = SealedFile(sealed_path)
    middle = whole.frames[-1].packed_offset + 10
    sealed_path.write_bytes(sealed_path.read_bytes()[:middle])
    cut = SealedFile(sealed_path)

    assert cut.frames == whole.frames[:-1]
    assert cut.unpack_frame(cut.frame_at(cut.size - 1)).endswith(b"}\n")
    whole.close()
    cut.close()


def test_a_flipped_bit_is_noticed_and_costs_one_frame(sealed_path):
    whole = SealedFile(sealed_path)
    harmed = bytearray(sealed_path.read_bytes())
    harmed[whole.frames[1].packed_offset + whole.frames[1].packed_length // 2] ^= 1
    sealed_path.write_bytes(harmed)
    sealed = SealedFile(sealed_path)

    with pytest.raises(Unreadable):
        sealed.unpack_frame(sealed.frames[1])
    assert sealed.unpack_frame(sealed.frames[0]).startswith(b'{"n":0,')
    assert sealed.unpack_frame(sealed.frames[2]).endswith(b"\n")
    whole.close()
    sealed.close()


@pytest.mark.parametrize(
    "harm", [b"", b"short", b"no zstd at all, but long enough", encode_frame_table([])[8:]]
)
def test_a_file_that_is_not_sealed_has_no_frames(tmp_path, harm):
    (tmp_path / "t.zst").write_bytes(harm)
    sealed = SealedFile(tmp_path / "t.zst")

    assert sealed.frames == []
    assert sealed.size == 0
    sealed.close()


def test_a_table_that_lies_is_not_believed(tmp_path):
    frame = pack_frame(b"abc\n")
    for length in (5, FRAME_BYTES_MAX + 1):
        (tmp_path / "t.zst").write_bytes(
            frame + encode_frame_table([SealedFrame(0, length, 0, len(frame))])
        )
        sealed = SealedFile(tmp_path / "t.zst")
        if length == 5:
            with pytest.raises(Unreadable):
                sealed.unpack_frame(sealed.frames[0])
        else:
            assert sealed.frames == [SealedFrame(0, 4, 0, len(frame))]
        sealed.close()
