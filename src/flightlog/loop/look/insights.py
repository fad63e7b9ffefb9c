"""What a session teaches, one sentence each, with the events that say so. No evidence, no sentence."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from flightlog.loop.look.account import LoopAccount, TaskHistory
from flightlog.loop.look.calibration import measure_calibration
from flightlog.model.text import pluralize

_EVIDENCE_MAX = 8
_GAP_NOTABLE = 0.1


class Insight(Struct, frozen=True):
    """A sentence and its evidence: event ids as `logs` shows them."""

    about: str
    sentence: str
    events: tuple[str, ...]


def find_insights(whole: LoopAccount) -> list[Insight]:
    """Everything the events of a session support."""
    return [
        *_task_insights(whole),
        *_error_insights(whole),
        *_people_insights(whole),
        *_confidence_insights(whole),
        *_cost_insights(whole),
    ]


def event_ids(numbers: list[int]) -> tuple[str, ...]:
    """Event numbers as ids."""
    return tuple(f"e{number}" for number in numbers[:_EVIDENCE_MAX])


def _task_insights(whole: LoopAccount) -> Iterator[Insight]:
    done = {name: task for name, task in whole.tasks.items() if task.ended and task.ended[1] == "success"}
    first = [task for task in done.values() if not task.failures]
    if done:
        events = [task.ended[0] for task in done.values() if task.ended]
        share = f"{len(first)} of {len(done)} completed tasks were right at the first attempt"
        yield Insight("attempts", f"{share}.", event_ids(events))
    longest = max(done.items(), key=lambda item: _task_seconds(item[1]), default=None)
    whole_s = sum(_task_seconds(task) for task in done.values())
    if longest and len(done) > 1 and whole_s > 0:
        name, task = longest
        part = _task_seconds(task) / whole_s
        sentence = f"Task {name} took {_task_seconds(task):.1f} s, {part:.0%} of the time of all completed tasks."
        yield Insight("time", sentence, event_ids([task.started[0], task.ended[0]] if task.ended else []))
    for name, task in whole.tasks.items():
        if task.ended and task.ended[1] != "success":
            yield Insight(
                "left",
                f"Task {name} ended as {task.ended[1]}: {_shorten_sentence(task.ended[3])}",
                event_ids([task.ended[0]]),
            )


def _error_insights(whole: LoopAccount) -> Iterator[Insight]:
    kinds = Counter(kind for task in whole.tasks.values() for _, kind, _ in task.failures)
    for kind, count in kinds.most_common(3):
        found = [seq for task in whole.tasks.values() for seq, each, _ in task.failures if each == kind]
        saved = sum(
            1 for task in whole.tasks.values() if _has_failure(task, kind) and task.ended and task.ended[1] == "success"
        )
        hit = sum(1 for task in whole.tasks.values() if _has_failure(task, kind))
        times = "once" if count == 1 else f"{count} times"
        yield Insight(
            "errors",
            f"An error of kind {kind} came {times}; {saved} of {hit} tasks it hit were completed.",
            event_ids(found),
        )
    wasted = sum(task.wasted_s for task in whole.tasks.values())
    if wasted > 0:
        found = [seq for task in whole.tasks.values() for seq, _, _ in task.failures]
        yield Insight("errors", f"Failed attempts took {wasted:.1f} s.", event_ids(found))
    diagnosed = [
        (seq, name) for name, task in whole.tasks.items() for seq, act, _ in task.remedies if act == "diagnose"
    ]
    for seq, name in diagnosed:
        yield Insight(
            "errors", f"Task {name} failed the same way twice, so a diagnosis was made instead.", event_ids([seq])
        )
    for seq, condition, closed in whole.trips:
        end = "and closed again" if closed else "and did not close again"
        yield Insight(
            "breaker", f"The breaker opened ({condition}) {end}.", event_ids([seq, closed] if closed else [seq])
        )


def _people_insights(whole: LoopAccount) -> Iterator[Insight]:
    waiting = [at for at, _, _, by, _ in whole.questions if by == "timeout"]
    if waiting:
        sentence = (
            f"{len(waiting)} of {len(whole.questions)} questions got no answer in time, so the safe choice was made."
        )
        yield Insight("people", sentence, event_ids(waiting))
    answered = [at for at, _, _, by, _ in whole.questions if by == "person"]
    if answered:
        yield Insight(
            "people", f"A person answered {len(answered)} of {len(whole.questions)} questions.", event_ids(answered)
        )
    for seq, name, value, passed in whole.gates:
        if passed is None:
            yield Insight(
                "gates", f"The gate «{name}» could not be evaluated: nobody reported its metric.", event_ids([seq])
            )
        elif not passed:
            yield Insight("gates", f"The gate «{name}» failed at {value:g}.", event_ids([seq]))


def _confidence_insights(whole: LoopAccount) -> Iterator[Insight]:
    told = measure_calibration(whole.pairs)
    if told.gap is None or told.decisions < 3:
        return
    mean = sum(pair.confidence for pair in whole.pairs) / len(whole.pairs)
    right = sum(pair.right for pair in whole.pairs) / len(whole.pairs)
    how = "about right" if told.gap < _GAP_NOTABLE else "too sure" if mean > right else "not sure enough"
    sentence = f"Confidence was {how}: {mean:.0%} on average, {right:.0%} right, Brier score {told.brier:.3f}."
    yield Insight("confidence", sentence, event_ids([pair.event for pair in whole.pairs]))


def _cost_insights(whole: LoopAccount) -> Iterator[Insight]:
    totals = whole.state.totals
    if not totals.calls:
        return
    dear = max(whole.tasks.items(), key=lambda item: item[1].usd, default=None)
    cost = "an amount that is not known" if totals.unpriced else f"{totals.usd:.4f} USD"
    where = f"; most of it in task {dear[0]}" if dear and dear[1].usd and len(whole.tasks) > 1 else ""
    events = [task.started[0] for task in whole.tasks.values() if task.calls and task.started]
    yield Insight("cost", f"{pluralize(totals.calls, 'model call')} cost {cost}{where}.", event_ids(events))


def _task_seconds(task: TaskHistory) -> float:
    return task.ended[2] if task.ended else 0.0


def _has_failure(task: TaskHistory, kind: str) -> bool:
    return any(each == kind for _, each, _ in task.failures)


def _shorten_sentence(text: str) -> str:
    line = " ".join(text.split())
    return (line[:160] + "…" if len(line) > 160 else line).rstrip(".") + "."
