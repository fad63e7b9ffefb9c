"""A session as it happens tells every word once, whatever was read before."""

import pytest

from flightlog.agents.claude_code.source import entries
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.views.transcript import TranscriptLineKind
from flightlog.views.transcript_formats import LINES_MAX, FollowFormatter, first_lines
from support.recordings import ROOT


def feed_lines(path, times=1):
    feed = FollowFormatter()
    items = [
        item for _ in range(times) for item in entries(SessionFile(str(path), path.stem, 0, 0))
    ]
    return [
        line for item in items if not isinstance(item, Damage) for line in feed.render_lines(item)
    ]


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("2.1.325/*/transcripts/*.jsonl")), ids=lambda path: path.parts[-3]
)
def test_reading_twice_prints_each_line_once(path):
    assert feed_lines(path, times=2) == feed_lines(path)


def test_prompts_calls_and_results_are_shown_in_their_order():
    (path,) = ROOT.glob("2.1.325/thinking/transcripts/*.jsonl")

    lines = [(line.kind, line.text) for line in feed_lines(path)]

    assert [kind for kind, _ in lines] == [
        TranscriptLineKind.TURN,
        TranscriptLineKind.PROMPT,
        TranscriptLineKind.STEP,
        TranscriptLineKind.THINKING,
        TranscriptLineKind.TEXT,
        TranscriptLineKind.THINKING,
        TranscriptLineKind.CALL,
        TranscriptLineKind.RESULT,
        TranscriptLineKind.STEP,
        TranscriptLineKind.THINKING,
        TranscriptLineKind.THINKING,
        TranscriptLineKind.TEXT,
    ]
    assert lines[6][1].startswith("Bash echo 42")


def test_an_image_and_a_failure_are_marked_as_such():
    (odd,) = ROOT.glob("2.1.325/odd-outputs/transcripts/*.jsonl")
    (denied,) = ROOT.glob("2.1.325/permission-denied/transcripts/*.jsonl")

    assert "1 image" in [
        line.text for line in feed_lines(odd) if line.kind is TranscriptLineKind.RESULT
    ]
    assert [line.kind for line in feed_lines(denied)].count(TranscriptLineKind.FAILURE) == 2


def test_compaction_and_unknown_records_are_notes():
    (path,) = ROOT.glob("2.1.325/compaction-auto/transcripts/*.jsonl")

    assert any(
        line.text.startswith("compaction: ")
        for line in feed_lines(path)
        if line.kind is TranscriptLineKind.NOTE
    )


def test_long_text_is_cut():
    assert first_lines("\n".join("x" * 30)).endswith(f"… {30 - LINES_MAX} more lines")
    assert first_lines("a\nb") == "a\nb"
