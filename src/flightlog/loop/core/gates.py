"""Quality gates and milestones: looked at when what they wait for is done.

A gate whose metric nobody reported is not evaluated, and that blocks: a missing tool is no pass.
"""

from flightlog.loop.core.state import LoopState
from flightlog.loop.core.told import metric_value
from flightlog.loop.events import GateChecked, MilestoneReached
from flightlog.loop.plan.expression import COMPARE
from flightlog.loop.plan.schema import GateConfig, Plan

_OVER = frozenset({"completed", "failed", "skipped", "deferred"})


def gate_events(state: LoopState, plan: Plan) -> list[GateChecked]:
    """Look at each gate whose phase is over and whose answer would be another than before."""
    found = []
    for gate in plan.quality_gates:
        if not is_phase_over(state, plan, gate.phase):
            continue
        value = metric_value(state, gate.metric)
        passed = None if value is None else bool(COMPARE[gate.operator](value, gate.threshold))
        before = state.gates.get(gate.name)
        if before is not None and before.passed and gate.phase is not None:
            continue  # what began behind an open gate is not called back
        if before is None or (before.value, before.passed) != (value, passed):
            found.append(GateChecked(gate.name, value, passed))
    return found


def find_blocking_gate(state: LoopState, plan: Plan, phase: int | None) -> GateConfig | None:
    """The gate that keeps tasks of `phase` from beginning, or the session (None) from being completed."""
    for gate in plan.quality_gates:
        if phase is not None and (gate.phase is None or gate.phase >= phase):
            continue
        told = state.gates.get(gate.name)
        if told is None or not (told.passed or told.accepted):
            return gate
    return None


def milestone_events(state: LoopState, plan: Plan) -> list[MilestoneReached]:
    """Milestones reached and not yet told."""
    found = []
    for each in plan.milestones:
        wanted = each.tasks or [task.task_id for task in plan.tasks if each.phase in (None, task.phase)]
        if each.name not in state.milestones and all(state.task_state(name).status == "completed" for name in wanted):
            found.append(MilestoneReached(each.name))
    return found


def is_phase_over(state: LoopState, plan: Plan, phase: int | None) -> bool:
    """Whether every task up to `phase` has come to an end; None is the whole plan."""
    return all(
        state.task_state(task.task_id).status in _OVER for task in plan.tasks if phase is None or task.phase <= phase
    )
