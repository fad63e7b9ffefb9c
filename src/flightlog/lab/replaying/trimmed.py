"""The trajectory of a branch: only what is new in it; what came before is the source's, and referred to. Pure."""

import re

from msgspec import UNSET
from msgspec.structs import replace

from flightlog.lab.events import BranchCreated
from flightlog.views.atif.document import AtifStep, FinalMetrics, Trajectory
from flightlog.views.atif.emit import MAIN, TrajectoryBundle
from flightlog.views.atif.steps import number_steps

_MARK = re.compile(r"\[flightlog branch point [0-9a-f-]+\]\n?")


def trim_to_branch(bundle: TrajectoryBundle, branch: BranchCreated) -> TrajectoryBundle:
    """Leave out what was copied from the source, and the mark that stood for it."""
    main = bundle.documents[MAIN]
    steps = list(main.steps)
    if branch.cursor:
        # It was told everything anew: what stands before its first own response is the source's.
        first = next((at for at, each in enumerate(steps) if each.source == "agent" and not each.is_copied_context), 0)
        steps = steps[first:]
    kept = [step for each in steps if (step := _own_step(each)) is not None]
    if not any(step.source == "agent" for step in kept):
        kept = kept or main.steps[-1:]
    said = f"Goes on from turn {branch.turn} of {branch.source_run}/{branch.source_dir}; the steps before it are there."
    extra = main.extra if isinstance(main.extra, dict) else {}
    origin = {"source_run": branch.source_run, "source_session": branch.source_dir, "source_turn": branch.turn}
    sums = main.final_metrics
    made = replace(
        main,
        steps=number_steps(kept),
        notes=said,
        final_metrics=replace(sums, total_steps=len(kept)) if isinstance(sums, FinalMetrics) else UNSET,
        extra=extra | {"replay": origin},
    )
    return replace(bundle, documents=bundle.documents | {MAIN: made} | _other_documents(bundle))


def _other_documents(bundle: TrajectoryBundle) -> dict[str, Trajectory]:
    return {name: document for name, document in bundle.documents.items() if name != MAIN}


def _own_step(step: AtifStep) -> AtifStep | None:
    if step.is_copied_context is True:
        return None
    if step.source != "user" or not isinstance(step.message, str):
        return step
    said = _MARK.sub("", step.message)
    return replace(step, message=said) if said else None
