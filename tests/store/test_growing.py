"""A document that grows by one write and is whole at every moment."""

import json

from hypothesis import given
from hypothesis import strategies as st

from flightlog.store.output_files import AppendableJsonFile

entries = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=200), max_size=3), max_size=6
)


def encode_items(items):
    return [json.dumps(item).encode() for item in items]


@given(st.lists(st.tuples(entries, entries), max_size=8))
def test_a_growing_document_is_whole_after_every_write(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("growing") / "log.json"
    page = AppendableJsonFile(path, b'{\n  "session_id": "s"}', "events", [], [])
    settled = []

    for fresh, pending in steps:
        page.add_entries(encode_items(fresh), encode_items(pending))
        settled += fresh
        assert json.loads(path.read_text()) == {"session_id": "s", "events": settled + pending}
    page.close()

    last = steps[-1][1] if steps else []
    assert json.loads(path.read_text()) == {"session_id": "s", "events": settled + last}
    assert path.read_text().endswith("]\n}\n")


def test_a_torn_page_is_replaced_whole(tmp_path):
    path = tmp_path / "log.json"
    path.write_text('{"session_id": "s", "events": [{"a"')

    AppendableJsonFile(path, b'{"session_id": "s"}', "events", [b"1", b"2"], [b"3"]).close()

    assert json.loads(path.read_text())["events"] == [1, 2, 3]


def test_adding_costs_the_same_however_long_it_is(tmp_path):
    path = tmp_path / "log.json"
    page = AppendableJsonFile(path, b'{"session_id": "s"}', "events", [b'"x"'] * 50_000, [])
    inode = path.stat().st_ino

    page.add_entries([b'"y"'])

    assert path.stat().st_ino == inode, "appended to, not replaced"
    page.close()
