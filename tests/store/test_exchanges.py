import hashlib
import json
import os
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.agents.capture.dumps import build_dump_files
from flightlog.model.errors import Damage, NotFound, Unreadable
from flightlog.model.exchange import (
    ApiRequest,
    ApiResponse,
    BodyRef,
    RequestOrigin,
    ResponseOutcome,
)
from flightlog.store.blobs import (
    BodyStore,
    count_shared_chunks,
    expand_chunks,
    split_body,
    split_changed_body,
)
from flightlog.store.exchanges import CHAIN_MAX
from flightlog.store.output_files import write_output_files
from support.captures import exchanges
from support.strace_points import kill_everywhere

NO_BODY = BodyRef("", 0)


def request(index, **more):
    given = {
        "agent_context": RequestOrigin.MAIN,
        "method": "POST",
        "path": "/v1/messages",
        "headers": {},
        "sent_body": NO_BODY,
    }
    return ApiRequest(index, **(given | more))


def response(index, ending=ResponseOutcome.COMPLETE):
    return ApiResponse(index, 200, {}, f"req_{index}", ending)


def make_request(turns, words=40):
    messages = [
        {"role": "user", "content": f"turn {turn} " + "wörd " * words} for turn in range(turns)
    ]
    body = {
        "model": "m",
        "messages": messages,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [],
        "n": 1.50,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def disk_bytes(folder):
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)
bodies = st.dictionaries(
    st.sampled_from(["messages", "system", "tools", "model", "x", 'q"\\']), json_values, max_size=6
)


@given(bodies, st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]), st.booleans())
def test_pieces_joined_are_the_body_however_it_is_written(body, separators, ascii_only):
    data = json.dumps(body, separators=separators, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    )

    assert b"".join(split_body(data)) == data


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a":1,"a":2}', b'{"messages":' + b"[" * 5000]
)
def test_body_that_is_no_plain_object_is_one_piece(data):
    assert split_body(data) == [data]


@given(bodies, bodies, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_body_cut_against_another_is_the_body(one, other, separators):
    before, data = (json.dumps(value, separators=separators).encode() for value in (one, other))

    for base in (before, data):
        pieces = tuple(split_body(base))
        keep, new, tail = split_changed_body(pieces, data)
        assert b"".join((*pieces[:keep], *new, *pieces[len(pieces) - tail :])) == data


def test_only_new_messages_of_a_grown_history_are_split(tmp_path):
    def body(turns):
        messages = [{"role": "user", "content": f"turn {at}"} for at in range(turns)]
        return json.dumps(
            {"messages": messages, "tools": ["x" * 5000]}, separators=(",", ":")
        ).encode()

    pieces = BodyStore(tmp_path)
    one = pieces.store_body(body(50))
    two = pieces.store_body(body(52), one)

    assert len(two.own_chunks) == 2
    assert all(a is b for a, b in zip(one.parts[: two.prefix_chunks], two.parts, strict=False))
    assert two.prefix_chunks + two.suffix_chunks == len(one.parts)
    assert b"".join(two.parts) == body(52)
    shorter = pieces.store_body(body(20), pieces.store_body(body(60), two))
    assert shorter.digest == hashlib.sha256(body(20)).hexdigest()
    assert two.digest == hashlib.sha256(body(52)).hexdigest()


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_a_body_stored_as_a_difference_is_restored_whole(one, other):
    keep, tail = count_shared_chunks(tuple(one), tuple(other))
    own = tuple(other[keep : len(other) - tail])

    assert expand_chunks(BodyRef("", 0, own, 1, keep, tail), tuple(one)) == tuple(other)


def test_bodies_are_read_byte_for_byte_in_any_order_by_any_process(tmp_path):
    store = exchanges(tmp_path)
    asked = {}
    for index in range(1, CHAIN_MAX * 2 + 10):
        asked[index] = make_request(index) if index % 3 else make_request(index, words=2000)
        store.record_request(request(index, agent_id="a" if index % 5 == 0 else ""), asked[index])

    other = exchanges(tmp_path)
    stored = other.read_exchanges()

    assert [exchange.index for exchange in stored] == sorted(asked)
    for exchange in random.Random(3).sample(stored, len(stored)):
        assert other.sent_body(exchange) == asked[exchange.index]


def test_a_rewritten_request_keeps_both_bodies(tmp_path):
    store = exchanges(tmp_path)
    store.record_request(request(1), make_request(3), given=make_request(4))
    store.record_request(request(2), make_request(5))

    first, second = exchanges(tmp_path).read_exchanges()

    assert (store.sent_body(first), store.client_body(first)) == (make_request(3), make_request(4))
    assert store.client_body(second) == store.sent_body(second) == make_request(5)


def test_a_history_is_kept_once(tmp_path):
    """200 turns of a 100 KB context: 20 MB on the wire, and dumps that are limited to 8 MB."""
    store = exchanges(tmp_path)
    noise = random.Random(1)
    messages = [{"role": "user", "content": noise.randbytes(50_000).hex()}]
    wire = 0
    for index in range(1, 201):
        messages.append({"role": "user", "content": noise.randbytes(300).hex()})
        marked = [*messages[:-1], {**messages[-1], "cache_control": {"type": "ephemeral"}}]
        data = (
            json.dumps({"model": "m", "messages": marked, "tools": ["t" * 5000]})
            .replace(" ", "")
            .encode()
        )
        store.record_request(request(index), data)
        store.append_response_chunk(index, b"x" * 2000)
        store.record_response(response(index), noise.randbytes(2000))
        wire += len(data)

    assert wire > 20_000_000
    assert disk_bytes(tmp_path) < 3_000_000
    write_output_files(tmp_path / "session", build_dump_files(store, full_bytes=8 << 20))
    assert len(list((tmp_path / "session" / "raw_dumps").iterdir())) == 800
    assert disk_bytes(tmp_path) <= 15_000_000, "with every page of it"
    assert len(store.sent_body(store.read_exchanges()[-1])) > 100_000


def test_a_response_streams_to_disk_and_becomes_a_blob_when_it_ends(tmp_path):
    store = exchanges(tmp_path)
    store.record_request(request(1), b"{}")
    store.record_response(response(1, ResponseOutcome.OPEN))
    store.append_response_chunk(1, b"first ")
    store.append_response_chunk(1, b"second")

    (opened,) = exchanges(tmp_path).read_exchanges()

    assert (opened.response.ending, store.response_body(opened)) == (
        ResponseOutcome.OPEN,
        b"first second",
    )
    store.record_response(response(1), b"first second")
    (ended,) = exchanges(tmp_path).read_exchanges()
    assert (ended.response.ending, store.response_body(ended)) == (
        ResponseOutcome.COMPLETE,
        b"first second",
    )
    assert list((tmp_path / "open").iterdir()) == []


def test_a_request_without_a_response_has_none(tmp_path):
    store = exchanges(tmp_path)
    store.record_request(request(1), b"{}")

    (only,) = store.read_exchanges()

    assert (only.response, store.response_body(only), store.last_index()) == (None, b"", 1)


def test_damage_loses_only_what_it_hit(tmp_path):
    store = exchanges(tmp_path)
    for index in range(1, 6):
        store.record_request(request(index), make_request(index, words=3000))
    path = tmp_path / "exchanges.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        lines[0] + lines[1][: len(lines[1]) // 2] + b"\n" + b"".join(lines[2:]) + b'{"v":1,"id":"z"'
    )

    items = list(exchanges(tmp_path).read_all())

    assert sum(isinstance(item, Damage) for item in items) >= 2
    intact = [item for item in items if not isinstance(item, Damage)]
    assert [exchange.index for exchange in intact] == [1, 3, 4, 5]
    assert exchanges(tmp_path).sent_body(intact[0]) == make_request(1, words=3000)
    with pytest.raises(NotFound):
        exchanges(tmp_path).sent_body(intact[1])


def test_a_chunk_that_differs_from_the_stored_one_is_reported(tmp_path):
    store = exchanges(tmp_path)
    store.record_request(request(1), make_request(1))
    path = tmp_path / "exchanges.jsonl"
    path.write_bytes(path.read_bytes().replace(b"turn 0", b"turn 9"))

    with pytest.raises(Unreadable):
        exchanges(tmp_path).sent_body(exchanges(tmp_path).read_exchanges()[0])


def test_a_response_whose_request_was_lost_is_not_an_exchange(tmp_path):
    store = exchanges(tmp_path)
    store.record_response(response(7), b"x")

    assert store.read_exchanges() == []


def test_stored_files_are_private_to_their_owner(tmp_path):
    store = exchanges(tmp_path / "x")
    store.record_request(request(1), make_request(1, words=5000))
    store.append_response_chunk(1, b"x")

    modes = {oct(os.lstat(path).st_mode & 0o077) for path in (tmp_path / "x").rglob("*")}

    assert modes == {"0o0"}


SCENARIO = """
from flightlog.model.exchange import BodyRef, RequestOrigin, ResponseOutcome, ApiRequest, ApiResponse
from flightlog.store.exchanges import ExchangeStore
import itertools
ids = itertools.count(100)
store = ExchangeStore(root / "x", now=lambda: "t", new_id=lambda: f"n{next(ids)}")
one = b'{"model":"m","messages":[' + b'"' + b"word " * 2000 + b'"]}'
begin()
store.record_request(ApiRequest(2, RequestOrigin.MAIN, "POST", "/", {}, BodyRef("", 0)), one)
ack("asked")
store.append_response_chunk(2, b"half")
store.record_response(ApiResponse(2, 200, {}, "r", ResponseOutcome.COMPLETE), b"half and half")
ack("answered")
end()
"""


@pytest.mark.slow
def test_a_kill_at_any_call_leaves_acknowledged_data_and_a_sound_journal(tmp_path):
    def prepare(root):
        exchanges(root / "x").record_request(request(1), make_request(2))

    def check(root, acknowledged):
        store = exchanges(root / "x")
        by_index = {exchange.index: exchange for exchange in store.read_exchanges()}
        assert store.sent_body(by_index[1]) == make_request(2)
        if "asked" in acknowledged:
            assert len(store.sent_body(by_index[2])) > 10_000
        if "answered" in acknowledged:
            assert store.response_body(by_index[2]) == b"half and half"
        store.record_request(request(3), make_request(3))
        assert [exchange.index for exchange in exchanges(root / "x").read_exchanges()][-1] == 3

    assert len(kill_everywhere(SCENARIO, tmp_path, prepare, check)) > 20


def test_the_values_survive_their_way_through_json():
    whole = request(
        3,
        client_body=BodyRef("d", 1, ("=a",), 2, 1, 1),
        is_compaction=True,
        scrubbed_fields=("metadata",),
    )

    assert msgspec.json.decode(msgspec.json.encode(whole), type=ApiRequest) == whole
