"""The line filter against a plain loop over lines."""

from hypothesis import given
from hypothesis import strategies as st

from flightlog.sources import line_filter
from flightlog.sources.line_filter import find_line_before, iter_lines_with_any

NEEDLES = (b"ab", b"b", b"ca")
contents = st.lists(st.sampled_from([b"a", b"b", b"c", b"\n", b"ab", b"ca\n"]), max_size=60).map(
    b"".join
)


class Bytes:
    """A reader over bytes."""

    damaged_spans = 0

    def __init__(self, content):
        self.content = content

    def read(self, offset, length):
        return self.content[offset : offset + length]


@given(contents, st.sets(st.sampled_from(NEEDLES), min_size=1), st.integers(0, 60))
def test_each_line_with_a_needle_comes_once_and_in_order(content, needles, end):
    end = min(end, len(content))
    expected = [
        line for line in content[:end].split(b"\n") if any(needle in line for needle in needles)
    ]

    lines = iter_lines_with_any(sorted(needles), memoryview(content), end)

    assert [bytes(line) for line in lines] == expected


@given(contents, st.sampled_from(NEEDLES), st.integers(1, 20))
def test_the_last_line_before_an_offset_is_found_at_any_block_size(content, needle, size):
    end = content.rfind(b"\n") + 1  # where a scan continues
    offsets, at = {}, 0
    for line in content[:end].split(b"\n"):
        if needle in line:
            offsets[at] = line
        at += len(line) + 1
    usual, line_filter._BACK_BYTES = line_filter._BACK_BYTES, size
    try:
        last = find_line_before(Bytes(content), needle, end)
    finally:
        line_filter._BACK_BYTES = usual

    assert last == (max(offsets.items()) if offsets else None)


def test_a_line_of_many_blocks_is_copied_a_few_times():
    reader = Bytes(b"ab\n" + b"x" * (100 * line_filter._BACK_BYTES) + b"\n")
    reads = []
    read, reader.read = reader.read, lambda *span: reads.append(span) or read(*span)

    assert find_line_before(reader, b"ab", len(reader.content)) == (0, b"ab")
    assert len(reads) < 10
