"""A session's journal, its folded state, and the output files that show it.

Foreign text is redacted here, before the first write. The two logs grow by one write per event.
The other files are written at task ends and otherwise at most once a second, and never take more
than a tenth of the time, however large a plan is.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import json

from flightlog.loop import events, layout
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.directories import CHECKPOINT, JOURNAL, STATE_VERSION, Checkpoint
from flightlog.loop.layout import dump_yaml
from flightlog.loop.logs import DecisionLog, ErrorLog, build_log_entry
from flightlog.loop.plan.load import redact_events
from flightlog.loop.plan.schema import Plan
from flightlog.loop.state import LoopState
from flightlog.model.errors import Damage
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.runtime import Runtime
from flightlog.model.text import format_utc_time, parse_utc_time
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.journal import Journal, JournalRecord, UnknownEvent
from flightlog.store.output_files import AppendableJsonFile, write_output_files

PAGES_EVERY_S = 1.0
_COST_FACTOR = 10.0  # time between two writes of the output files, in durations of a write
# Events that cannot be reconstructed from the work tree after a power cut are synced to disk.
_DURABLE = (
    events.SessionEvent
    | (events.UsageRecorded | events.AttemptEnded | events.TaskVerified | events.TaskEnded)
    | (events.BreakerChanged | events.QuestionAnswered)
)
# A person waits for these, so the output files are written at once.
_URGENT = (events.QuestionAsked | events.QuestionAnswered) | (
    events.LoopPaused | events.LoopStopped | events.LoopEnded | events.LoopResumed
)


class LoopStore:
    """Journal, state and output files of the session in `directory`, open for writing."""

    def __init__(  # noqa: PLR0913 - one parameter per thing it works with
        self,
        directory: Path,
        plan: Plan,
        runtime: Runtime,
        redactor: Redactor,
        *,
        allowed: Callable[[], None] = lambda: None,
        tell: Callable[[events.Event], None] = lambda _: None,
    ) -> None:
        """Fold the journal; `plan` is redacted, `allowed` raises once another runner took over."""
        self._directory = directory
        self._plan = plan
        self._now = runtime.clock.now_s
        self._redactor = redactor
        self._allowed = allowed
        self._tell = tell
        self._clean = JsonRedactor(redactor)
        self._journal: Journal[events.Event] = Journal(
            directory / JOURNAL,
            events.Event,
            now=lambda: format_utc_time(runtime.clock.now_s()) or "",
            new_id=runtime.new_id,
            allowed=allowed,
        )
        self._names = {task.task_id: task.name for task in plan.tasks}
        self._log: AppendableJsonFile | None = None
        self._history: AppendableJsonFile | None = None
        self._published = self._cost = 0.0
        self._last: tuple[str, int] = ("", 0)
        self._known = redactor.known.growth
        self._fold_records(self._iter_records())

    def redact_again(self) -> None:
        """Redact in journal and logs the values that were recognized after they were written."""
        if self._redactor.known.growth > self._known:
            self.close()
            self._journal.rewrite_events(lambda batch: redact_events(batch, self._clean))
            self._fold_records(self._iter_records())

    def append(self, event: events.Event) -> None:
        """Append an event to the journal, apply it and update the output files."""
        (cleaned,) = redact_events([event], self._clean)
        record = self._journal.append(cleaned, durable=isinstance(cleaned, _DURABLE))
        line = self._apply_record(record)
        if self._log is None or self._history is None:
            self._open_logs([line])
        else:
            self._log.add_entries([line])
            if isinstance(event, events.DecisionMade) or self._decisions.settled:
                settled = _encode_items(self._decisions.drain_entries())
                self._history.add_entries(settled, _encode_items(self._decisions.pending))
        if isinstance(event, _URGENT):
            self.write_output_files()
        elif isinstance(event, events.TaskEnded) or self._now() - self._published >= PAGES_EVERY_S:
            self.refresh_output()
        self._tell(cleaned)

    def refresh_output(self) -> None:
        """Write the output files that changed, unless that takes more than a tenth of the time."""
        if self._now() - self._published >= self._cost * _COST_FACTOR:
            self.write_output_files()

    def write_output_files(self) -> None:
        """Write the output files that changed, unless another runner took over."""
        self._allowed()
        began = self._now()
        state, plan = self.state, self._plan
        last, offset = self._last
        checkpoint = Checkpoint(offset, last, state, len(self.damage), STATE_VERSION)
        texts = {
            "session-metadata.yaml": dump_yaml(layout.build_metadata(state, plan, began)),
            "progress-tracking.yaml": dump_yaml(layout.build_progress(state, plan)),
            "errors-and-retries.json": _format_json(self._errors.build_page(state.session_id)),
            "question.yaml": _question_page(state),
            CHECKPOINT: json.encode(checkpoint).decode(),
        }
        if state.features or not self._shown:
            texts["feature-inventory.json"] = _format_json(layout.feature_inventory(state))
        texts["feature-docs-generated.json"] = _format_json(layout.feature_docs(state))
        texts["quality-metrics.json"] = _format_json(layout.quality_metrics(state, plan))
        changed = {name: text for name, text in texts.items() if self._shown.get(name) != text}
        output = [OutputFile(name, Tier.PRIVATE, text) for name, text in changed.items()]
        write_output_files(self._directory, output, durable=False)
        self._shown.update(changed)
        self._published = self._now()
        self._cost = max(self._published - began, 0.0)

    def close(self) -> None:
        """Close the logs."""
        for log in (self._log, self._history):
            if log is not None:
                log.close()

    def _fold_records(self, records: Iterable[JournalRecord[events.Event]]) -> None:
        self.state = LoopState()
        self.damage: list[Damage] = []
        self._decisions = DecisionLog(self._names)
        self._errors = ErrorLog()
        self._shown: dict[str, str] = {}
        entries = [self._apply_record(record) for record in records]
        if entries:
            self._open_logs(entries)

    def _iter_records(self) -> Iterator[JournalRecord[events.Event]]:
        for record in self._journal.read_records():
            if isinstance(record, Damage):
                self.damage.append(record)
            elif not isinstance(record, UnknownEvent):
                yield record

    def _apply_record(self, record: JournalRecord[events.Event]) -> bytes:
        at = parse_utc_time(record.ts)
        apply_event(self.state, at, record.event)
        self._decisions.add_event(record.seq, at, record.event)
        self._errors.add_event(record.seq, at, record.event)
        self._last = (record.id, record.offset)
        return json.encode(build_log_entry(record.seq, at, record.event, self._names))

    def _open_logs(self, entries: list[bytes]) -> None:
        head = b"{\n  " + json.encode({"session_id": self.state.session_id})[1:]
        path = self._directory / "execution-log.json"
        self._log = AppendableJsonFile(path, head, "events", entries, [])
        settled = _encode_items(self._decisions.drain_entries())
        pending = _encode_items(self._decisions.pending)
        path = self._directory / "decision-history.json"
        self._history = AppendableJsonFile(path, head, "decisions", settled, pending)


def _encode_items(items: list[dict[str, Any]]) -> list[bytes]:
    return [json.encode(item) for item in items]


def _format_json(value: dict[str, Any]) -> str:
    return json.format(json.encode(value), indent=2).decode() + "\n"


def _question_page(state: LoopState) -> str:
    """Return the content of `question.yaml`, into which a person can write the answer."""
    if state.question is None:
        return "# No question is open.\n"
    question = state.question.event
    until = format_utc_time(state.question.asked_at + question.timeout_s)
    fields = {
        "question_id": question.question_id,
        "text": question.text,
        "options": list(question.options),
        "default_answer": f"{question.default_answer} at {until}",
        "answer": "",
    }
    return dump_yaml(fields)
