"""Recordings changed at random, through every view: nothing raises, and what is sound is still told."""

import json
import tempfile
from datetime import UTC
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.agents.claude_code.source import entries
from flightlog.archive.archive import Archive
from flightlog.archive.sharing import SessionDocument
from flightlog.model.entries import UnknownRecord
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.model.usage import Breakdown
from flightlog.views.atif.lint import lint_trajectory
from flightlog.views.atif.writer import AtifOptions, build_trajectory
from flightlog.views.json_output import as_json
from flightlog.views.transcript import RenderOptions, render_session
from flightlog.views.transcript_formats import FollowFormatter, as_markdown, as_text
from flightlog.web.share import render_export_page
from flightlog.web.templates import make_environment
from support.recordings import ROOT
from support.transcripts import SESSION, archive, user

SMALL = [
    path for path in sorted(ROOT.glob("*/*/transcripts/*.jsonl")) if path.stat().st_size < 120_000
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            "",
            "\x1b]0;x\x07",
            "²",
            "../..",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "#",
            "`",
            "\ud83d",
        ]
    ),
    st.lists(
        st.none() | st.text(max_size=3) | st.dictionaries(st.just("type"), st.text(max_size=4)),
        max_size=3,
    ),
    st.dictionaries(
        st.sampled_from(["type", "id", "x"]),
        st.none() | st.integers() | st.text(max_size=3),
        max_size=2,
    ),
)


def paths(value, at=()):
    yield at
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from paths(item, (*at, key))


def replace_value(value, at, new):
    if not at:
        return new
    inner = replace_value(value[at[0]], at[1:], new)
    return (
        {**value, at[0]: inner}
        if isinstance(value, dict)
        else [*value[: at[0]], inner, *value[at[0] + 1 :]]
    )


@st.composite
def transcripts(draw):
    """A recorded session in which some places of some records hold something else."""
    records = [
        json.loads(line) for line in draw(st.sampled_from(SMALL)).read_text("utf-8").splitlines()
    ]
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(records) - 1))
        at = draw(
            st.sampled_from([path for path in paths(records[place]) if path and path != ("type",)])
        )
        records[place] = replace_value(records[place], at, draw(ODD))
    for _ in range(draw(st.integers(0, 3))):
        records.append(draw(st.sampled_from(records)))
    return records


TEMPLATES = make_environment(UTC, lambda: 0)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(transcripts())
def test_any_recording_can_be_shown_counted_and_exported(records):
    with tempfile.TemporaryDirectory() as folder:
        door = archive(Path(folder), *records)
        session = door.read_session(SESSION)
        report = door.usage_report(Breakdown.DAY, UTC)
        entries_read = list(
            entries(
                SessionFile(str(Path(folder) / f"projects/shop/{SESSION}.jsonl"), SESSION, 0, 0)
            )
        )
        lines = list(render_session(session, RenderOptions(is_full=True)))

    items = [item for item in entries_read if not isinstance(item, Damage)]
    for form in (as_text, as_markdown):
        assert form(lines)
    assert 'id="timeline"' in render_export_page(SessionDocument(session), TEMPLATES)
    json.loads(as_json(session))
    feed = FollowFormatter()
    assert sum(len(list(feed.render_lines(item))) for item in items) > 0
    assert {damage.reason for damage in session.damage} <= {"lone surrogate"}
    assert len(items) >= len(records)
    assert session.record_count == len({item.key for item in items})
    assert report.total.responses >= 0
    unknown = {item.event.kind for item in items if isinstance(item.event, UnknownRecord)}
    assert {kind for kind, _ in session.unknown_record_types} == unknown


# What a trajectory may say of a recording in which ids were lost or times changed; its own shape is never at fault.
ODDITIES = {
    *("empty-id", "repeated-call", "repeated-result", "undefined-tool", "tool-definition"),
    *("time-backwards", "agent-first"),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records=transcripts(), version=st.sampled_from(["1.6", "1.7"]))
def test_any_recording_becomes_a_trajectory_of_the_right_shape(records, version):
    with tempfile.TemporaryDirectory() as folder:
        door = archive(Path(folder), *records)
        bundle = build_trajectory(
            door.read_session(SESSION), AtifOptions(version), door.thread_contexts(SESSION)
        )
    files = dict(bundle.iter_files())

    findings = {
        finding.rule
        for name in bundle.documents
        for finding in lint_trajectory(files[name], files.__contains__)
    }
    assert findings <= ODDITIES


def test_an_unknown_record_is_one_visible_line_in_the_story(tmp_path):
    session = archive(
        tmp_path, user("x", 1), {"type": "hologram", "beam": 1}, user("y", 2, newField=1)
    ).read_session(SESSION)

    text = as_text(render_session(session, RenderOptions()))

    assert "unknown record: hologram with beam, type" in text
    assert "unknown record type hologram, 1 time" in text
    assert "unknown field user.newField, 1 time" in text


def test_damage_is_one_visible_line_in_the_story(tmp_path):
    one = archive(tmp_path / "one", user("x", 1), b"{torn", user("y", 2)).read_session(SESSION)
    two = archive(tmp_path / "two", b"{torn", user("y", 2), b"{torn}").read_session(SESSION)

    assert "damaged: 5 bytes at" in as_text(render_session(one, RenderOptions()))
    text = as_text(render_session(two, RenderOptions()))
    assert text.count("damaged: ") == 1
    assert "damaged: 11 bytes in 2 spans from 0 on: torn" in text


def test_parents_in_cycles_and_records_of_one_name_are_all_shown(tmp_path):
    records = [
        user("one", 1, uuid="a", parentUuid="b"),
        user("two", 2, uuid="b", parentUuid="a"),
        user("three", 3, uuid="c", parentUuid="gone"),
        user("four", 4, uuid="d", parentUuid="d"),
        user("five", 5, uuid="", parentUuid="", timestamp=None),
        user("six", 6, uuid=None, parentUuid=7, timestamp=7),
    ]

    session = Archive(
        {"claude-code": (str(archive(tmp_path, *records) and tmp_path),)}
    ).read_session(SESSION)

    assert {turn.text for turn in session.turns} == {"one", "two", "three", "four", "five", "six"}
