"""A session read on as it grows is the session read at once, and a look costs what is new."""

import shutil

import pytest
from msgspec.structs import replace

from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.claude_code.files import AGENT_NAME, JOURNAL
from flightlog.archive.archive import Archive
from flightlog.archive.session_reader import (
    SessionFollower,
    list_session_folder,
    load_cached_outline,
    read_session_folder,
)
from flightlog.store.recordings.adoption import session_dir
from flightlog.usage.prices import price
from flightlog.views.session.fold import SessionFold
from flightlog.views.session.summary import outline_session
from support.recordings import CASES, archive, config_dir


def read_whole(source, name):
    fold = SessionFold(name, "claude-code", price)
    for item in source.iter_file_entries(source.recordings[name].files):
        fold.add(item)
    return fold.outline()


def test_every_recording_is_outlined_like_its_whole_session(tmp_path):
    for number, case in enumerate(CASES):
        source = archive(tmp_path / str(number), case)
        for name in source.recordings:
            outline, expected = SessionFollower(source, name).refresh(), read_whole(source, name)

            assert (outline.session, outline.summary, outline.subagents) == (
                expected.session,
                expected.summary,
                expected.subagents,
            ), case
            assert figures(outline) == figures(expected)


def figures(outline):
    """Everything but the places, which count files in the order they were met."""
    return {
        name: (
            thread.row_kinds,
            thread.costs_usd,
            thread.token_counts,
            thread.failed_counts,
            thread.prompts,
            thread.files,
        )
        for name, thread in outline.threads.items()
    }


@pytest.mark.parametrize(
    "case", ["2.1.325/subagents-background", "2.1.325/compaction-auto", "2.1.100/subagent"]
)
def test_following_line_by_line_equals_one_read(tmp_path, case):
    complete = archive(tmp_path / "complete", case)
    session = complete.latest_session()
    folder = tmp_path / "growing" / "projects" / case.replace("/", "-")
    sources = sorted((tmp_path / "complete").rglob("*.jsonl"))
    folder.mkdir(parents=True)
    main = folder / f"{session}.jsonl"
    main.touch()
    growing = SessionFollower(Archive({"claude-code": (str(tmp_path / "growing"),)}), session)
    for source in sources:
        target = tmp_path / "growing" / source.relative_to(tmp_path / "complete")
        target.parent.mkdir(parents=True, exist_ok=True)
        for meta in source.parent.glob("*.meta.json"):
            shutil.copy(meta, target.parent)
        for line in source.read_bytes().splitlines(keepends=True):
            with target.open("ab") as out:
                out.write(line)
            growing.refresh()

    outline, expected = growing.refresh(), SessionFollower(complete, session).refresh()

    assert (outline.summary, outline.subagents) == (expected.summary, expected.subagents)
    assert figures(outline) == figures(expected)
    assert growing.bytes_read == sum(source.stat().st_size for source in sources)


def test_the_journal_of_a_workflow_is_no_transcript_of_our_copy(tmp_path):
    home = str(tmp_path / "home")
    source = archive(tmp_path / "agent", "2.1.325/workflow")
    (name,) = source.recordings
    adopt_session_files(home, name, source.recordings[name].files)
    folder = session_dir(home, AGENT_NAME, name)
    journal = next((tmp_path / "agent").rglob(JOURNAL))
    run = next(folder.glob("subagents/**/*.jsonl*")).parent
    shutil.copy(journal, run / JOURNAL)

    files = list_session_folder(folder, name)

    assert [file.path for file in files if file.path.endswith(JOURNAL)] == []
    agents = {agent.id for agent in source.read_session(name).subagents}
    assert {agent.id for agent in read_session_folder(folder, name, AGENT_NAME).subagents} == agents
    assert set(Archive({"claude-code": (str(tmp_path / "none"),)}, home).recordings) == {name}


def test_unchanged_file_is_not_read_and_half_a_line_waits(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")
    growing = SessionFollower(source, source.latest_session())
    first = growing.refresh()
    read = growing.bytes_read
    file = next(tmp_path.glob("projects/*/*.jsonl"))

    assert growing.refresh() is first
    with file.open("ab") as out:
        out.write(b'{"type":"new-th')
    torn = growing.refresh()
    with file.open("ab") as out:
        out.write(b'ing"}\n')
    mended = growing.refresh()

    assert (len(torn.session.damage), torn.session.unknown_record_types) == (1, ())
    assert (len(mended.session.damage), mended.session.unknown_record_types) == (
        0,
        (("new-thing", 1),),
    )
    assert growing.bytes_read == read + len(b'{"type":"new-thing"}\n')


def test_a_file_that_was_rewritten_is_read_from_its_beginning(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")
    growing = SessionFollower(source, source.latest_session())
    growing.refresh()
    file = next(tmp_path.glob("projects/*/*.jsonl"))
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:8]))

    assert (
        growing.refresh().threads
        == SessionFollower(source, source.latest_session()).refresh().threads
    )


def test_a_long_session_is_kept_in_the_index_until_it_changes(tmp_path):
    folder = config_dir(tmp_path / "config", "2.1.325/multi-turn-tools")
    file = next(folder.glob("projects/*/*.jsonl"))
    padding = b'{"type":"mode","mode":"default","padding":"' + b"x" * 1_000_000 + b'"}\n'
    file.write_bytes(file.read_bytes() + padding * 5)
    source = Archive({"claude-code": (str(folder),)}, str(tmp_path / "home"))
    name = source.latest_session()

    assert load_cached_outline(source, name) is None
    listed = next(iter(source.iter_summaries()))
    assert load_cached_outline(source, name) == source.read_outline(name)
    assert replace(listed, modified_ms=0) == outline_session(source.read_session(name)).summary
    file.write_bytes(file.read_bytes() + b'{"type":"new-thing"}\n')
    assert (
        load_cached_outline(Archive({"claude-code": (str(folder),)}, str(tmp_path / "home")), name)
        is None
    )
