"""Quality gates and milestones: looked at when what they wait for is done.

A gate whose metric nobody reported is not evaluated, and that blocks: a missing tool is no pass.
"""

from flightlog.loop.core.state import State
from flightlog.loop.core.told import measured
from flightlog.loop.events import GateChecked, MilestoneReached
from flightlog.loop.plan.expression import COMPARE
from flightlog.loop.plan.schema import Gate, Plan

_OVER = frozenset({"completed", "failed", "skipped", "deferred"})


def gate_events(state: State, plan: Plan) -> list[GateChecked]:
    """Look at each gate whose phase is over and whose answer would be another than before."""
    found = []
    for gate in plan.quality_gates:
        if not phase_over(state, plan, gate.phase):
            continue
        value = measured(state, gate.metric)
        passed = None if value is None else bool(COMPARE[gate.operator](value, gate.threshold))
        before = state.gates.get(gate.name)
        if before is not None and before.passed and gate.phase is not None:
            continue  # what began behind an open gate is not called back
        if before is None or (before.value, before.passed) != (value, passed):
            found.append(GateChecked(gate.name, value, passed))
    return found


def blocking(state: State, plan: Plan, phase: int | None) -> Gate | None:
    """The gate that keeps tasks of `phase` from beginning, or the session (None) from being completed."""
    for gate in plan.quality_gates:
        if phase is not None and (gate.phase is None or gate.phase >= phase):
            continue
        told = state.gates.get(gate.name)
        if told is None or not (told.passed or told.accepted):
            return gate
    return None


def milestone_events(state: State, plan: Plan) -> list[MilestoneReached]:
    """Milestones reached and not yet told."""
    found = []
    for each in plan.milestones:
        wanted = each.tasks or [task.task_id for task in plan.tasks if each.phase in (None, task.phase)]
        if each.name not in state.milestones and all(state.task(name).status == "completed" for name in wanted):
            found.append(MilestoneReached(each.name))
    return found


def phase_over(state: State, plan: Plan, phase: int | None) -> bool:
    """Whether every task up to `phase` has come to an end; None is the whole plan."""
    return all(state.task(task.task_id).status in _OVER for task in plan.tasks if phase is None or task.phase <= phase)
