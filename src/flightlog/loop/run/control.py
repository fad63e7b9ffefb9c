"""What people ask of a running loop, by way of its directory: lines in `control.jsonl`, or `question.yaml`.

Only what comes after a runner began counts for it: a stop meant for an earlier run stops nothing.
"""

import os
from contextlib import suppress
from pathlib import Path

from msgspec import json
from ruamel.yaml.error import YAMLError

from flightlog.loop.run.world import ControlRequest
from flightlog.model.damage import UNREADABLE, read_yaml
from flightlog.store.lines import append_line

CONTROL = "control.jsonl"
QUESTION = "question.yaml"
_BYTES_MAX = 1 << 16


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
