"""Retention of a project's loop sessions, carried out by the one engine."""

from msgspec import Struct

from flightlog.app.loop_look import root
from flightlog.loop.look.retention import POLICY, items, summary
from flightlog.model.retention import Deed, Move, Outcome
from flightlog.model.runtime import Runtime
from flightlog.store.files import contained_in_project
from flightlog.store.retention import carry_out
from flightlog.views.retention import plan


class Retained(Struct, frozen=True):
    """What is planned, what was done, and what waits for `--yes`."""

    planned: tuple[Move, ...]
    waiting: tuple[Move, ...]
    outcome: Outcome | None = None

    def lines(self) -> list[str]:
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


def retain(runtime: Runtime, *, dry_run: bool, delete: bool) -> Retained:
    """Archive what is old; delete raw logs that are older, if `delete` says so."""
    top = contained_in_project(runtime, root(runtime))
    moves = plan(POLICY, items(top), runtime.clock.now_ms())
    ready = tuple(move for move in moves if delete or move.deed is not Deed.DELETE)
    waiting = tuple(move for move in moves if move not in ready)
    if dry_run:
        return Retained(ready, waiting)
    return Retained(ready, waiting, carry_out(top, ready, lambda name, told, before: summary(top, name, told, before)))
