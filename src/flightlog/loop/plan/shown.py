"""A plan with clean words: what is decided, journaled and shown. Commands and prompts stay as they are, aside."""

import msgspec

from flightlog.loop.plan.schema import Plan
from flightlog.privacy.redact import Redactor


def shown_plan(plan: Plan, redactor: Redactor) -> Plan:
    """Return the plan with every word a person may see redacted."""
    clean = redactor.text
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
