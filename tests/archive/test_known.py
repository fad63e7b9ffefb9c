"""Copies are known by the sessions they were copied from, also where the client notes no requests."""

import os

import pytest

from flightlog.archive.archive import Archive
from support.recordings import archive
from support.transcripts import SESSION, assistant, user, write

FORK = "22222222-2222-4222-8222-222222222222"


def sessions(root):
    block = {"type": "text", "text": "hi"}
    first = [user("go", 1), assistant("m1", 2, block)]
    write(root, SESSION, *first, assistant("m3", 9, block))
    write(
        root,
        FORK,
        user("other", 3, uuid="f0", parentUuid=None),
        *first,
        assistant("m2", 5, block, uuid="f5"),
    )
    return Archive({"claude-code": (str(root),)})


def test_only_the_younger_session_has_copies(tmp_path):
    recorded = sessions(tmp_path)

    assert recorded.thread_contexts(SESSION)[""].copied_message_ids == frozenset()
    assert recorded.thread_contexts(FORK)[""].copied_message_ids == {"m1"}


def test_the_most_expensive_prompt_of_a_fork_is_one_of_its_own(tmp_path):
    many = {"output_tokens": 9_000}
    copied = [user("go", 1), assistant("m1", 2, tokens=many)]
    write(tmp_path, SESSION, *copied)
    write(tmp_path, FORK, *copied, user("more", 4), assistant("m2", 5, tokens={"output_tokens": 5}))
    archive = Archive({"claude-code": (str(tmp_path),)}, str(tmp_path / "home"))

    for _ in range(2):  # the second time from the index
        summaries = {summary.session: summary for summary in archive.iter_summaries()}
        prompts = [summaries[name].most_expensive_prompt for name in (SESSION, FORK)]
        assert [prompt.address for prompt in prompts] == [f"{SESSION}#1", f"{FORK}#2"]
        assert prompts[1].cost_usd == pytest.approx(summaries[FORK].cost_usd)


def test_the_latest_session_is_that_of_the_newest_record(tmp_path):
    write(tmp_path, SESSION, user("old", 1))
    newest = write(tmp_path, FORK, user("new", 50))
    os.utime(newest, (1, 1))

    assert Archive({"claude-code": (str(tmp_path),)}).latest_session() == FORK


def test_a_session_of_another_project_is_not_looked_at(tmp_path):
    block = {"type": "text", "text": "hi"}
    write(tmp_path, SESSION, user("go", 1), assistant("m1", 2, block))
    write(tmp_path, FORK, user("go", 3), assistant("m1", 4, block), project="bank")

    assert (
        Archive({"claude-code": (str(tmp_path),)}).thread_contexts(FORK)[""].copied_message_ids
        == frozenset()
    )


def test_a_recorded_fork_is_known_by_its_requests_and_by_its_original(tmp_path):
    recorded = archive(tmp_path, "2.1.325/forked-session")

    assert len(recorded.thread_contexts("cceeb00c")[""].copied_message_ids) == 9
    assert recorded.thread_contexts("2123f2df")[""].copied_message_ids == frozenset()


def test_a_session_without_responses_or_main_thread_has_no_copies(tmp_path):
    write(tmp_path / "a", SESSION, user("go", 1))
    warm = archive(tmp_path / "b", "2.0.76/subagent")

    assert (
        Archive({"claude-code": (str(tmp_path / "a"),)})
        .thread_contexts(SESSION)[""]
        .copied_message_ids
        == frozenset()
    )
    assert "" not in warm.thread_contexts("da11e55c")
