"""Each thing the linter finds, by one change to a sound document; and what the public validator says of it."""

import json
from pathlib import Path

import pytest

from flightlog.views.atif.findings import RULES, Severity
from flightlog.views.atif.lint import is_sound, is_trajectory, lint_trajectory
from support.atif_documents import DROP, call, embed_subagent, metrics, replace_value, result, sound
from support.judges import HARBORS, validate_files

NAN = float("nan")
PICTURE = [{"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}}]
BYTES = "iVBORw0KGgo" + "A" * 300
BOUNDARY = {"context_management": {"type": "compaction", "boundary": "replace"}}

# name of the case: (rule, document); the name begins with A where Harbor's validator accepts the document.
CASES = {
    "A version missing": ("version", replace_value(sound(), "schema_version", DROP)),
    "A session missing in 1.6": ("missing", replace_value(sound(), "session_id", DROP)),
    "A 1.6 with an id of its own": ("newer-feature", sound(trajectory_id="x")),
    "A 1.6 with a count of calls": (
        "newer-feature",
        replace_value(sound(), "steps.1.llm_call_count", 1),
    ),
    "A 1.6 with data on a call": (
        "newer-feature",
        replace_value(sound(), "steps.1.tool_calls.0.extra", {"a": 1}),
    ),
    "A 1.4 with definitions": ("newer-feature", sound("1.4")),
    "A 1.5 with parts": (
        "newer-feature",
        replace_value(sound("1.5"), "steps.0.message", [{"type": "text", "text": "a"}]),
    ),
    "A 1.7 with sound": (
        "newer-feature",
        replace_value(
            sound("1.7"),
            "steps.0.message",
            [{"type": "audio", "source": {"media_type": "audio/wav", "path": "https://x/a.wav"}}],
        ),
    ),
    "A step id as text": ("type", replace_value(sound(), "steps.1.step_id", "2")),
    "A step id as a fraction": ("type", replace_value(sound(), "steps.1.step_id", 2.0)),
    "A cost as text": ("type", replace_value(sound(), "steps.1.metrics.cost_usd", "0.01")),
    "A date alone": ("vague-time", replace_value(sound(), "steps.1.timestamp", "2026-11-02")),
    "A time without a zone": (
        "vague-time",
        replace_value(sound(), "steps.1.timestamp", "2026-11-02T12:00:01"),
    ),
    "A time backwards": (
        "time-backwards",
        replace_value(sound(), "steps.2.timestamp", "2026-11-02T11:00:00Z"),
    ),
    "A empty list for a message": ("empty-message", replace_value(sound(), "steps.0.message", [])),
    "A call twice in a step": (
        "repeated-call",
        replace_value(
            replace_value(sound(), "steps.1.tool_calls", [call("c1"), call("c1")]),
            "steps.1.observation.results",
            [result("c1")],
        ),
    ),
    "A call again in a later step": (
        "repeated-call",
        replace_value(
            replace_value(sound(), "steps.2.tool_calls", [call("c1")]),
            "steps.2.observation",
            {"results": [result("c1")]},
        ),
    ),
    "A two results for a call": (
        "repeated-result",
        replace_value(
            sound(), "steps.1.observation.results", [result("c1"), result("c1"), result("c2")]
        ),
    ),
    "A empty id": (
        "empty-id",
        replace_value(
            replace_value(sound(), "steps.1.tool_calls", [call(""), call("c2")]),
            "steps.1.observation.results",
            [result(""), result("c2")],
        ),
    ),
    "A call without a result": (
        "unanswered-call",
        replace_value(sound(), "steps.1.observation.results", [result("c1")]),
    ),
    "A tokens below zero": (
        "negative",
        replace_value(sound(), "steps.1.metrics.completion_tokens", -1),
    ),
    "A more cached than read": (
        "cached-above-prompt",
        replace_value(sound(), "steps.1.metrics.cached_tokens", 101),
    ),
    "A cost not a number": (
        "not-a-number",
        replace_value(sound(), "steps.1.metrics.cost_usd", NAN),
    ),
    "A cost below zero": ("negative", replace_value(sound(), "steps.1.metrics.cost_usd", -0.01)),
    "A total of steps wrong": (
        "step-count",
        replace_value(sound(), "final_metrics.total_steps", 4),
    ),
    "A total too small": (
        "totals",
        replace_value(sound(), "final_metrics.total_prompt_tokens", 199),
    ),
    "A total too large": (
        "totals",
        replace_value(sound(), "final_metrics.total_completion_tokens", 21),
    ),
    "A total cost no sum": (
        "total-cost",
        replace_value(sound(), "final_metrics.total_cost_usd", 0.05),
    ),
    "A subagent's file missing": (
        "missing-file",
        replace_value(
            sound(),
            "steps.1.observation.results.0.subagent_trajectory_ref",
            [{"session_id": "s", "trajectory_path": "gone.json"}],
        ),
    ),
    "A continuation missing": ("missing-file", sound(continued_trajectory_ref="gone.json")),
    "A id leads nowhere": (
        "dangling-id",
        replace_value(
            sound("1.7"),
            "steps.1.observation.results.0.subagent_trajectory_ref",
            [{"trajectory_id": "gone"}],
        ),
    ),
    "A embedded and never named": (
        "unreferenced",
        replace_value(
            embed_subagent(), "steps.1.observation.results.0.subagent_trajectory_ref", DROP
        ),
    ),
    "A embedded under the parent's id": ("repeated-id", embed_subagent(trajectory_id="sub")),
    "A probabilities not as many": (
        "lengths",
        replace_value(sound(), "steps.1.metrics.logprobs", [-0.1]),
    ),
    "A token ids not as many": (
        "lengths",
        replace_value(sound(), "steps.1.metrics.completion_token_ids", [1, 2]),
    ),
    "A prompt's token ids not as many": (
        "lengths",
        replace_value(sound(), "steps.1.metrics.prompt_token_ids", [1]),
    ),
    "A definition of another form": (
        "tool-definition",
        replace_value(sound(), "agent.tool_definitions", [{"do": "x"}]),
    ),
    "A tool that is not defined": (
        "undefined-tool",
        replace_value(sound(), "steps.1.tool_calls.0.function_name", "Other"),
    ),
    "A agent speaks first": (
        "agent-first",
        replace_value(
            sound(), "steps.0", {"step_id": 1, "source": "agent", "message": "", "metrics": None}
        ),
    ),
    "A half a character": ("half-character", replace_value(sound(), "steps.0.message", "x\ud83d")),
    "A picture missing in an embedded subagent": (
        "missing-file",
        replace_value(embed_subagent(), "subagent_trajectories.0.steps.0.message", PICTURE),
    ),
    "A observation on a user step": (
        "observed-by-user",
        replace_value(sound(), "steps.0.observation", {"results": [{"content": "x"}]}),
    ),
    "A boundary of no known kind": (
        "boundary",
        replace_value(
            replace_value(sound(), "steps.0.source", "system"),
            "steps.0.extra",
            {"context_management": {"type": "magic", "boundary": "replace"}},
        ),
    ),
    "A boundary on a user step": ("boundary", replace_value(sound(), "steps.0.extra", BOUNDARY)),
    "A text twice": (
        "doubled-text",
        replace_value(
            sound(),
            "steps.1.observation.results.0.content",
            "one line of output\n\n[stdout]\none line of output",
        ),
    ),
    "A block as JSON": (
        "block-as-text",
        replace_value(
            sound(), "steps.1.observation.results.0.content", '{"type": "text", "text": "a"}'
        ),
    ),
    "A picture as text": (
        "picture-as-text",
        replace_value(sound(), "steps.1.observation.results.0.content", BYTES),
    ),
    "A made up by the client": (
        "synthetic",
        replace_value(sound(), "steps.1.model_name", "<synthetic>"),
    ),
    "A path that leaves": (
        "outside",
        replace_value(
            sound(),
            "steps.1.observation.results.0.subagent_trajectory_ref",
            [{"session_id": "s", "trajectory_path": "../beside.json"}],
        ),
    ),
    "A reference without a session in 1.6": (
        "unlinked",
        replace_value(
            sound(),
            "steps.1.observation.results.0.subagent_trajectory_ref",
            [{"trajectory_path": "https://x/a"}],
        ),
    ),
    "R calls as an object": ("type", replace_value(sound(), "steps.2.tool_calls", {})),
    "R a mark of copies as text": (
        "type",
        replace_value(sound(), "steps.2.is_copied_context", "perhaps"),
    ),
    "R call id as a number": (
        "type",
        replace_value(sound(), "steps.1.tool_calls.0.tool_call_id", 1),
    ),
    "R version as a number": ("version", sound(schema_version=1.6)),
    "R no such version": ("version", sound("9.9")),
    "R unknown field": ("unknown-field", sound(mood="good")),
    "R agent without a version": ("missing", replace_value(sound(), "agent.version", DROP)),
    "R message null": ("missing", replace_value(sound(), "steps.0.message", None)),
    "R no steps": ("step-order", sound(steps=[])),
    "R a gap": ("step-order", replace_value(sound(), "steps.1.step_id", 3)),
    "R metrics on a user step": (
        "agent-only",
        replace_value(sound(), "steps.0.metrics", metrics()),
    ),
    "R calls on a user step": ("agent-only", replace_value(sound(), "steps.0.tool_calls", [])),
    "R result of a call elsewhere": (
        "unknown-call",
        replace_value(sound(), "steps.2.observation", {"results": [result("c1")]}),
    ),
    "R arguments as text": ("type", replace_value(sound(), "steps.1.tool_calls.0.arguments", "ls")),
    "R no such time": ("time", replace_value(sound(), "steps.0.timestamp", "yesterday")),
    "R no such source": ("value", replace_value(sound(), "steps.0.source", "tool")),
    "R no model called, yet tokens": (
        "deterministic",
        replace_value(sound("1.7"), "steps.2.llm_call_count", 0),
    ),
    "R reference by session alone": (
        "unlinked",
        replace_value(
            sound("1.7"),
            "steps.1.observation.results.0.subagent_trajectory_ref",
            [{"session_id": "s"}],
        ),
    ),
    "R two embedded of one id": (
        "repeated-id",
        embed_subagent(
            subagent_trajectories=[
                sound("1.7", trajectory_id="sub"),
                sound("1.7", trajectory_id="sub"),
            ]
        ),
    ),
    "R embedded without an id": ("missing", embed_subagent(subagent_trajectories=[sound("1.7")])),
    "R picture of a type": (
        "value",
        replace_value(
            sound(),
            "steps.0.message",
            [
                {
                    "type": "image",
                    "source": {"media_type": "image/svg+xml", "path": "https://x/a.svg"},
                }
            ],
        ),
    ),
    "R text part without text": (
        "missing",
        replace_value(sound(), "steps.0.message", [{"type": "text"}]),
    ),
    "R picture missing": ("missing-file", replace_value(sound(), "steps.0.message", PICTURE)),
}


# What a change brings with it besides: a figure is part of a total, a missing thing is missed elsewhere.
SIDES = {
    "A step id as text": {"step-order"},
    "A cost as text": {"total-cost"},
    "A tokens below zero": {"totals"},
    "A more cached than read": {"totals"},
    "A cost below zero": {"total-cost"},
    "R no steps": {"step-count"},
    "R call id as a number": {"unknown-call"},
    "R version as a number": {"type"},
    "R metrics on a user step": {"totals", "total-cost"},
    "R embedded without an id": {"dangling-id"},
}


def nowhere(path):
    return False


def beside(path):
    return path == "../beside.json"


def rules(document, exists=nowhere):
    return {finding.rule for finding in lint_trajectory(json.dumps(document).encode(), exists)}


@pytest.mark.parametrize("version", ["1.5", "1.6", "1.7", "1.8"])
def test_nothing_is_wrong_with_a_sound_document(version):
    assert rules(sound(version)) == set()
    assert rules(embed_subagent()) == set()


@pytest.mark.parametrize("case", CASES)
def test_one_change_is_one_finding(case):
    rule, document = CASES[case]
    broken_rules = rules(document, beside if case == "A path that leaves" else nowhere)

    assert broken_rules == {rule, *SIDES.get(case, ())}


def test_every_rule_is_shown_by_a_case():
    assert {rule for rule, _ in CASES.values()} | {"not-json"} == set(RULES)


def test_the_reference_lists_every_rule_as_it_is():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "trajectory-lint.md").read_text()
    rows = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| `")]

    assert rows == [[f"`{rule}`", severity.value, text] for rule, (severity, text) in RULES.items()]


def test_the_public_validator_accepts_what_the_names_of_the_cases_say(tmp_path):
    """The reason for a linter of our own: what it finds, others let pass."""
    (tmp_path.parent / "beside.json").write_text("{}")
    paths = {}
    for number, (name, (_, document)) in enumerate(CASES.items()):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document))
        paths[str(path)] = name

    errors_by_file = validate_files(
        HARBORS[0], [*map(tmp_path.joinpath, [f"{number}.json" for number in range(len(paths))])]
    )

    assert {paths[path]: bool(errors) for path, errors in errors_by_file.items()} == {
        name: name.startswith("R ") for name in CASES
    }


def test_a_file_that_is_no_json_says_so():
    (finding,) = lint_trajectory(b"{", nowhere)

    assert finding.rule == "not-json"
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b'{"steps": [1, {"tool_calls": [2]}, {"observation": 3}], "agent": []}']
)
def test_the_linter_goes_on_with_any_document(body):
    assert not is_sound(lint_trajectory(body, nowhere))


def test_steps_put_back_after_a_compaction_may_be_older():
    document = replace_value(
        sound(), "steps.0", {**sound()["steps"][0], "source": "system", "extra": BOUNDARY}
    )
    document["steps"].insert(
        1, {"step_id": 2, "source": "user", "message": "", "timestamp": "2026-11-02T11:00:00Z"}
    )
    document["steps"][2]["step_id"], document["steps"][3]["step_id"] = 3, 4
    document["final_metrics"]["total_steps"] = 4

    assert rules(document) == set()


def test_a_call_shown_as_unanswered_is_no_finding():
    document = replace_value(sound(), "steps.1.observation.results", [result("c1")])
    document["steps"][1]["extra"] = {"unanswered": ["c2"]}

    assert rules(document) == set()


def test_warnings_alone_leave_a_document_sound():
    assert is_sound(lint_trajectory(json.dumps(CASES["A time backwards"][1]).encode(), nowhere))
    assert not is_sound(
        lint_trajectory(json.dumps(CASES["A tokens below zero"][1]).encode(), nowhere)
    )


def test_a_tool_of_the_models_own_side_counts_as_defined():
    own = {"type": "web_search_20250305", "name": "web_search"}
    document = replace_value(sound(), "agent.tool_definitions", [own])

    assert rules(document) == {"undefined-tool"}
    assert rules(replace_value(document, "steps.1.tool_calls", [])) == {"unknown-call"}


def test_other_json_is_no_trajectory():
    assert is_trajectory(sound())
    assert is_trajectory({"agent": {}, "steps": []})
    assert not is_trajectory({"schema_version": "2"})
    assert not is_trajectory([1])
