"""What a session teaches, one sentence each, with the events that say so. No evidence, no sentence."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from flightlog.loop.look.account import Account, TaskAccount
from flightlog.loop.look.calibration import calibration
from flightlog.model.text import counted

_EVIDENCE_MAX = 8
_GAP_NOTABLE = 0.1


class Insight(Struct, frozen=True):
    """A sentence and its evidence: event ids as `logs` shows them."""

    about: str
    sentence: str
    events: tuple[str, ...]


def insights(whole: Account) -> list[Insight]:
    """Everything the events of a session support."""
    return [*_tasks(whole), *_errors(whole), *_people(whole), *_sureness(whole), *_spending(whole)]


def ids(numbers: list[int]) -> tuple[str, ...]:
    """Event numbers as ids."""
    return tuple(f"e{number}" for number in numbers[:_EVIDENCE_MAX])


def _tasks(whole: Account) -> Iterator[Insight]:
    done = {name: task for name, task in whole.tasks.items() if task.ended and task.ended[1] == "success"}
    first = [task for task in done.values() if not task.failures]
    if done:
        events = [task.ended[0] for task in done.values() if task.ended]
        share = f"{len(first)} of {len(done)} completed tasks were right at the first attempt"
        yield Insight("attempts", f"{share}.", ids(events))
    longest = max(done.items(), key=lambda item: _length(item[1]), default=None)
    whole_s = sum(_length(task) for task in done.values())
    if longest and len(done) > 1 and whole_s > 0:
        name, task = longest
        part = _length(task) / whole_s
        sentence = f"Task {name} took {_length(task):.1f} s, {part:.0%} of the time of all completed tasks."
        yield Insight("time", sentence, ids([task.started[0], task.ended[0]] if task.ended else []))
    for name, task in whole.tasks.items():
        if task.ended and task.ended[1] != "success":
            yield Insight(
                "left", f"Task {name} ended as {task.ended[1]}: {_short(task.ended[3])}", ids([task.ended[0]])
            )


def _errors(whole: Account) -> Iterator[Insight]:
    kinds = Counter(kind for task in whole.tasks.values() for _, kind, _ in task.failures)
    for kind, count in kinds.most_common(3):
        found = [seq for task in whole.tasks.values() for seq, each, _ in task.failures if each == kind]
        saved = sum(
            1 for task in whole.tasks.values() if _has(task, kind) and task.ended and task.ended[1] == "success"
        )
        hit = sum(1 for task in whole.tasks.values() if _has(task, kind))
        times = "once" if count == 1 else f"{count} times"
        yield Insight(
            "errors", f"An error of kind {kind} came {times}; {saved} of {hit} tasks it hit were completed.", ids(found)
        )
    wasted = sum(task.wasted_s for task in whole.tasks.values())
    if wasted > 0:
        found = [seq for task in whole.tasks.values() for seq, _, _ in task.failures]
        yield Insight("errors", f"Failed attempts took {wasted:.1f} s.", ids(found))
    diagnosed = [
        (seq, name) for name, task in whole.tasks.items() for seq, act, _ in task.remedies if act == "diagnose"
    ]
    for seq, name in diagnosed:
        yield Insight("errors", f"Task {name} failed the same way twice, so a diagnosis was made instead.", ids([seq]))
    for seq, condition, closed in whole.trips:
        end = "and closed again" if closed else "and did not close again"
        yield Insight("breaker", f"The breaker opened ({condition}) {end}.", ids([seq, closed] if closed else [seq]))


def _people(whole: Account) -> Iterator[Insight]:
    waiting = [at for at, _, _, by, _ in whole.questions if by == "timeout"]
    if waiting:
        sentence = (
            f"{len(waiting)} of {len(whole.questions)} questions got no answer in time, so the safe choice was made."
        )
        yield Insight("people", sentence, ids(waiting))
    answered = [at for at, _, _, by, _ in whole.questions if by == "person"]
    if answered:
        yield Insight(
            "people", f"A person answered {len(answered)} of {len(whole.questions)} questions.", ids(answered)
        )
    for seq, name, value, passed in whole.gates:
        if passed is None:
            yield Insight("gates", f"The gate «{name}» could not be evaluated: nobody reported its metric.", ids([seq]))
        elif not passed:
            yield Insight("gates", f"The gate «{name}» failed at {value:g}.", ids([seq]))


def _sureness(whole: Account) -> Iterator[Insight]:
    told = calibration(whole.pairs)
    if told.gap is None or told.decisions < 3:
        return
    mean = sum(pair.confidence for pair in whole.pairs) / len(whole.pairs)
    right = sum(pair.right for pair in whole.pairs) / len(whole.pairs)
    how = "about right" if told.gap < _GAP_NOTABLE else "too sure" if mean > right else "not sure enough"
    sentence = f"Confidence was {how}: {mean:.0%} on average, {right:.0%} right, Brier score {told.brier:.3f}."
    yield Insight("confidence", sentence, ids([pair.event for pair in whole.pairs]))


def _spending(whole: Account) -> Iterator[Insight]:
    totals = whole.state.totals
    if not totals.calls:
        return
    dear = max(whole.tasks.items(), key=lambda item: item[1].usd, default=None)
    cost = "an amount that is not known" if totals.unpriced else f"{totals.usd:.4f} USD"
    where = f"; most of it in task {dear[0]}" if dear and dear[1].usd and len(whole.tasks) > 1 else ""
    events = [task.started[0] for task in whole.tasks.values() if task.calls and task.started]
    yield Insight("cost", f"{counted(totals.calls, 'model call')} cost {cost}{where}.", ids(events))


def _length(task: TaskAccount) -> float:
    return task.ended[2] if task.ended else 0.0


def _has(task: TaskAccount, kind: str) -> bool:
    return any(each == kind for _, each, _ in task.failures)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return (line[:160] + "…" if len(line) > 160 else line).rstrip(".") + "."
