"""What an analyst says is kept beside what was counted, and only what fits."""

from flightlog.retro.analyst import decode_reply, extend_findings
from flightlog.retro.events import AnalystFinding, AnalystRan
from flightlog.retro.state import AnalysisMeta, Pattern, PatternEvidence, RetroAnalysis

FOUND = Pattern("topic-1", "soil, compost", "theme", 0.5, evidence=(PatternEvidence("s#1", "x"),))
ANALYSIS = RetroAnalysis(
    1, AnalysisMeta("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", 1), (FOUND,)
)


def block(text):
    return f"Words.\n```json\n{text}\n```\n"


def test_only_known_findings_are_named_and_only_shown_places_are_evidence():
    reply = block(
        '{"names": {"topic-1": "The \\u001b[2Jgarden", "topic-9": "?"}, '
        '"new": [{"label": "You ask twice", "evidence": ["s#1", "made-up#1"]}, {"label": " "}]}'
    )

    assert decode_reply(reply, ANALYSIS) == AnalystRan(
        {"topic-1": "The garden"}, (AnalystFinding("You ask twice", "", ("s#1",)),)
    )


def test_reply_without_json_has_no_findings():
    for text in (
        "plain words",
        block("{"),
        block('{"names": ["x"]}'),
        block('{"new": [{"label": 3}]}'),
    ):
        assert decode_reply(text, ANALYSIS) == AnalystRan()


def test_last_reply_wins_and_counted_findings_stay():
    findings = extend_findings(
        [FOUND],
        [
            AnalystRan({"topic-1": "a"}),
            AnalystRan({"topic-1": "b"}, (AnalystFinding("new", "why", ("s#1",)),)),
        ],
    )

    assert (findings[0].label, findings[0].title) == ("soil, compost", "b")
    assert (findings[1].kind, findings[1].label, findings[1].evidence) == (
        "analyst",
        "new",
        (PatternEvidence("s#1"),),
    )
