import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tools.bench.corpus import generate, grow

from flightlog.agents.claude_code.files import find_transcripts
from flightlog.archive.archive import Archive
from flightlog.model.usage import Breakdown
from flightlog.usage.pipeline import UsagePipeline
from support.archive_maker import prompt, put, reply, report_usage
from support.strace_points import kill_everywhere

SYNC = """
from datetime import UTC
from flightlog.model.usage import Breakdown
from flightlog.agents.claude_code.files import find_transcripts
from flightlog.usage.pipeline import UsagePipeline
pipeline = UsagePipeline(find_transcripts(str(root / "agent")).files, root / "home" / "index.db")
report = pipeline.report(Breakdown.SESSION, UTC)
begin()
pipeline.save()
end()
ack(report.total.usage.output_tokens)
"""


TORN_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    return root, generate(root, 2_000_000, seed=3)


@pytest.mark.parametrize("by", Breakdown)
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45))])
def test_a_pipeline_without_index_reports_what_the_archive_does(corpus, by, zone):
    root, _ = corpus

    pipeline = UsagePipeline(find_transcripts(str(root)).files, None)
    quick, slow = (
        pipeline.report(by, zone),
        Archive({"claude-code": (str(root),)}).usage_report(by, zone),
    )

    assert [_exact(row) for row in quick.rows] == [_exact(row) for row in slow.rows]
    assert _exact(quick.total) == _exact(slow.total)
    assert [row.cost.usd for row in quick.rows] == pytest.approx(
        [row.cost.usd for row in slow.rows], abs=1e-6
    )
    assert [_cents(truth) for truth in quick.reconciliations] == [
        _cents(truth) for truth in slow.reconciliations
    ]


def _cents(truth):
    return replace(
        truth, recorded_usd=None if truth.recorded_usd is None else round(truth.recorded_usd, 6)
    )


def _exact(row):
    return (
        row.key,
        row.usage,
        row.responses,
        row.sessions,
        row.models,
        row.unpriced_models,
        row.first_ms,
        row.last_ms,
    )


def _size(root):
    return sum(path.stat().st_size for path in root.rglob("*.jsonl"))


def test_totals_equal_the_manifest_and_grow_with_it(tmp_path):
    truth = generate(tmp_path / "agent", 1_000_000, seed=5)
    report, _ = report_usage(tmp_path / "agent", tmp_path / "index.db")
    before = _size(tmp_path / "agent")
    grown_truth = grow(tmp_path / "agent", 200_000, seed=6)
    new = _size(tmp_path / "agent") - before
    grown, work = report_usage(tmp_path / "agent", tmp_path / "index.db")

    assert _tokens(report) == truth["by_session"]
    assert _tokens(grown) == grown_truth["by_session"]
    # Exactly what is new, and the torn last lines once more.
    assert new <= work.bytes_read <= new * 1.1
    assert report_usage(tmp_path / "agent", None)[0] == grown


def _bytes(root):
    return sum(path.stat().st_size for path in root.rglob("*.jsonl"))


def _tokens(report):
    return {
        row.key: {
            "input_tokens": row.usage.input_tokens,
            "output_tokens": row.usage.output_tokens,
            "cache_read_tokens": row.usage.cache_read_tokens,
            "cache_write_tokens": row.usage.cache_write_tokens,
            "cache_write_1h_tokens": row.usage.cache_write_1h_tokens,
        }
        for row in report.rows
    }


def test_an_unchanged_archive_is_not_read_at_all(corpus, tmp_path):
    root, _ = corpus
    first, work = report_usage(root, tmp_path / "index.db")
    assert work.decoded > 0

    again, work = report_usage(root, tmp_path / "index.db")
    other, other_work = report_usage(root, tmp_path / "index.db", Breakdown.MODEL)

    assert (work.opened, work.bytes_read, work.decoded) == (0, 0, 0)
    assert (other_work.opened, other_work.bytes_read, other_work.decoded) == (0, 0, 0)
    assert work.files == other_work.files == len(list(root.rglob("*.jsonl")))
    assert again == first
    assert other.total == first.total


replies = st.builds(
    reply,
    st.sampled_from("abcdef"),
    st.integers(1, 4),
    at=st.integers(0, 4000) | st.integers(80_000, 90_000),
    model=st.sampled_from(["claude-opus-4-1", "claude-opus-4-1", "unheard-of"]),
    isSidechain=st.booleans(),
)
sessions = st.dictionaries(
    st.sampled_from(["s1", "s2", "s3"]), st.lists(replies, max_size=8), min_size=1
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(archive=sessions, data=st.data())
def test_neither_order_nor_cuts_nor_the_index_change_a_report(tmp_path_factory, archive, data):
    root = tmp_path_factory.mktemp("law")
    whole = {session: b"".join([prompt("go"), *lines]) for session, lines in archive.items()}
    steps = data.draw(st.integers(1, 3))
    cuts = {
        name: sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=steps, max_size=steps)))
        for name, body in whole.items()
    }
    for step in range(steps):
        for session in data.draw(st.permutations(sorted(whole))):
            put(root, session, whole[session][: cuts[session][step]])
        report_usage(root, root / "index.db", data.draw(st.sampled_from(Breakdown)))
    for session, body in whole.items():
        put(root, session, body)
    by = data.draw(st.sampled_from(Breakdown))

    grown, _ = report_usage(root, root / "index.db", by)

    assert grown == report_usage(root, None, by)[0]


@pytest.mark.parametrize("by", Breakdown)
def test_a_report_after_growth_reads_only_what_is_new(tmp_path, by):
    generate(tmp_path / "agent", 400_000, seed=7)
    report_usage(tmp_path / "agent", tmp_path / "index.db", by)
    lines = (prompt("go"), reply("a"), reply("b", model="unheard-of"))
    new = put(tmp_path / "agent", "new", *lines)

    grown, stats = report_usage(tmp_path / "agent", tmp_path / "index.db", by)
    new.write_bytes(new.read_bytes() + reply("c", at=90_000))
    again, more = report_usage(tmp_path / "agent", tmp_path / "index.db", by)

    assert (stats.bytes_read, more.bytes_read) == (len(b"".join(lines)), len(reply("c", at=90_000)))
    assert grown.total.responses + 1 == again.total.responses
    assert again == report_usage(tmp_path / "agent", None, by)[0]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=sessions, after=sessions)
def test_rows_of_rewritten_and_removed_files_are_taken_back(tmp_path_factory, before, after):
    root = tmp_path_factory.mktemp("law")
    for session, lines in before.items():
        put(root, session, *lines)
    report_usage(root, root / "index.db")
    shutil.rmtree(root / "projects")
    for session, lines in after.items():
        put(root, session, *lines)

    assert report_usage(root, root / "index.db")[0] == report_usage(root, None)[0]


def test_a_response_moves_to_the_session_it_was_first_said_in(tmp_path):
    put(tmp_path, "fork", prompt("go", at=10), reply("a", at=20), reply("b", at=30))
    assert _outputs(report_usage(tmp_path, tmp_path / "index.db")[0]) == {"fork": 10}

    put(tmp_path, "origin", prompt("go", at=0), reply("a", at=20))

    assert _outputs(report_usage(tmp_path, tmp_path / "index.db")[0]) == {"fork": 5, "origin": 5}


def _outputs(report):
    return {row.key: row.usage.output_tokens for row in report.rows}


def test_a_file_rewritten_in_place_is_read_again(tmp_path):
    path = put(tmp_path, "s", reply("a", 7), reply("b", 2))
    report_usage(tmp_path, tmp_path / "index.db")
    with path.open("r+b") as file:
        file.write(reply("a", 9) + reply("b", 2))
    os.utime(path, ns=(1, 1))

    assert report_usage(tmp_path, tmp_path / "index.db")[0].total.usage.output_tokens == 11


def test_the_index_is_for_its_owner_only(tmp_path):
    put(tmp_path, "s", reply("a"))

    report_usage(tmp_path, tmp_path / "home" / "index.db")

    assert (tmp_path / "home" / "index.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["garbage", "newer", "cut", "foreign", "page"])
def test_a_damaged_or_foreign_index_is_rebuilt(corpus, tmp_path, damage):
    root, _ = corpus
    index = tmp_path / "index.db"
    report, _ = report_usage(root, index)
    if damage == "garbage":
        index.write_bytes(b"not a database" * 1000)
    elif damage == "cut":
        index.write_bytes(index.read_bytes()[:5000])
    elif damage == "page":
        body = bytearray(index.read_bytes())
        body[4096:40960] = os.urandom(36864)
        index.write_bytes(body)
    else:
        with closing(sqlite3.connect(index, isolation_level=None)) as database:
            database.execute(
                f"PRAGMA {'user_version' if damage == 'newer' else 'application_id'} = 99"
            )

    assert report_usage(root, index)[0] == report
    assert report_usage(root, index)[0] == report


def test_an_index_that_cannot_be_written_costs_no_answer(tmp_path):
    put(tmp_path, "s", reply("a"))
    (tmp_path / "file").write_text("in the way")

    assert report_usage(tmp_path, tmp_path / "file" / "index.db")[0].total.usage.output_tokens == 5


def test_two_reports_at_once_do_not_spoil_the_index(tmp_path):
    put(tmp_path, "s", reply("a"))
    one, two = (
        UsagePipeline(find_transcripts(str(tmp_path)).files, tmp_path / "index.db")
        for _ in range(2)
    )
    first, second = one.report(Breakdown.DAY, UTC), two.report(Breakdown.DAY, UTC)
    one.save()
    two.save()

    assert first == second == report_usage(tmp_path, tmp_path / "index.db", Breakdown.DAY)[0]


def test_digests_of_another_version_are_made_again(tmp_path):
    put(tmp_path, "s", reply("a"))
    report, _ = report_usage(tmp_path, tmp_path / "index.db")
    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as database:
        database.execute("UPDATE made SET version = 'older'")
        database.execute("UPDATE digests SET body = x'00'")

    again, work = report_usage(tmp_path, tmp_path / "index.db")

    assert again == report
    assert work.decoded == 0


def test_an_unreadable_file_is_passed_over_and_read_when_it_can_be(tmp_path):
    put(tmp_path, "s", reply("a"))
    path = put(tmp_path, "t", reply("b"))
    path.unlink()
    path.symlink_to(path)
    pipeline = UsagePipeline(find_transcripts(str(tmp_path)).files, tmp_path / "index.db")
    assert pipeline.report(Breakdown.SESSION, UTC).total.responses == 1
    pipeline.save()
    path.unlink()
    put(tmp_path, "t", reply("b"))

    assert report_usage(tmp_path, tmp_path / "index.db")[0].total.responses == 2


def test_session_rows_have_a_cost_or_none_if_unknown(tmp_path):
    put(tmp_path, "s", reply("a", 1_000_000))
    put(tmp_path, "t", reply("b", model="unheard-of"))

    rows = UsagePipeline(find_transcripts(str(tmp_path)).files, None).session_rows()

    assert {session: row.cost.usd for session, row in rows.items()} == {
        "s": pytest.approx(15.000009),
        "t": None,
    }


def estimated_tokens(root):
    pipeline = UsagePipeline(find_transcripts(str(root)).files, None)
    report = pipeline.report(Breakdown.SESSION, UTC, estimate=True)
    return {row.key: row.estimated_output_tokens for row in report.rows}


@pytest.mark.parametrize("left_out", ["usage", "id"])
def test_an_estimate_includes_responses_without_id_or_usage(tmp_path, left_out):
    lines = []
    for name in ("a", "b"):
        record = json.loads(reply(name, 0, text="word" * 100, version="2.1.29"))
        del record["message"][left_out], record["requestId"]
        lines.append(json.dumps(record).encode() + b"\n")
    put(tmp_path, "s", *lines)

    assert estimated_tokens(tmp_path) == {"s": 200}


def test_the_estimate_of_a_copied_response_belongs_to_its_first_session(tmp_path):
    early = reply("a", 0, at=1, text="word" * 100, version="2.1.29")
    put(tmp_path, "z", early)
    put(tmp_path, "c", early, reply("b", 0, at=9, text="word" * 10, version="2.1.29"))

    assert estimated_tokens(tmp_path) == {"z": 100, "c": 10}


@pytest.mark.slow
def test_dying_at_any_system_call_of_an_update_leaves_an_index_that_heals(tmp_path):
    def prepare(root):
        put(root / "agent", "s", reply("a"), reply("b"))
        report_usage(root / "agent", root / "home" / "index.db")
        put(root / "agent", "s", reply("a"), reply("b"), reply("c"))
        put(root / "agent", "t", reply("d", 40))

    def check(root, _):
        report, _ = report_usage(root / "agent", root / "home" / "index.db")
        assert report.total.usage.output_tokens == 55
        assert report_usage(root / "agent", root / "home" / "index.db")[1].decoded == 0

    assert len(kill_everywhere(SYNC, tmp_path, prepare, check)) > 5


def test_a_report_is_whole_before_anything_is_written(tmp_path):
    put(tmp_path, "s", reply("a"))
    code = (
        "import os, sys\nfrom datetime import UTC\nfrom pathlib import Path\n"
        "from flightlog.model.usage import Breakdown\n"
        "from flightlog.agents.claude_code.files import find_transcripts\n"
        "from flightlog.usage.pipeline import UsagePipeline\n"
        "pipeline = UsagePipeline(find_transcripts(sys.argv[1]).files, Path(sys.argv[1]) / 'index.db')\n"
        "print(pipeline.report(Breakdown.DAY, UTC).total.usage.output_tokens, flush=True)\nos._exit(0)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "5\n"
    assert report_usage(tmp_path, tmp_path / "index.db")[1].decoded == 1


def test_no_command_waits_for_an_index_to_be_made(corpus, tmp_path):
    files = find_transcripts(str(corpus[0])).files
    index = tmp_path / "home" / "index.db"
    pipeline = UsagePipeline(files, index)
    told_first = pipeline.report(Breakdown.DAY, UTC)

    assert not index.parent.exists()
    pipeline.save()
    again = UsagePipeline(files, index)
    assert again.report(Breakdown.DAY, UTC) == told_first
    assert again.stats.opened == 0
    again.save()


def test_second_of_two_index_writers_leaves_it_alone(tmp_path):
    put(tmp_path, "s1", reply("m1", 10))
    early = UsagePipeline(find_transcripts(str(tmp_path)).files, tmp_path / "index.db")
    early.report(Breakdown.SESSION, UTC)
    put(tmp_path, "s2", reply("m2", 20))
    report_usage(tmp_path, tmp_path / "index.db")

    early.save()

    report, work = report_usage(tmp_path, tmp_path / "index.db")
    assert (report.total.usage.output_tokens, work.opened) == (30, 0)


def test_several_breakdowns_read_the_files_once(tmp_path):
    put(tmp_path, "s1", reply("m1", 10))
    pipeline = UsagePipeline(find_transcripts(str(tmp_path)).files, None)

    by_day, by_model = pipeline.report(Breakdown.DAY, UTC), pipeline.report(Breakdown.MODEL, UTC)

    assert (pipeline.stats.opened, by_day.total) == (1, by_model.total)
    assert by_model == report_usage(tmp_path, None, Breakdown.MODEL)[0]


def test_damage_takes_no_sound_response_with_it(tmp_path):
    """Torn, joined, NUL-filled and marked lines: what is sound in them is counted, the rest is said."""
    whole = [reply(f"m{number}", output=10).rstrip() for number in range(6)]
    torn = whole[0][: len(whole[0]) // 2]
    lines = [
        b"\xef\xbb\xbf" + whole[0],
        torn + whole[1],
        whole[2] + whole[3],
        b"\0" * 4096 + whole[4],
        b"\xff\xfe{",
        whole[5],
    ]
    folder = tmp_path / "projects" / "p"
    folder.mkdir(parents=True)
    (folder / "s.jsonl").write_bytes(b"\n".join(lines) + b"\n" + torn)

    report, _ = report_usage(tmp_path, None)
    (session,) = Archive({"claude-code": (str(tmp_path),)}).iter_sessions()

    assert report.total.responses == 6
    assert report.total.usage.output_tokens == 60
    assert sorted(step.message_id for step in session.steps) == [
        f"m{number}" for number in range(6)
    ]
    assert len(session.damage) >= 5
