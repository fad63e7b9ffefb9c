import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode

from flightlog.model.errors import DEPTH_MAX
from flightlog.store.salvage import is_sound, iter_spans, repair_text
from support.cpu_time import measure_cpu

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# A record's first key is a word: that is what tells it from the rest of a torn string.
records = st.dictionaries(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True), values, min_size=1, max_size=4
)


def line(record: object, *, ascii_only: bool = False) -> bytes:
    return json.dumps(record, ensure_ascii=ascii_only, separators=(",", ":")).encode()


def list_good_spans(data: bytes) -> list[bytes]:
    return [data[span.start : span.end] for span in iter_spans(data) if not span.reason]


def list_bad_spans(data: bytes) -> list[tuple[bytes, str]]:
    return [(data[span.start : span.end], span.reason) for span in iter_spans(data) if span.reason]


@given(records, st.booleans())
def test_what_json_writes_is_sound(record, ascii_only):
    assert is_sound(line(record, ascii_only=ascii_only))
    assert list_good_spans(line(record, ascii_only=ascii_only)) == [
        line(record, ascii_only=ascii_only)
    ]


@given(st.lists(records, min_size=2, max_size=4))
def test_records_joined_on_one_line_are_separated(several):
    joined = b"".join(map(line, several))

    assert list_good_spans(joined) == [line(record) for record in several]
    assert list_bad_spans(joined) == []


@given(records, records, st.integers(min_value=1))
def test_a_torn_record_does_not_take_the_next_one_with_it(torn, whole, cut):
    head = line(torn)[: 1 + cut % (len(line(torn)) - 1)]
    expects_a_value = head.endswith((b":", b"[", b",")) and b'"' not in _open_string(head)

    saved = list_good_spans(head + line(whole))

    if not expects_a_value:  # There the next record would read as an inner object: kept as damage.
        assert saved[-1:] == [line(whole)]
        assert len(saved) == 1


@given(records, st.integers(min_value=1))
def test_half_a_record_is_damage_and_yields_nothing_invented(record, cut):
    head = line(record)[: 1 + cut % (len(line(record)) - 1)]

    assert list_good_spans(head) == []
    assert list_bad_spans(head) == [(head, "torn")]


@given(records, records, st.integers(1, 50))
def test_nul_bytes_between_records_cost_neither(first, second, count):
    hole = b"\0" * count

    assert list_good_spans(line(first) + hole + line(second)) == [line(first), line(second)]
    assert list_bad_spans(line(first) + hole + line(second)) == [(hole, "NUL bytes")]


@given(st.binary(max_size=60))
def test_any_bytes_are_covered_by_records_damage_and_white_space(data):
    data = data.replace(b"\n", b"")
    covered = list(iter_spans(data))

    at = 0
    for span in covered:
        assert data[at : span.start].strip(b" \t\r") == b""
        assert span.start < span.end
        at = span.end
    assert data[at:].strip(b" \t\r") == b""


@given(records, st.binary(min_size=1, max_size=4), st.integers(min_value=0))
def test_a_record_with_bytes_that_are_no_text_is_kept_readable(record, junk, place):
    whole = line({"key": "before", **record})
    bad = whole.replace(b"before", b"be" + bytes(byte | 0x80 for byte in junk) + b"fore", 1)
    data, _ = repair_text(bad)

    assert is_sound(data)
    assert decode(data)["key"].startswith("be")


@pytest.mark.parametrize(
    ("escape", "decoded"),
    [
        (rb"\ud83d", "\ufffd"),
        (rb"\ude00", "\ufffd"),
        (rb"\ud83d\u0041", "\ufffdA"),
        (rb"\uDC00\uD800", "\ufffd\ufffd"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\\ud83d", "\\ud83d"),
    ],
)
def test_half_an_emoji_becomes_a_replacement_and_a_whole_one_stays(escape, decoded):
    data, bad = repair_text(b'{"a":"' + escape + b'"}')

    assert decode(data) == {"a": decoded}
    assert (bad is not None) == ("\ufffd" in decoded)


@pytest.mark.parametrize(
    ("data", "records_kept", "why"),
    [
        (b'\xef\xbb\xbf{"a":1}', [b'{"a":1}'], ["byte order mark"]),
        (b'{"a":1}left over', [b'{"a":1}'], ["no record"]),
        (b"123", [], ["no record"]),
        (b'{"a":{"b":1}', [], ["torn"]),
        (b'{"a":1,"b":{"x":1} rubbish "c":2}', [], ["torn"]),
        (b'{"a":[1}', [], ["torn"]),
        (b'{"a" 1}', [], ["torn"]),
        (b'{"a":tr{"b":1}', [b'{"b":1}'], ["torn, then joined to the next record"]),
        (b'{"x":{"a":"\\u12{"b":1}', [b'{"b":1}'], ["torn, then joined to the next record"]),
        (b'{"a":"x{"":1}', [b'{"":1}'], ["torn, then joined to the next record"]),
        (b'{"a":"x\0\0{"b":1},"c":2}', [], ["torn", "NUL bytes", "torn"]),
        (b'{"a":1 , ', [], ["torn"]),
    ],
)
def test_a_damaged_line_is_cut_as_a_person_would(data, records_kept, why):
    assert list_good_spans(data) == records_kept
    assert [reason for _, reason in list_bad_spans(data)] == why


@given(
    st.recursive(
        st.text('[]{}"\\\\', max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.builds(dict, a=inner),
    )
)
def test_what_is_not_nested_deeply_is_sound(value):
    wrapped = {"a": [value] * (1 + DEPTH_MAX // 4)}

    assert is_sound(json.dumps(wrapped).encode())


@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b'{"]":', b"}"), (b"[", b"]"), (b'{"a":[', b"]}"), (b'["\\"[",[', b"]]")],
)
def test_nesting_deeper_than_our_limit_is_damage_in_any_python(opening, closing):
    def nest(depth: int) -> bytes:
        return b'{"a":' + opening * depth + b"1" + closing * depth + b"}"

    pairs = len(closing)
    assert is_sound(nest((DEPTH_MAX - 1) // pairs))
    assert not is_sound(nest(2 * DEPTH_MAX))
    assert not is_sound(nest(3000))


def test_a_record_that_no_decoder_takes_is_not_sound():
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000

    assert not is_sound(deep)
    assert not is_sound(b'{"a":"\xff"}')
    assert not is_sound(b"[1]")
    assert list_good_spans(deep) == [deep]


@pytest.mark.parametrize("hostile", [b'{"a":', b'{"', b'{"a":[', b'"{', b'{"a":1} x', b"\0{"])
def test_a_hostile_line_takes_linear_time(hostile):
    def seconds(count: int) -> float:
        """Return the best of three: another process may slow down one of them."""
        data = hostile * count
        measured = []
        for _ in range(3):
            with measure_cpu() as seconds:
                list(iter_spans(data))
            measured += seconds
        return min(measured)

    assert seconds(80_000) < 24 * max(seconds(10_000), 0.002)


def test_invalid_text_in_a_long_record_is_found_without_decoding_it_all():
    far = b'{"a":"' + "é".encode() * (1 << 20) + b'\xff"}'
    data, bad = repair_text(far)

    assert bad is not None
    assert far[bad.start : bad.end] == b"\xff"
    assert msgspec.json.decode(data)["a"].endswith("é\ufffd")


def _open_string(head: bytes) -> bytes:
    """The text after the last quote that opens a string, or nothing outside of one."""
    quotes = [
        at for at in range(len(head)) if head[at : at + 1] == b'"' and not _is_escaped(head, at)
    ]
    return head[quotes[-1] :] if len(quotes) % 2 else b""


def _is_escaped(head: bytes, at: int) -> bool:
    backslashes = len(head[:at]) - len(head[:at].rstrip(b"\\"))
    return backslashes % 2 == 1
