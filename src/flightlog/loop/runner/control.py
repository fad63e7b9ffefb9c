"""Control.jsonl, question.yaml, $FLIGHTLOG_REPORT.

Only what comes after a runner began counts for it: a stop meant for an earlier run stops nothing.

{"feature": {"feature_id": "F001", "name": "Agent loader"}}
    {"metric": "coverage", "value": 0.83}
    {"artifact": "docs/loader.md"}     {"context": {"features_discovered": ["F001"]}}
    {"confidence": 0.8}                {"effect": "deploy"}          {"doc": {"path": "…", "feature_id": "F001"}}

What is not understood is told as an alert, never dropped in silence. The file stays in the
session's directory, so that what was reported before a crash is known after it.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import json
from ruamel.yaml.error import YAMLError

from flightlog.loop.decide.fold import KINDS
from flightlog.loop.events import AlertRaised, TaskReported
from flightlog.loop.runner.driver import ControlRequest
from flightlog.model.errors import UNREADABLE, read_yaml
from flightlog.model.output_files import Redacted
from flightlog.model.text import shorten_text
from flightlog.store.jsonl import append_line

CONTROL = "control.jsonl"
QUESTION = "question.yaml"
_BYTES_MAX = 1 << 16
_CHUNK = 1 << 20
_TEXT_CHARS = 400


def send_control_request(directory: Path, request: ControlRequest) -> None:
    """Ask the runner of the session in `directory` for something."""
    append_line(directory / CONTROL, json.encode(request), durable=True)


class ControlInbox:
    """Reads requests as they come."""

    def __init__(self, directory: Path) -> None:
        """Begin after what is there already."""
        self._path = directory / CONTROL
        self._page = directory / QUESTION
        self._at = self._control_bytes()
        self._seen = 0

    def drain(self, question: str) -> list[ControlRequest]:
        """Return what came since the last call; `question` is the open one, whose page is looked at too."""
        found: list[ControlRequest] = []
        if self._control_bytes() > self._at:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_BYTES_MAX)
            whole = data[: data.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.splitlines():
                with suppress(*UNREADABLE):
                    found.append(json.decode(line, type=ControlRequest))
        if question and (answer := self._read_answer_file(question)):
            found.append(ControlRequest("answer", question, answer, "written into question.yaml"))
        return found

    def _read_answer_file(self, question: str) -> str:
        """What a person wrote into the page of the open question."""
        try:
            status = self._page.stat()
            if status.st_mtime_ns == self._seen or status.st_size > _BYTES_MAX:
                return ""
            self._seen = status.st_mtime_ns
            told = read_yaml(self._page.read_text("utf-8"))
        except (OSError, YAMLError, UnicodeDecodeError):
            return ""
        if not isinstance(told, dict) or told.get("question") != question:
            return ""
        return str(told.get("answer") or "").strip()

    def _control_bytes(self) -> int:
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 - looked at many times a second
        except FileNotFoundError:
            return 0


class TaskReportFile:
    """One task's report, read as it grows."""

    def __init__(
        self, path: Path, project: Path, whose: tuple[str, int], redact: Callable[[str], Redacted[str]]
    ) -> None:
        """Read from the beginning what the task and attempt `whose` reports; what is cut is redacted before."""
        self._path = path
        self._project = project
        self._task, self._attempt = whose
        self._redact = redact
        self._at = 0

    def new_events(self, *, whole: bool = False) -> Iterator[TaskReported | AlertRaised]:
        """Yield what was reported since the last call; at the end also a last line without an end."""
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
            told = json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            told = None
        known = [kind for kind in KINDS if isinstance(told, dict) and kind in told]
        events = [event for kind in known if (event := self._decode_event(kind, told))]
        if not events:
            text = self._shorten_text(line.decode("utf-8", "replace"))
            yield AlertRaised(f"report of {self._task}", f"a line was not understood: {text}")
        yield from events

    def _decode_event(self, kind: str, told: dict[str, Any]) -> TaskReported | None:  # noqa: PLR0911 - one for each kind
        value = told[kind]
        match kind:
            case "metric" if isinstance(value, str) and _is_number(told.get("value")):
                return self._make_event(kind, value, float(told["value"]))
            case "artifact" | "effect" if isinstance(value, str) and value:
                return self._make_event(kind, self._relative_path(value) if kind == "artifact" else value, None)
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

    def _relative_path(self, written: str) -> str:
        path = Path(written)
        if path.is_absolute() and path.is_relative_to(self._project):
            return str(path.relative_to(self._project))
        return written


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
