"""Parse with line and column; redacted copy.

Commands and prompts of a plan stay as they are, aside.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarint import ScalarInt

from flightlog.loop.events import Event
from flightlog.loop.plan import schema
from flightlog.loop.plan.expression import parse_expression
from flightlog.loop.plan.schema import Plan
from flightlog.model.addresses import is_safe
from flightlog.model.errors import Invalid, NotFound, read_yaml
from flightlog.model.text import suggest_name
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor

_BYTES_MAX = 8 << 20
_STRUCTS = tuple(kind for kind in vars(schema).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
Where = tuple[str | int, ...]
_WORDS = frozenset(
    {"error_message", "signature", "said", "why", "text", "rationale", "name", "value", "commands", "condition"}
    | {"session_name", "plan", "context", "missing"}
)


def load_plan(path: Path) -> tuple[Plan, bytes]:
    """Read and check the plan at `path`; return it with the bytes it was made of."""
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"no such plan: {path}", hint="write one to begin with: flightlog loop example") from error
    return parse_plan(data, str(path)), data


def parse_plan(data: bytes, name: str = "plan") -> Plan:
    """Make a plan of YAML text, or say what is wrong and where."""
    tree = _load_tree(data, name)
    try:
        plan = msgspec.convert(_to_plain_types(tree), Plan)
    except msgspec.ValidationError as error:
        raise _explain_error(str(error), tree, name) from error
    for where, what, hint in _find_problems(plan):
        raise Invalid(f"{name}{_line_and_column(tree, where)}: {what}", hint=hint)
    return plan


def hash_plan(data: bytes) -> str:
    """Name a plan by its bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def _load_tree(data: bytes, name: str) -> CommentedMap:
    if len(data) > _BYTES_MAX:
        raise Invalid(f"{name}: a plan has at most {_BYTES_MAX >> 20} MB", hint="split it into several")
    try:
        tree = read_yaml(data.decode("utf-8"), "rt")
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise Invalid(f"{name}{place}: {error.problem or 'not YAML'}", hint="correct it there") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"{name}: not YAML: {error}", hint="write it in UTF-8, without tabs or tags") from error
    if not isinstance(tree, CommentedMap):
        raise Invalid(f"{name}:1:1: a plan begins with `plan: NAME`", hint="flightlog loop example")
    return tree


def _to_plain_types(node: Any, key: str = "") -> Any:  # noqa: PLR0911 - one for each type
    """The same in plain types; an id written as 001 keeps its zeros."""
    if isinstance(node, dict):
        return {str(name): _to_plain_types(value, str(name)) for name, value in node.items()}
    if isinstance(node, list):
        return [_to_plain_types(value, key) for value in node]
    if (
        key in {"task_id", "dependencies", "review_points", "tasks"}
        and type(node) is not bool
        and isinstance(node, int)
    ):
        width = getattr(node, "_width", None) if isinstance(node, ScalarInt) else None
        return str(int(node)).zfill(width or 0)
    if isinstance(node, bool):
        # `command: true` means the program.
        return str(node).lower() if key in {"command", "verify"} else bool(node)
    if isinstance(node, ScalarInt):
        return int(node)
    if isinstance(node, float):
        return float(node)
    return str(node) if isinstance(node, str) or hasattr(node, "isoformat") else node


def _explain_error(message: str, tree: CommentedMap, name: str) -> Invalid:
    what, _, path = message.partition(" - at `")
    where = _split_path(path.rstrip("`"))
    unknown = re.search(r"unknown field `(.+?)`", what)
    if unknown:
        where = (*where, unknown[1])
        what = f"there is no `{unknown[1]}` here"
    return Invalid(f"{name}{_line_and_column(tree, where)}: {what}", hint=_nearest_key(unknown[1] if unknown else ""))


def _nearest_key(word: str) -> str:
    known = sorted({field for kind in _STRUCTS for field in kind.__struct_fields__})
    return suggest_name(word, known, "see every key: flightlog loop schema")


def _split_path(written: str) -> Where:
    """`$.tasks[0].run` as parts; `[...]` is some entry of a map, which is not told which."""
    found = re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", written)
    return tuple(name or int(number) for name, number in found)


def _line_and_column(tree: Any, where: Where) -> str:
    """The line and column of the last part of `where` that is in the text."""
    line = column = 0
    node = tree
    for part in where:
        try:
            if isinstance(node, CommentedMap):
                line, column = node.lc.key(part)
            elif isinstance(node, CommentedSeq):
                line, column = node.lc.item(part)
            node = node[part]
        except (KeyError, IndexError, TypeError):
            break
    return f":{line + 1}:{column + 1}"


def _find_problems(plan: Plan) -> Iterator[tuple[Where, str, str]]:
    """Everything wrong that types do not see, first things first."""
    if not plan.tasks:
        yield ("tasks",), "a plan has at least one task", "add one with task_id, name and run"
    ids = [task.task_id for task in plan.tasks]
    for at, task in enumerate(plan.tasks):
        here = ("tasks", at)
        if not is_safe(task.task_id):
            yield (*here, "task_id"), f"not a usable id: {task.task_id[:40]!r}", "letters, digits, '.', '_', '-'"
        if task.task_id in ids[:at]:
            yield (*here, "task_id"), f"two tasks are called {task.task_id}", "give one of them another id"
        if task.run.agent is not None and not (task.verify or task.output_artifacts):
            yield (*here, "run"), "an agent's word is not enough", "add `verify:` commands or `output_artifacts:`"
        yield from _unknown_tasks((*here, "dependencies"), task.dependencies, ids)
    yield from _unknown_tasks(("review_points",), plan.review_points, ids)
    for at, milestone in enumerate(plan.milestones):
        yield from _unknown_tasks(("milestones", at, "tasks"), milestone.tasks, ids)
    if cycle := _find_cycle(plan):
        at = ids.index(cycle[0])
        yield ("tasks", at, "dependencies"), f"tasks wait for each other: {' → '.join(cycle)}", "take one of these out"
    for at, condition in enumerate(plan.circuit_breaker.conditions):
        try:
            parse_expression(condition.when)
        except Invalid as error:
            yield ("circuit_breaker", "conditions", at, "when"), error.message, error.hint


def _unknown_tasks(where: Where, named: tuple[str, ...], ids: list[str]) -> Iterator[tuple[Where, str, str]]:
    for at, each in enumerate(named):
        if each not in ids:
            yield (*where, at), f"no task is called {each!r}", suggest_name(each, ids, f"one of: {', '.join(ids[:8])}")


def _find_cycle(plan: Plan) -> list[str]:
    """A way from a task back to itself, or nothing."""
    waits = {task.task_id: task.dependencies for task in plan.tasks}
    done: set[str] = set()
    for start in list(waits):
        trail: list[str] = []
        stack = [(start, iter(waits[start]))]
        while stack:
            name, others = stack[-1]
            if name not in trail:
                trail.append(name)
            step = next((other for other in others if other not in done), None)
            if step is None:
                done.add(name)
                stack.pop()
                trail.pop()
            elif step in trail:
                return [*trail[trail.index(step) :], step]
            elif step in waits:
                stack.append((step, iter(waits[step])))
    return []


def redact_event(event: Event, records: JsonRedactor) -> Event:
    """Return an event with its words redacted."""
    fields = msgspec.to_builtins(event)
    words = {name: value for name, value in fields.items() if name in _WORDS and value}
    clean = records.redact_value(words) if words else words
    return event if clean == words else msgspec.convert({**fields, **clean}, type(event))


def redact_plan(plan: Plan, redactor: Redactor) -> Plan:
    """Return the plan with every word a person may see redacted; `redactor` then knows all values in the plan."""
    redactor.redact_string(msgspec.json.encode(plan, enc_hook=str).decode())
    clean = redactor.redact_string
    replaced = msgspec.structs.replace
    tasks = tuple(
        replaced(
            task,
            name=clean(task.name),
            description=clean(task.description),
            acceptance_criteria=tuple(map(clean, task.acceptance_criteria)),
        )
        for task in plan.tasks
    )
    return replaced(
        plan,
        plan=clean(plan.plan),
        description=clean(plan.description),
        tasks=tasks,
        phases=tuple(replaced(each, name=clean(each.name)) for each in plan.phases),
        milestones=tuple(replaced(each, name=clean(each.name)) for each in plan.milestones),
        quality_gates=tuple(
            replaced(each, name=clean(each.name), metric=clean(each.metric)) for each in plan.quality_gates
        ),
    )
