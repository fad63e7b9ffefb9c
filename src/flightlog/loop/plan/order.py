"""The order in which a plan's tasks would be done if all went well."""

from flightlog.loop.plan.schema import Plan, Task


def order_tasks(plan: Plan) -> list[Task]:
    """By dependencies, then priority, then as written; phases behind a gate come after it."""
    done: dict[str, Task] = {}
    left = list(plan.tasks)
    gated = sorted({gate.phase for gate in plan.quality_gates if gate.phase is not None})
    while left:
        behind = [phase for phase in gated if any(task.phase <= phase for task in left)]
        ready = [
            task
            for task in left
            if all(name in done for name in task.dependencies) and not any(task.phase > phase for phase in behind)
        ]
        best = max(ready or left, key=lambda task: task.priority_score)
        done[best.task_id] = best
        left.remove(best)
    return list(done.values())
