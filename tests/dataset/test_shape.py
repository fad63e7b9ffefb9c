"""Rows of any origin: whatever somebody wrote into a tracked file, the sound rows count and no command fails."""

import json

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.dataset.check import check_dataset
from flightlog.dataset.exports import FORMS, export_dataset
from flightlog.dataset.reader import drop_invalid_fields, read_dataset
from flightlog.dataset.retention import rows_due
from flightlog.dataset.rows import BASES, ROWS
from flightlog.dataset.service import dataset_stats

CHAT = {"kind": "chat", "id": "chat-1", "timestamp": "2026-11-02T12:00:00Z", "session_id": "s",
        "input": "make the tests pass", "output": "b", "tools": ["Read"], "files": [], "uuid": "u",
        "rev": 1}  # fmt: skip
# Without a time no tombstone of the fixture removes it, so it makes a pair for preferences.
WORSE = {**CHAT, "id": "chat-2", "timestamp": None, "output": "c", "is_rewound": True}
STRANGE = (
    None,
    5,
    -1.5,
    "x",
    [],
    {},
    ["a", 1, None],
    {"a": None},
    True,
    10**30,
    "9999-99-99T99:99:99Z",
)
FIELDS = [
    *sorted({name for kind in ROWS for name in kind.__struct_fields__} - {"id"}),
    "duration_seconds",
]


@pytest.fixture
def hostile(ground):
    """A shard with every field of every kind of row holding everything it should not."""
    rows = [{}, [], CHAT, WORSE]
    for kind in (*BASES, "generation", None, 5, ["x"]):
        rows.append({"kind": kind})
        rows += [{"kind": kind, "id": value} for value in STRANGE]
        rows += [
            {"kind": kind, "id": f"w{n}", **dict.fromkeys(FIELDS, value)}
            for n, value in enumerate(STRANGE)
        ]
        rows += [{**CHAT, "kind": kind, "id": f"{field}-{n}", "hash": f"h{n}", field: value}
                 for field in FIELDS for n, value in enumerate(STRANGE)]  # fmt: skip
    ground.on()
    path = ground.place.pending_dir / "2026-11-02-hand-aaaaaaaaaaaa.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ground


def test_no_row_stops_the_figures_or_the_checks(hostile):
    stats = dataset_stats(open_runtime(), hostile.place)

    assert stats["counts"]["chats"] > 1
    assert any(one.kind == "schema" for one in check_dataset(hostile.place))
    assert rows_due(hostile.book, 1, 4_000_000_000_000)


@pytest.mark.parametrize("form", FORMS)
def test_no_row_stops_an_export_and_the_sound_ones_are_in_it(hostile, tmp_path, form):
    made = export_dataset(read_dataset(hostile.place.tracked_dir), form, tmp_path / "out")

    assert sum(made.values()) >= 1


def test_values_of_the_wrong_type_are_dropped_and_the_rest_stays():
    assert drop_invalid_fields(CHAT) is CHAT
    assert drop_invalid_fields({**CHAT, "tools": 5, "steps": [["m", "many"]], "more": 1}) == {
        name: value for name, value in {**CHAT, "more": 1}.items() if name != "tools"
    }
    assert drop_invalid_fields({"kind": "chat", "id": 5}) == {"kind": "chat", "id": ""}
    assert drop_invalid_fields({"kind": "theirs", "tools": 5}) == {
        "kind": "theirs",
        "tools": 5,
        "id": "",
    }
