"""Retention of a project's loop sessions, carried out by the one engine."""

from msgspec import Struct

from flightlog.app.loop_look import loops_dir
from flightlog.loop.look.retention import POLICY, list_retention_items, summarize_quarter
from flightlog.model.retention import RetentionAction, RetentionMove, RetentionResult
from flightlog.model.runtime import Runtime
from flightlog.store.files import contained_in_project
from flightlog.store.retention import carry_out_moves
from flightlog.views.retention import plan_retention


class RetentionReport(Struct, frozen=True):
    """What is planned, what was done, and what waits for `--yes`."""

    planned: tuple[RetentionMove, ...]
    waiting: tuple[RetentionMove, ...]
    outcome: RetentionResult | None = None

    def render_lines(self) -> list[str]:
        """The same as text."""
        done = {move.item.name for move in self.outcome.done} if self.outcome else set()
        word = "planned" if self.outcome is None else "done"
        shown = [
            f"{word if self.outcome is None or move.item.name in done else 'left'}\t{move.deed.value}\t"
            f"{move.item.name}\t{move.age_days} days"
            for move in self.planned
        ]
        shown += [
            f"waits for --yes\t{move.deed.value}\t{move.item.name}\t{move.age_days} days" for move in self.waiting
        ]
        return shown or ["nothing is old enough"]


def apply_retention(runtime: Runtime, *, dry_run: bool, delete: bool) -> RetentionReport:
    """Archive what is old; delete raw logs that are older, if `delete` says so."""
    top = contained_in_project(runtime, loops_dir(runtime))
    moves = plan_retention(POLICY, list_retention_items(top), runtime.clock.now_ms())
    ready = tuple(move for move in moves if delete or move.deed is not RetentionAction.DELETE)
    waiting = tuple(move for move in moves if move not in ready)
    if dry_run:
        return RetentionReport(ready, waiting)
    return RetentionReport(
        ready,
        waiting,
        carry_out_moves(top, ready, lambda name, told, before: summarize_quarter(top, name, told, before)),
    )
