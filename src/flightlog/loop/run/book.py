"""A session's book: its journal, what it adds up to, and the pages that show it while it happens.

Words from outside are redacted here, before the first write. The two logs grow by one write
an event; the other pages are written at task ends and otherwise at most once a second, and
never take more than a tenth of the time, however large a plan is.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from flightlog.loop import events as e
from flightlog.loop.core.fold import apply
from flightlog.loop.core.state import State
from flightlog.loop.core.times import seconds, stamp
from flightlog.loop.layout import pages
from flightlog.loop.layout.decisions import Decisions
from flightlog.loop.layout.errors import Errors
from flightlog.loop.layout.log import entry
from flightlog.loop.layout.yaml import dump
from flightlog.loop.plan.schema import Plan
from flightlog.loop.plan.shown import shown_event
from flightlog.model.damage import Damage
from flightlog.model.pages import Page, Tier
from flightlog.model.runtime import Runtime
from flightlog.privacy.records import Records
from flightlog.privacy.redact import Redactor
from flightlog.store.growing import Growing
from flightlog.store.journal import Journal, Record, Unrecognised
from flightlog.store.pages import publish

JOURNAL = "journal.jsonl"
CHECKPOINT = "checkpoint.json"
PAGES_EVERY_S = 1.0
_SHARE_MAX = 10.0
_DURABLE = (
    e.SessionStarted | e.RunnerTook | e.UsageNoted | e.AttemptEnded | e.Verified | e.TaskEnded | e.BreakerMoved
) | (e.QuestionAnswered | e.Paused | e.Stopped | e.SessionEnded | e.Resumed)
_AT_ONCE = e.QuestionAsked | e.QuestionAnswered | e.Paused | e.Stopped | e.SessionEnded | e.Resumed


class Checkpoint(Struct):
    """What the events up to `offset` add up to; a cache, checked by the event that stands there."""

    offset: int
    last: str
    state: State


class Book:
    """The book of the session in `directory`, open for writing."""

    def __init__(  # noqa: PLR0913 - one parameter per thing it works with
        self,
        directory: Path,
        plan: Plan,
        runtime: Runtime,
        redactor: Redactor,
        *,
        allowed: Callable[[], None] = lambda: None,
        tell: Callable[[e.Event], None] = lambda _: None,
    ) -> None:
        """Read what is there; `plan` has clean words. `allowed` raises once another process writes here."""
        self._directory = directory
        self._plan = plan
        self._now = runtime.clock.now_s
        self._redactor = redactor
        self._allowed = allowed
        self._tell = tell
        self._clean = Records(redactor)
        self._journal = _open_journal(directory, runtime, allowed)
        self._names = {task.task_id: task.name for task in plan.tasks}
        self._log: Growing | None = None
        self._history: Growing | None = None
        self._published = self._cost = 0.0
        self._last: tuple[str, int] = ("", 0)
        self._known = redactor.known.growth
        self._fold(self._records())

    def redact_again(self) -> None:
        """Remove from journal and logs what was written before it was recognized as private.

        A session is one document: a value that is recognized once is replaced everywhere in it.
        """
        if self._redactor.known.growth > self._known:
            self.close()
            self._journal.rewrite(lambda event: shown_event(event, self._clean))
            self._fold(self._records())

    def append(self, event: e.Event) -> None:
        """Write one event down, take it into account and show it."""
        cleaned = shown_event(event, self._clean)
        record = self._journal.append(cleaned, durable=isinstance(cleaned, _DURABLE))
        line = self._taken(record)
        if self._log is None or self._history is None:
            self._open_logs([line])
        else:
            self._log.add([line])
            if isinstance(event, e.DecisionMade) or self._decisions.settled:
                self._history.add(_encoded(self._decisions.fresh()), _encoded(self._decisions.pending))
        if isinstance(event, _AT_ONCE):
            self.publish()
        elif isinstance(event, e.TaskEnded) or self._now() - self._published >= PAGES_EVERY_S:
            self.show()
        self._tell(cleaned)

    def show(self) -> None:
        """Write the pages that changed, unless that would take more than a tenth of the time."""
        if self._now() - self._published >= self._cost * _SHARE_MAX:
            self.publish()

    def publish(self) -> None:
        """Write the pages that changed, unless somebody else holds the session now."""
        self._allowed()
        began = self._now()
        state, plan = self.state, self._plan
        texts = {
            "session-metadata.yaml": dump(pages.metadata(state, plan, began)),
            "progress-tracking.yaml": dump(pages.progress(state, plan)),
            "errors-and-retries.json": _json(self._errors.page(state.session_id)),
            "question.yaml": _question(state),
            CHECKPOINT: json.encode(Checkpoint(self._last[1], self._last[0], state)).decode(),
        }
        if state.features or not self._shown:
            texts["feature-inventory.json"] = _json(pages.inventory(state))
        texts["feature-docs-generated.json"] = _json(pages.docs(state))
        texts["quality-metrics.json"] = _json(pages.quality(state, plan))
        changed = {name: text for name, text in texts.items() if self._shown.get(name) != text}
        publish(self._directory, [Page(name, Tier.PRIVATE, text) for name, text in changed.items()], durable=False)
        self._shown.update(changed)
        self._published = self._now()
        self._cost = max(self._published - began, 0.0)

    def close(self) -> None:
        """Let go of the files."""
        for each in (self._log, self._history):
            if each is not None:
                each.close()

    def _fold(self, records: Iterable[Record[e.Event]]) -> None:
        self.state = State()
        self.damage: list[Damage] = []
        self._decisions = Decisions(self._names)
        self._errors = Errors()
        self._shown: dict[str, str] = {}
        entries = [self._taken(record) for record in records]
        if entries:
            self._open_logs(entries)

    def _records(self) -> Iterator[Record[e.Event]]:
        for item in self._journal.read():
            if isinstance(item, Damage):
                self.damage.append(item)
            elif not isinstance(item, Unrecognised):
                yield item

    def _taken(self, record: Record[e.Event]) -> bytes:
        at = seconds(record.ts)
        apply(self.state, at, record.event)
        self._decisions.take(record.seq, at, record.event)
        self._errors.take(record.seq, at, record.event)
        self._last = (record.id, record.offset)
        return json.encode(entry(record.seq, at, record.event, self._names))

    def _open_logs(self, entries: list[bytes]) -> None:
        head = json.encode({"session_id": self.state.session_id})
        head = b"{\n  " + head[1:]
        self._log = Growing(self._directory / "execution-log.json", head, "events", entries, [])
        settled, pending = _encoded(self._decisions.fresh()), _encoded(self._decisions.pending)
        self._history = Growing(self._directory / "decision-history.json", head, "decisions", settled, pending)


def _open_journal(directory: Path, runtime: Runtime, allowed: Callable[[], None]) -> Journal[e.Event]:
    """Open the journal of the session in `directory`."""
    path = directory / JOURNAL
    return Journal(
        path,
        e.Event,
        now=lambda: stamp(runtime.clock.now_s()) or "",
        new_id=runtime.new_id,
        allowed=allowed,
    )


def _encoded(items: list[dict[str, Any]]) -> list[bytes]:
    return [json.encode(each) for each in items]


def _json(value: dict[str, Any]) -> str:
    return json.format(json.encode(value), indent=2).decode() + "\n"


def _question(state: State) -> str:
    """The page on which a question can be answered: write the answer there and save."""
    if state.question is None:
        return "# No question is open.\n"
    asked = state.question.asked
    told = {
        "question": asked.question,
        "text": asked.text,
        "options": list(asked.options),
        "without_an_answer": f"{asked.safe} at {stamp(state.question.at + asked.timeout_s)}",
        "answer": "",
    }
    return dump(told)
