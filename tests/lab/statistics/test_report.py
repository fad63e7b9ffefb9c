"""Every sentence of an analysis points at its samples, and what samples say cannot act in Markdown."""

import re

from markdown_it import MarkdownIt

from flightlog.lab.statistics.analysis import analyze_questions
from flightlog.lab.statistics.groups import (
    ComparisonQuestion,
    Trial,
    TrialGroup,
    action_of_response,
)
from flightlog.lab.statistics.report import inline_code, render_analysis

HOSTILE = "`` `<script>alert(1)</script>` ![x](http://example.com/x) \x1b[31m\n# head\n[^1]: ha"


def question(n=8):
    def group(name, command):
        def trial(at):
            action = action_of_response(
                [{"type": "tool_use", "name": "Bash", "input": {"command": command}}], "tool_use"
            )
            return Trial(
                f"session_01/resamples/{name}/sample_{at:02d}.json",
                action,
                {"tests": at % 2 == 0},
                5,
                6 + at,
                0.01 * at,
            )

        return TrialGroup(
            name,
            tuple(trial(at) for at in range(1, n + 1)),
            command,
            failures=(f"session_01/resamples/{name}/sample_99_error.json",),
        )

    groups = group("request_005", "ls"), group("request_005_v01", HOSTILE)
    return ComparisonQuestion(
        "session_01 request 5", groups, recorded_action=groups[0].trials[0].action
    )


def test_every_sentence_points_at_its_samples_and_every_note_at_files():
    text = render_analysis("my-run", analyze_questions([question()]))

    body, _, notes = text.partition("## Samples")
    sentences = [
        line for line in body.splitlines() if line and not line.startswith(("#", "<!--", "      "))
    ]
    defined = dict(re.findall(r"^\[\^(\d+)\]: (.+)$", notes, re.MULTILINE))
    assert len(sentences) > 15
    for sentence in sentences:
        (number,) = re.findall(r"\.\[\^(\d+)\]$", sentence)
        assert re.findall(
            r"\(<session_01/resamples/request_005(?:_v01)?/sample_\d\d(?:_error)?\.json>\)",
            defined[number],
        )
    majority = next(line for line in sentences if "`Bash ls` in 8 of 8" in line)
    assert defined[re.findall(r"\[\^(\d+)\]$", majority)[0]].count("](<") == 8


def test_text_of_a_sample_is_inert_in_the_report():
    html = MarkdownIt("commonmark").render(
        render_analysis("my *run*", analyze_questions([question()]))
    )

    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert html.count("<h1>") == 1
    assert "<em>" not in html
    assert inline_code("a`b") == "``a`b``"
    assert inline_code("`b") == "`` `b ``"


def test_too_few_samples_are_reported_and_not_judged():
    text = render_analysis("my-run", analyze_questions([question(4)]))

    assert "too few samples to compare (4 and 4)" in text
    assert "finding" not in text.split("##", 1)[1]
