"""The analysis of all sessions: computed once, on all processors, and stored in the index."""

import os
import shutil
from pathlib import Path

import pytest

from flightlog.analysis.cache import total_outcomes
from flightlog.analysis.service import (
    analyze_archive,
    analyze_session,
    group_misses,
    list_misses,
)
from flightlog.app.runtime import local_zone
from flightlog.archive.archive import Archive

RECORDED = Path(__file__).parents[1] / "recordings" / "cache-causes"


@pytest.fixture
def config_dir(tmp_path):
    """The recorded cases as one configuration directory."""
    for case in sorted(RECORDED.iterdir()):
        if case.is_dir():
            shutil.copytree(case / "projects", tmp_path / "c" / "projects", dirs_exist_ok=True)
    return tmp_path / "c"


def open_archive(config_dir):
    return Archive({"claude-code": (str(config_dir),)}, str(config_dir.parent / "home"))


def test_a_second_call_over_unchanged_files_reads_no_transcript(config_dir):
    first = list(analyze_archive(open_archive(config_dir)))
    details = [analyze_session(open_archive(config_dir), item.session) for item in first]
    for path in config_dir.rglob("*.jsonl"):  # other bytes in the same file, with its old times
        stat = path.stat()
        path.write_bytes(b"x" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    again = list(analyze_archive(open_archive(config_dir)))

    assert again == first
    assert [analyze_session(open_archive(config_dir), item.session) for item in first] == details
    assert sum(len(item.cache) for item in first) == 18


def test_a_session_that_grew_is_analyzed_again_and_no_other(config_dir):
    before = {item.session: item for item in analyze_archive(open_archive(config_dir))}
    grown = next(session for session, item in before.items() if item.cache)
    path = next(config_dir.rglob(f"{grown}.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))

    after = {item.session: item for item in analyze_archive(open_archive(config_dir))}

    assert after[grown].requests < before[grown].requests
    assert {s: i for s, i in after.items() if s != grown} == {
        s: i for s, i in before.items() if s != grown
    }


def test_several_processes_give_what_one_gives(config_dir):
    alone = list(analyze_archive(open_archive(config_dir)))
    shutil.rmtree(config_dir.parent / "home")

    seen = []
    together = list(
        analyze_archive(
            open_archive(config_dir), progress=lambda *counts: seen.append(counts), fork_above=0
        )
    )

    assert together == alone
    assert seen[-1] == (len(alone), len(alone))


def test_a_copied_session_counts_its_misses_once(config_dir):
    sessions = open_archive(config_dir)
    missed = next(item for item in analyze_archive(sessions) if item.cache)
    original = next(config_dir.rglob(f"{missed.session}.jsonl"))
    before = total_outcomes(list_misses(analyze_archive(sessions)))
    shutil.copy(original, original.with_name("11111111-1111-4111-8111-111111111111.jsonl"))

    after = total_outcomes(list_misses(analyze_archive(open_archive(config_dir))))

    assert after == before


@pytest.mark.parametrize("by", ["cause", "project", "day", "model"])
def test_rows_of_each_grouping_sum_up_to_all_misses(config_dir, by):
    analyses = list(analyze_archive(open_archive(config_dir)))
    misses = list_misses(analyses)

    rows = group_misses(misses, by, analyses, local_zone())

    totals = total_outcomes(misses)
    assert sum(row.misses for _, row in rows) == totals.misses  # none here has two causes
    assert sum(row.extra_cost_usd for _, row in rows) == pytest.approx(totals.extra_cost_usd)
    if by == "cause":
        assert {key: row.misses for key, row in rows} == totals.causes


def test_sessions_written_before_the_time_are_left_out(config_dir):
    opened = open_archive(config_dir)
    newest = max(recording.changed_ms for recording in opened.recordings.values())

    assert list(analyze_archive(opened, newest + 1)) == []
    assert list_misses(analyze_archive(opened), 3 * 10**12) == []
