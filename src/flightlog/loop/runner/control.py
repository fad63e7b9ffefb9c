"""Input of a running session: `control.jsonl`, `question.yaml` and `$FLIGHTLOG_REPORT`.

`PersonNotifier` is the way back: it runs the command of `--notify`.

A runner ignores requests from before its start, so that an old stop does not stop it; an answer
names its question and counts. Lines of a report are of these kinds:

    {"feature": {"feature_id": "F001", "name": "Agent loader"}}
    {"metric": "coverage", "value": 0.83}
    {"artifact": "docs/loader.md"}
    {"context": {"features_discovered": ["F001"]}}
    {"confidence": 0.8}
    {"effect": "deploy"}
    {"doc": {"path": "…", "feature_id": "F001"}}

Any other line raises an alert. Reports stay in the session's directory, so that they survive a
crash.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import json
from yaml import YAMLError

from flightlog.agents.process import ShellCommand
from flightlog.loop.events import (
    AlertRaised,
    Event,
    LoopEnded,
    LoopPaused,
    QuestionAsked,
    TaskReported,
)
from flightlog.loop.runner.driver import ControlRequest
from flightlog.loop.state import KINDS, LoopState
from flightlog.model.errors import UNREADABLE, read_yaml
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.text import one_line, shorten_text
from flightlog.store.files import remove_files
from flightlog.store.jsonl import append_line

CONTROL = "control.jsonl"
QUESTION = "question.yaml"
ANSWER = "answer"  # the action of a request
_BYTES_MAX = 1 << 16  # of requests at a time, and of an answer file
_CHUNK = 1 << 20  # of a report at a time
_TEXT_CHARS = 400
_MESSAGE_CHARS = 500  # of a notification
_NOTIFY_S = 10.0  # for a notification to end, at the end of a session


def send_control_request(directory: Path, request: ControlRequest) -> None:
    """Send a request to the runner of the session in `directory`."""
    append_line(directory / CONTROL, json.encode(request), durable=True)


def forget_answers(directory: Path, state: LoopState) -> None:
    """Remove the requests, in which answers are not redacted, unless an agent still needs one."""
    if state.question is None and not any(task.answer for task in state.tasks.values()):
        remove_files([directory / CONTROL])


class ControlInbox:
    """Reads new requests."""

    def __init__(self, directory: Path) -> None:
        """Start behind the existing requests, except for answers."""
        self._path = directory / CONTROL
        self._answer_path = directory / QUESTION
        self._at = max(self._control_bytes() - _BYTES_MAX, 0)
        self._answer_mtime = 0
        self.answers: dict[str, str] = {}  # by question, as the person wrote them
        # A person may answer while no runner lives; the next one would wait for another answer.
        self._answers = [entry for entry in self._read_requests() if entry.action == ANSWER]
        self._answers += self._read_answer()
        self._at = self._control_bytes()

    def drain(self, question: str) -> list[ControlRequest]:
        """Return requests since the last call, and an answer to the open `question`, if any."""
        requests = [entry for entry in self._answers if question and entry.question_id == question]
        self._answers = [entry for entry in self._answers if entry not in requests]
        requests += self._read_requests()
        if question:
            requests += [entry for entry in self._read_answer() if entry.question_id == question]
        return requests

    def _read_requests(self) -> list[ControlRequest]:
        requests: list[ControlRequest] = []
        if self._control_bytes() > self._at:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_BYTES_MAX)
            whole = data[: data.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.splitlines():
                with suppress(*UNREADABLE):
                    requests.append(json.decode(line, type=ControlRequest))
        self.answers |= {entry.question_id: entry.answer for entry in requests if entry.answer}
        return requests

    def _read_answer(self) -> list[ControlRequest]:
        """Return what a person wrote into `question.yaml` since the last call."""
        try:
            status = self._answer_path.stat()
            if status.st_mtime_ns == self._answer_mtime or status.st_size > _BYTES_MAX:
                return []
            self._answer_mtime = status.st_mtime_ns
            fields = read_yaml(self._answer_path.read_text("utf-8"), {"answer", "question_id"})
        except (OSError, YAMLError, UnicodeDecodeError):
            return []
        answer = str(fields.get("answer") or "").strip() if isinstance(fields, dict) else ""
        question = str(fields.get("question_id")) if answer else ""
        reason = "written into question.yaml"
        self.answers |= {question: answer} if answer else {}
        return [ControlRequest(ANSWER, question, answer, reason)] if answer else []

    def _control_bytes(self) -> int:
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 - called many times a second
        except FileNotFoundError:
            return 0


class PersonNotifier:
    """Runs a person's command when they are needed, or the session ends."""

    def __init__(self, runtime: Runtime, command: str, session_name: str) -> None:
        """Run nothing if `command` is empty."""
        self._runtime = runtime
        self._command = command
        self._session = session_name
        self._running: list[ShellCommand] = []

    def send_event(self, event: Event) -> None:
        """Start the command if this event is for a person; do not wait for it."""
        if not self._command or not isinstance(event, QuestionAsked | LoopPaused | LoopEnded):
            return
        kind = "question" if isinstance(event, QuestionAsked) else "paused"
        kind = event.status if isinstance(event, LoopEnded) else kind
        text = event.text if isinstance(event, QuestionAsked) else event.reason
        variables = {
            "FLIGHTLOG_SESSION": self._session,
            "FLIGHTLOG_EVENT": kind,
            "FLIGHTLOG_MESSAGE": one_line(text, _MESSAGE_CHARS),
        }
        environment = {**self._runtime.environ, **variables}
        with suppress(OSError):  # a notification that fails does not stop the work
            cwd = Path(self._runtime.cwd)
            self._running.append(ShellCommand(self._command, cwd=cwd, environment=environment))

    def wait(self) -> None:
        """Give running commands a little time to end."""
        end = self._runtime.clock.monotonic() + _NOTIFY_S
        for command in self._running:
            command.wait(max(end - self._runtime.clock.monotonic(), 0.0))


class TaskReportFile:
    """The report of one attempt, read while it grows."""

    def __init__(
        self,
        path: Path,
        project: Path,
        attempt: tuple[str, int],
        redact: Callable[[str], Redacted[str]],
    ) -> None:
        """Read the report of a task and attempt from its beginning."""
        self._path = path
        self._project = project
        self._task, self._attempt = attempt
        self._redact = redact  # before text is cut, so that no part of a secret remains
        self._at = 0

    def new_events(self, *, whole: bool = False) -> Iterator[TaskReported | AlertRaised]:
        """Yield reports since the last call; with `whole` also a last line without line end."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_CHUNK)
        except OSError:
            return
        end = len(data) if whole and len(data) < _CHUNK else data.rfind(b"\n") + 1
        self._at += end
        for line in data[:end].splitlines():
            if line.strip():
                yield from self._read_line(line)
        if whole and len(data) == _CHUNK:
            yield from self.new_events(whole=True)

    def _read_line(self, line: bytes) -> Iterator[TaskReported | AlertRaised]:
        try:
            fields = json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            fields = None
        kinds = [kind for kind in KINDS if isinstance(fields, dict) and kind in fields]
        events = [event for kind in kinds if (event := self._decode_event(kind, fields))]
        if not events:
            text = self._shorten_text(line.decode("utf-8", "replace"))
            yield AlertRaised(f"report of {self._task}", f"a line was not understood: {text}")
        yield from events

    def _decode_event(  # noqa: PLR0911 - one for each kind
        self, kind: str, fields: dict[str, Any]
    ) -> TaskReported | None:
        value = fields[kind]
        match kind:
            case "metric" if isinstance(value, str) and _is_number(fields.get("value")):
                return self._make_event(kind, value, float(fields["value"]))
            case "artifact" if isinstance(value, str) and value:
                return self._make_event(kind, self._relative_path(value), None)
            case "effect" if isinstance(value, str) and value:
                return self._make_event(kind, value, None)
            case "confidence" if _is_number(value):
                return self._make_event(kind, "", float(value))
            case "context" if isinstance(value, dict):
                return self._make_event(kind, "", value)
            case "feature" if isinstance(value, dict) and isinstance(value.get("feature_id"), str):
                return self._make_event(kind, value["feature_id"], value)
            case "doc" if isinstance(value, dict) and isinstance(value.get("path"), str):
                return self._make_event(kind, self._relative_path(value["path"]), value)
            case _:
                return None

    def _make_event(self, what: str, name: str, value: Any) -> TaskReported:
        return TaskReported(self._task, self._attempt, what, self._shorten_text(name), value)

    def _shorten_text(self, text: str) -> str:
        return shorten_text(self._redact(text), _TEXT_CHARS).value

    def _relative_path(self, name: str) -> str:
        inside = Path(name).is_absolute() and Path(name).is_relative_to(self._project)
        return str(Path(name).relative_to(self._project)) if inside else name


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
