"""A plan and events with clean words: what is decided, journaled and shown.

Commands and prompts of a plan stay as they are, aside.
"""

import msgspec

from flightlog.loop.events import Event
from flightlog.loop.plan.schema import Plan
from flightlog.privacy.records import JsonRedactor
from flightlog.privacy.redact import Redactor

_WORDS = frozenset(
    {"error_message", "signature", "said", "why", "text", "rationale", "name", "value", "commands", "condition"}
    | {"session_name", "plan", "context", "missing"}
)


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
