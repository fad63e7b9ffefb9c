import pytest

from flightlog.model.addresses import parse_address
from flightlog.model.errors import NotFound
from flightlog.views.transcript import RenderOptions, render_passage, render_session
from flightlog.views.transcript_formats import as_markdown, as_text
from support.golden import assert_golden
from support.recordings import CASES, archive


@pytest.mark.parametrize("case", CASES)
def test_every_recording_tells_its_golden_story(tmp_path, case):
    sessions = sorted(archive(tmp_path, case).iter_sessions(), key=lambda session: session.id)

    story = "\n".join(as_text(render_session(session, RenderOptions())) for session in sessions)

    assert_golden(f"stories/{case.replace('/', '-')}.txt", story)


def test_a_story_in_markdown_is_golden(tmp_path):
    session = archive(tmp_path, "2.1.325/odd-outputs").read_session("594c6bc1")

    lines = list(render_session(session, RenderOptions()))

    assert_golden("forms/odd-outputs.md", as_markdown(lines))


def test_an_address_opens_one_step_of_the_main_thread_or_of_a_subagent(tmp_path):
    session = archive(tmp_path, "2.1.325/subagent-foreground").read_session("7575a0bb")

    main = as_text(render_passage(session, parse_address("7575a0bb#1.2"), RenderOptions()))
    inner = as_text(
        render_passage(session, parse_address("7575a0bb@a18a8ad0#1.1"), RenderOptions())
    )

    assert main.startswith("#1.2  claude-opus-5-5")
    assert inner.startswith("@a18a8ad043c6ab8dd#1.1  claude-opus-5-5")
    assert "wc -l" in inner
    assert "wc -l" not in main


@pytest.mark.parametrize("address", ["7575a0bb#9", "7575a0bb#1.9", "7575a0bb@nobody#1"])
def test_an_address_that_leads_nowhere_says_what_there_is(tmp_path, address):
    session = archive(tmp_path, "2.1.325/subagent-foreground").read_session("7575a0bb")

    with pytest.raises(NotFound) as refusal:
        list(render_passage(session, parse_address(address), RenderOptions()))

    assert refusal.value.hint.startswith("flightlog session show")


def test_long_output_is_cut_with_the_command_that_shows_it_all(tmp_path):
    session = archive(tmp_path, "2.1.325/odd-outputs").read_session("594c6bc1")

    cut = as_text(render_session(session, RenderOptions()))
    full = as_text(render_session(session, RenderOptions(is_full=True)))

    assert (
        "more lines: flightlog session show '594c6bc1-d246-5547-b378-0a129fb1d46e#1.1' --full"
        in cut
    )
    assert "more lines" not in full
    assert len(full) > len(cut)


def test_a_subagents_address_tells_its_whole_thread(tmp_path):
    session = archive(tmp_path, "2.1.325/subagent-foreground").read_session("7575a0bb")

    story = as_text(render_passage(session, parse_address("7575a0bb@a18a8ad0"), RenderOptions()))

    assert story.startswith("@a18a8ad043c6ab8dd  ")
    assert "wc -l" in story
