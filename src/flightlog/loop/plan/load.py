"""Parse plans with line and column in errors, and redact plans and events."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import yaml

from flightlog.loop.events import Event
from flightlog.loop.plan.expression import parse_expression
from flightlog.loop.plan.schema import Plan, json_schema
from flightlog.model.addresses import is_safe
from flightlog.model.errors import (
    UNREADABLE,
    YAML_BYTES_MAX,
    Invalid,
    NotFound,
    check_depth,
    check_json_size,
    iter_yaml_events,
    read_yaml,
)
from flightlog.model.text import describe_type_error, suggest_name
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor

# Keys whose values are text as written: the id 001, and `command: true`, which means the program.
_TEXT_KEYS = {"task_id", "dependencies", "review_points", "tasks", "command", "verify", "arguments"}
Where = tuple[str | int, ...]
# Fields of events that can hold text of a task, an agent, a person or a plan. They are redacted
# before an event is written.
REDACTED_FIELDS = frozenset(
    "session_name plan context metrics names rationale name value condition reason text "
    "error_message signature last_message commands missing_tools question answer changes "
    "artifacts denied_tools".split()
)


def load_plan(path: Path) -> tuple[Plan, bytes]:
    """Read and check the plan at `path`; return it with its bytes."""
    data = read_named_file(path, "plan", "write an example: flightlog loop example")
    return parse_plan(data, str(path)), data


def read_named_file(path: Path, kind: str, hint: str) -> bytes:
    """Return the bytes of a file that a person named; `hint` is for one that does not exist."""
    try:
        with path.open("rb") as file:
            data = file.read(YAML_BYTES_MAX + 1)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"no such {kind}: {path}", hint=hint) from error
    if len(data) > YAML_BYTES_MAX:
        raise Invalid(f"{path}: more than {YAML_BYTES_MAX >> 20} MB", hint="split it")
    return data


def parse_plan(data: bytes, name: str = "plan") -> Plan:
    """Parse a plan; raise `Invalid` with what is wrong and where."""
    if (quick := _parse_json_plan(data)) is not None:
        return quick
    try:
        text = data.decode("utf-8")
        tree = read_yaml(text, _TEXT_KEYS)
    except yaml.MarkedYAMLError as error:
        at = f":{mark.line + 1}:{mark.column + 1}" if (mark := error.problem_mark) else ""
        what = error.problem or "not YAML"
        raise Invalid(f"{name}{at}: {what}", hint="correct it there") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        hint = "write it in UTF-8, without tags, or split it"
        raise Invalid(f"{name}: not YAML: {error}", hint=hint) from error
    if not isinstance(tree, dict):
        raise Invalid(f"{name}:1:1: a plan begins with `plan: NAME`", hint="flightlog loop example")
    try:
        plan = msgspec.convert(tree, Plan)
    except msgspec.ValidationError as error:
        raise _explain_error(str(error), text, name) from error
    for where, what, hint in _find_problems(plan):
        raise Invalid(f"{name}{_line_and_column(text, where)}: {what}", hint=hint)
    return plan


def _parse_json_plan(data: bytes) -> Plan | None:
    """Return a sound plan that is written as JSON, or None: the YAML parser finds the lines of errors.

    JSON is not quite YAML, whose parser rejects an emoji that JSON escapes as two halves.
    """
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        check_json_size(data)
        document = msgspec.json.decode(data)
        check_depth(document)
        plan = msgspec.convert(document, Plan)
    except (*UNREADABLE, ValueError):
        return None
    return None if any(_find_problems(plan)) else plan


def hash_plan(data: bytes) -> str:
    """Return the digest of a plan's bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def _explain_error(message: str, text: str, name: str) -> Invalid:
    what, _, path = describe_type_error(message).partition(" - at `")
    where = _split_path(path.rstrip("`"))
    unknown = re.search(r"unknown field `(.+?)`", what)
    key = unknown[1] if unknown else ""
    if unknown:
        where = (*where, key)
        what = f"there is no `{key}` here"
    elif where:
        what = f"`{where[-1]}`: {what}"
    kinds = [kind["properties"] for kind in json_schema()["$defs"].values()]
    # A type that has the key is not the one that lacks it.
    keys = sorted({field for fields in kinds if key not in fields for field in fields})
    hint = suggest_name(key, keys, "see every key: flightlog loop schema")
    return Invalid(f"{name}{_line_and_column(text, where)}: {what}", hint=hint)


def _split_path(path: str) -> Where:
    """Split `$.tasks[0].run` into parts; `[...]`, any entry of a map, is dropped."""
    parts = re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", path)
    return tuple(name or int(number) for name, number in parts)


def _line_and_column(text: str, where: Where) -> str:
    """Return line and column of the last part of `where` that exists in the text."""
    events = iter_yaml_events(text)
    event = next(events)
    mark = event.start_mark
    for part in where:
        is_map, at, depth = type(event).__name__ == "MappingStartEvent", 0, 0
        if not is_map and type(event).__name__ != "SequenceStartEvent":
            break
        while depth >= 0:
            item = next(events)
            if depth == 0 and (item.value == part if is_map and at % 2 == 0 else at == part):
                break
            kind = type(item).__name__
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            at += depth == 0
        if depth < 0:
            break
        mark, event = item.start_mark, next(events) if is_map else item
    return f":{mark.line + 1}:{mark.column + 1}"


def _find_problems(  # noqa: C901 - one branch for each rule
    plan: Plan,
) -> Iterator[tuple[Where, str, str]]:
    """Yield location, problem and hint for everything that the types do not check."""
    if not plan.tasks:
        yield ("tasks",), "a plan has at least one task", "add one with task_id, name and run"
    ids = [task.task_id for task in plan.tasks]
    before: set[str] = set()
    known = frozenset(ids)
    for at, task in enumerate(plan.tasks):
        here = ("tasks", at)
        if not is_safe(task.task_id):
            what = f"not a usable id: {task.task_id[:40]!r}"
            yield (*here, "task_id"), what, "letters, digits, '.', '_', '-'"
        if task.task_id in before:
            what = f"two tasks are called {task.task_id}"
            yield (*here, "task_id"), what, "give one of them another id"
        before.add(task.task_id)
        if task.error_handling.fallback_strategy and task.run.agent is None:
            what = "a fallback strategy is a text for an agent, and this is a command"
            yield (*here, "error_handling"), what, "name another command: `delegate:`"
        if task.run.agent is not None and not task.has_verifier:
            what, hint = "nothing checks the agent's work", "add `verify:` or `output_artifacts:`"
            yield (*here, "run"), what, hint
        yield from _unknown_tasks((*here, "dependencies"), task.dependencies, ids, known)
    yield from _unknown_tasks(("review_points",), plan.review_points, ids, known)
    for at, milestone in enumerate(plan.milestones):
        yield from _unknown_tasks(("milestones", at, "tasks"), milestone.tasks, ids, known)
    if cycle := _find_cycle(plan):
        what = f"tasks wait for each other: {' → '.join(cycle)}"
        yield ("tasks", ids.index(cycle[0]), "dependencies"), what, "remove one of these"
    for at, condition in enumerate(plan.circuit_breaker.conditions):
        try:
            parse_expression(condition.when)
        except Invalid as error:
            yield ("circuit_breaker", "conditions", at, "when"), error.message, error.hint


def _unknown_tasks(
    where: Where, names: tuple[str, ...], ids: list[str], known: frozenset[str]
) -> Iterator[tuple[Where, str, str]]:
    for at, name in enumerate(names):
        if name not in known:
            hint = suggest_name(name, ids, f"one of: {', '.join(ids[:8])}")
            yield (*where, at), f"no task is called {name!r}", hint


def _find_cycle(plan: Plan) -> list[str]:
    """Return a path of dependencies from a task back to itself, or []."""
    waits = {task.task_id: task.dependencies for task in plan.tasks}
    done: set[str] = set()
    for start in list(waits):
        trail: dict[str, None] = {}  # in order; a chain of thousands is looked up at each step
        stack = [(start, iter(waits[start]))]
        while stack:
            name, others = stack[-1]
            trail[name] = None
            step = next((other for other in others if other not in done), None)
            if step is None:
                done.add(name)
                stack.pop()
                trail.pop(name)
            elif step in trail:
                names = list(trail)
                return [*names[names.index(step) :], step]
            elif step in waits:
                stack.append((step, iter(waits[step])))
    return []


def redact_events(events: Sequence[Event], records: JsonRedactor) -> list[Event]:
    """Return events with their text redacted; one search takes as long for a hundred as for one."""
    fields = [msgspec.to_builtins(event) for event in events]
    texts = tuple(
        {name: value for name, value in item.items() if name in REDACTED_FIELDS and value}
        for item in fields
    )
    cleaned = records.redact_value(texts) if any(texts) else texts
    return [
        event if clean == text else msgspec.convert({**item, **clean}, type(event))
        for event, item, text, clean in zip(events, fields, texts, cleaned, strict=True)
    ]


def redact_plan(plan: Plan, redactor: Redactor) -> Plan:
    """Return the plan with names and descriptions redacted; commands and prompts stay.

    As a side effect `redactor` learns the private values in the whole plan.
    """
    redactor.redact_string(msgspec.json.encode(plan, enc_hook=str).decode())
    clean = redactor.redact_string
    replace = msgspec.structs.replace
    tasks = tuple(
        replace(
            task,
            name=clean(task.name),
            description=clean(task.description),
            acceptance_criteria=tuple(map(clean, task.acceptance_criteria)),
        )
        for task in plan.tasks
    )
    gates = [
        replace(gate, name=clean(gate.name), metric=clean(gate.metric))
        for gate in plan.quality_gates
    ]
    return replace(
        plan,
        plan=clean(plan.plan),
        description=clean(plan.description),
        tasks=tasks,
        phases=tuple(replace(phase, name=clean(phase.name)) for phase in plan.phases),
        milestones=tuple(replace(item, name=clean(item.name)) for item in plan.milestones),
        quality_gates=tuple(gates),
    )
