"""Plans: read, checked, refused with the place and the nearest word."""

import contextlib
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.loop.events import AttemptEnded, Event, TaskEnded, TaskVerified
from flightlog.loop.plan.expression import evaluate_expression
from flightlog.loop.plan.expression import parse_expression as expression
from flightlog.loop.plan.load import (
    REDACTED_FIELDS,
    hash_plan,
    load_plan,
    parse_plan,
    redact_events,
)
from flightlog.loop.plan.schema import json_schema, order_tasks
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from support.cpu_time import measure_cpu

ROOT = Path(__file__).parents[3]
LEAST = b"plan: least\ntasks:\n  - {task_id: 001, name: first, run: {command: 'true'}}\n"


def read_refusal(text):
    with pytest.raises(Invalid) as error:
        parse_plan(text.encode(), "plan.yaml")
    return error.value


def test_minimal_plan_has_a_name_and_tasks():
    plan = parse_plan(LEAST)

    assert plan.tasks[0].task_id == "001", "an id keeps its zeros"
    assert plan.config.max_iterations == 300
    assert plan.config.human_intervention == "ask_first"


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("plan: x\ntasks:\n  - {task_id: a, name: b, rum: {command: x}}\n", ":3:27", "no `rum`", "`run`"),
        ("plan: x\ntasks:\n- {task_id: a, name: b, run: {command: x}, dependencies: [b]}\n", ":3:59", "no task", "a"),
        ("plan: x\ntasks:\n- {task_id: a, name: b, run: {}}\n", ":3:25", "one of command, agent, python", ""),
        ("plan: x\nconfig: {max_iterations: many}\ntasks: []\n", ":2:10", "`max_iterations`: expected a whole", ""),
        ("plan: x\ntasks:\n- {task_id: a, name: b, run: {command: x}, verify: x}\n", ":3:44", "expected a list", ""),
        ("plan: x\n  tasks: [\n", ":2:8", "not allowed", ""),
        ("- 1\n", ":1:1", "begins with `plan: NAME`", ""),
        ("plan: x\ntasks: []\n", ":2:1", "at least one task", ""),
        ("plan: x\ntasks:\n- {task_id: a, name: b, run: {agent: z, prompt: x}}\n", ":3:25", "nothing checks", "verify"),
        ("plan: x\ntasks:\n- {task_id: ../a, name: b, run: {command: x}}\n", ":3:4", "not a usable id", ""),
        ("plan: x\nplan: y\ntasks: []\n", ":2:1", "duplicate key", ""),
    ],
)  # fmt: skip
def test_error_names_its_location_and_the_nearest_known_word(text, place, message, hint):
    error = read_refusal(text)

    assert error.message.startswith(f"plan.yaml{place}: "), error.message
    assert message in error.message
    assert hint in error.hint


def test_a_cycle_is_refused_and_named():
    tasks = [{"task_id": task, "name": task, "run": {"command": "true"}, "dependencies": [other]}
             for task, other in (("a", "b"), ("b", "c"), ("c", "a"))]  # fmt: skip

    assert "a → b → c → a" in read_refusal(json.dumps({"plan": "x", "tasks": tasks})).message


def test_an_invalid_condition_is_refused_with_its_location():
    error = read_refusal(
        "plan: x\ncircuit_breaker: {conditions: [{when: 'error_rate >'}]}\n" + LEAST.decode()[12:]
    )

    assert error.message.startswith("plan.yaml:2:33: a condition ends too early")


def test_a_yaml_plan_of_5000_tasks_loads_in_a_second_of_work():
    task = (
        "  - task_id: {0:04}\n    name: Part {0}\n    phase: {1}\n    run:\n      agent: scripted\n"
    )
    task += "      prompt: Do part {0}.\n      arguments: [--allowedTools, Bash(git:*)]\n"
    task += "    verify:\n      - test -f {0}\n    acceptance_criteria: [It works]\n"
    text = "plan: x\ntasks:\n" + "".join(task.format(at, at // 500) for at in range(5000))

    with measure_cpu() as seconds:
        plan = parse_plan(text.encode())

    assert seconds[0] < 1
    assert [plan.tasks[at].task_id for at in (7, -1)] == ["0007", "4999"]
    assert plan.tasks[0].run.arguments == ("--allowedTools", "Bash(git:*)")


@pytest.mark.parametrize("escape", ["\\ud83d\\ude00", "\ufeff"])
def test_a_text_for_the_slow_parser_has_the_same_places(escape):
    error = read_refusal(f'plan: "{escape}"\nconfig: {{max_iterations: many}}\ntasks: []\n')

    assert error.message.startswith("plan.yaml:2:10: ")


def test_a_plan_that_is_not_there_says_how_to_get_one(tmp_path):
    with pytest.raises(NotFound, match="no such plan"):
        load_plan(tmp_path / "none.yaml")


def test_same_bytes_have_the_same_plan_hash():
    assert hash_plan(LEAST) == hash_plan(bytes(LEAST))
    assert hash_plan(LEAST) != hash_plan(LEAST + b"#")


def test_the_published_schema_is_that_of_the_code():
    assert json.loads((ROOT / "docs/reference/loop-plan.schema.json").read_text()) == json.loads(
        json.dumps(json_schema())
    )


def test_the_example_is_a_plan_and_its_order_follows_its_phases():
    plan, _ = load_plan(ROOT / "src/flightlog/loop/example/RALPH-LOOP-PLAN.yaml")

    assert [task.phase for task in order_tasks(plan)] == [1, 2, 3, 4, 5, 6, 7]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_plan_or_an_error_a_person_can_act_on(data):
    with contextlib.suppress(FlightlogError):  # anything else is a crash
        parse_plan(data)


@pytest.mark.parametrize(
    ("text", "names", "value"),
    [
        ("error_rate > 0.5", {"error_rate": 0.6}, 1.0),
        ("error_rate > 0.5", {"error_rate": 0.5}, 0.0),
        ("error_rate > 0.5", {}, None),
        ("a > 1 and b > 1", {"a": 0}, 0.0),
        ("a > 1 or b > 1", {"a": 2}, 1.0),
        ("a > 1 or b > 1", {"a": 0}, None),
        ("not (a > 1) and metrics.x * 2 + 1 >= 5", {"a": 0, "metrics.x": 2}, 1.0),
        ("1 / zero > 1", {"zero": 0}, None),
        ("2 - 1 - 1 == 0", {}, 1.0),
    ],
)
def test_conditions_are_evaluated_or_said_to_be_unknown(text, names, value):
    assert evaluate_expression(expression(text), names) == value


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "a; b", "a b", "(a", "a >", "", "x" * 2000, "(" * 100 + "1", "a = 1"],
)
def test_a_condition_can_do_nothing_but_compare(text):
    with pytest.raises(Invalid):
        expression(text)


# Text in events that flightlog makes or checks itself: ids, digests, file names it chose, words of
# a fixed set, names of the redacted plan; and the API's names of a message and a model.
OWN_TEXT = frozenset(
    {"session_id", "plan_digest", "project", "marker", "runner", "task", "effect_id", "diff"}
    | {"agent_session", "message_id", "model", "action", "alternatives", "risks", "signal"}
    | {"decision_type", "report_type", "error_type", "severity", "indicators", "from_state"}
    | {"question_id", "trigger", "options", "default_answer"}
    | {"snapshot", "commit", "counts", "allowed_tools"}
)


def holds_text(kind):
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return any(holds_text(field.type) for field in msgspec.structs.fields(kind))
    return kind in (str, Any) or any(holds_text(part) for part in get_args(kind))


def test_redacted_names_are_the_fields_of_events_with_foreign_text():
    fields = [field for kind in get_args(Event) for field in msgspec.structs.fields(kind)]
    with_text = {field.name for field in fields if holds_text(field.type)}

    assert with_text - OWN_TEXT == REDACTED_FIELDS
    assert with_text >= OWN_TEXT, "this list names only fields that exist"


@pytest.mark.parametrize(
    "event",
    [
        AttemptEnded("a", 1, "success", 1.0, last_message="SECRET"),
        TaskEnded("a", "failure", 1.0, reason="SECRET"),
        TaskVerified("a", 1, passed=False, missing_tools=("tool SECRET",)),
    ],
)
def test_foreign_text_of_an_event_is_redacted(event):
    secret = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    plain = msgspec.json.decode(msgspec.json.encode(event).replace(b"SECRET", secret.encode()))

    (clean,) = redact_events(
        [msgspec.convert(plain, type(event))], JsonRedactor(Redactor(bytes(32)))
    )

    assert secret.encode() not in msgspec.json.encode(clean)
