"""A small agent with real tools; runs as a process.

For machines without the real client: the demo's words are scripted, but the requests, the
commands, the files and the recording are real. Time and ids are given, so that a run can be
repeated exactly.

Speaks as Claude Code does with `-p --output-format stream-json`: an `init` record, then a `result`.
The model's address and the place for transcripts come from the variables the client reads too.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.claude_code.resume import project_dir, transcript_file
from flightlog.model.errors import FlightlogError, NotFound, Unavailable
from flightlog.store.files import ensure_dir, replace_file
from flightlog.store.jsonl import append_line

VERSION = "2.1.325"
MODEL = "claude-opus-5-5"
TOOL_TIMEOUT_S = 120
STEPS_MAX = 50
# The model is on loopback: a proxy named in the environment has no part in it.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ScriptedEnvironment(Struct, frozen=True):
    """What the agent works with: a model, a project, a place for transcripts, a clock and a source of ids."""

    url: str
    project: Path
    config_dir: Path
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    model: str = MODEL
    steps_max: int = STEPS_MAX


class StepLimitReached(Unavailable):
    """The agent did not rest within the steps it was allowed."""


class ScriptedAgent:
    """One session of the scripted agent."""

    def __init__(self, desk: ScriptedEnvironment, session: str, parent: str = "") -> None:
        """Begin `session` at `desk`, with a copy of all that `parent` said, as a fork has."""
        self._desk = desk
        self._session = session
        self._messages: list[dict[str, Any]] = []
        self._last: str | None = None
        folder = project_dir(desk.config_dir, desk.project)
        ensure_dir(folder)
        self.transcript = transcript_file(folder, session)
        self.steps = 0
        if parent:
            self._copy_parent(self.transcript.with_name(f"{parent}.jsonl"))

    def run_prompt(self, prompt: str) -> str:
        """Let the agent work on `prompt` until it rests; return its last words."""
        self._messages.append({"role": "user", "content": prompt})
        self._write_record("user", {"message": self._messages[-1], "promptSource": "sdk", "turnOrigin": "sdk"})
        for _ in range(self._desk.steps_max):
            reply = self._send_request()
            self.steps += 1
            self._messages.append({"role": "assistant", "content": reply["content"]})
            calls = self._write_reply(reply)
            if not calls:
                return "\n".join(block["text"] for block in reply["content"] if block["type"] == "text")
            self._messages.append({"role": "user", "content": [self._run_tool(call) for call in calls]})
        raise StepLimitReached(f"the scripted agent did not rest within {self._desk.steps_max} steps")

    def _copy_parent(self, parent: Path) -> None:
        """Take over a parent's records and what was said in them."""
        try:
            lines = parent.read_bytes().splitlines()
        except FileNotFoundError as error:
            raise NotFound(f"no such session: {parent.stem}", hint="flightlog session list") from error
        for line in lines:
            record = json.loads(line)
            append_line(
                self.transcript, json.dumps({**record, "sessionId": self._session}, separators=(",", ":")).encode()
            )
            self._last = record["uuid"]
            self._restore_message(record["message"])

    def _restore_message(self, message: dict[str, Any]) -> None:
        """Put a recorded message, of which each line holds one block, back together."""
        last = self._messages[-1] if self._messages else {}
        content = message["content"]
        both = isinstance(content, list) and isinstance(last.get("content"), list)
        if both and last["role"] == message["role"] and last.get("id") == message.get("id"):
            last["content"] = [*last["content"], *content]
        else:
            self._messages.append(dict(message))

    def _send_request(self) -> dict[str, Any]:
        said = [{"role": each["role"], "content": each["content"]} for each in self._messages]
        body = {"model": self._desk.model, "max_tokens": 4096, "messages": said, "tools": [{"name": "Bash"}]}
        request = urllib.request.Request(  # noqa: S310 - always http to loopback, made by `serve`
            f"{self._desk.url}/v1/messages", json.dumps(body).encode(), self._request_headers()
        )
        try:
            with _DIRECT.open(request, timeout=TOOL_TIMEOUT_S) as answer:
                return {**json.load(answer), "request_id": answer.headers.get("request-id", "")}
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"the scripted model did not answer: {error}", hint="run the command again") from error

    def _request_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", "x-claude-code-session-id": self._session}

    def _write_reply(self, reply: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Write a line for each block, as the client does; return the tool calls with their records."""
        calls = []
        message = {key: value for key, value in reply.items() if key not in {"content", "request_id"}}
        for place, block in enumerate(reply["content"]):
            record = {
                "message": {**message, "content": [block]},
                "apiBlockIndex": place,
                "requestId": reply["request_id"],
            }
            uuid = self._write_record("assistant", record)
            if block["type"] == "tool_use":
                calls.append((uuid, block))
        return calls

    def _run_tool(self, call: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        asked, block = call
        output, failed = _execute_tool(block["name"], block["input"], self._desk.project)
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": output, "is_error": failed}
        self._write_record(
            "user",
            {
                "message": {"role": "user", "content": [result]},
                "toolUseResult": output,
                "sourceToolAssistantUUID": asked,
            },
            parent=asked,
        )
        return result

    def _write_record(self, kind: str, fields: dict[str, Any], parent: str | None = None) -> str:
        uuid = self._desk.new_id()
        at = datetime.fromtimestamp(self._desk.now_ms() / 1000, tz=UTC).isoformat(timespec="milliseconds")
        record = {
            "parentUuid": parent or self._last,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": at.replace("+00:00", "Z"),
            "sessionId": self._session,
            "cwd": str(self._desk.project),
            "version": VERSION,
            "entrypoint": "sdk-cli",
            "userType": "external",
            **fields,
        }
        append_line(self.transcript, json.dumps(record, separators=(",", ":")).encode())
        self._last = uuid
        return uuid


def _execute_tool(name: str, given: dict[str, Any], project: Path) -> tuple[str, bool]:
    """Run a tool for real; return what it said and whether it failed."""
    try:
        if name == "Bash":
            return _run_bash(str(given.get("command", "")), project)
        return _run_file_tool(name, given, project)
    except KeyError as error:
        return f"The argument {error} is missing.", True
    except (OSError, UnicodeError, FlightlogError, subprocess.TimeoutExpired) as error:
        return str(error), True


def _run_file_tool(name: str, given: dict[str, Any], project: Path) -> tuple[str, bool]:
    match name:
        case "Write":
            path = project / str(given["file_path"])
            replace_file(path, str(given["content"]).encode(), durable=False)
            return f"File created successfully at: {path.name}", False
        case "Edit":
            return _edit_file(project / str(given["file_path"]), str(given["old_string"]), str(given["new_string"]))
        case "Read":
            return (project / str(given["file_path"])).read_text(), False
        case _:
            return f"No such tool: {name}", True


def _run_bash(command: str, project: Path) -> tuple[str, bool]:
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    output = (ran.stdout + ran.stderr).decode("utf-8", "replace").rstrip("\n")
    return (f"Exit code {ran.returncode}\n{output}", True) if ran.returncode else (output, False)


def _edit_file(path: Path, old: str, new: str) -> tuple[str, bool]:
    text = path.read_text()
    if old not in text:
        return "String to replace not found in file.", True
    replace_file(path, text.replace(old, new, 1).encode(), durable=False)
    return f"The file {path.name} has been updated.", False


def main(words: list[str]) -> int:
    """Play one session and tell how it ended."""
    given = _parse_arguments(words)
    desk = ScriptedEnvironment(
        os.environ["ANTHROPIC_BASE_URL"],
        Path.cwd(),
        Path(os.environ["CLAUDE_CONFIG_DIR"]),
        lambda: time.time_ns() // 1_000_000,
        lambda: str(uuid.uuid4()),
        given.model,
        given.max_turns,
    )
    session = given.session_id or str(uuid.uuid4())
    _print_record({"type": "system", "subtype": "init", "session_id": session, "claude_code_version": VERSION})
    result = {"type": "result", "subtype": "success", "is_error": False, "session_id": session}
    steps = 0
    try:
        agent = ScriptedAgent(desk, session, given.resume)
        try:
            result["result"] = agent.run_prompt(given.prompt)
        finally:
            steps = agent.steps
    except StepLimitReached as error:
        result |= {"subtype": "error_max_turns", "is_error": True, "errors": [error.message]}
    except FlightlogError as error:
        result |= {"subtype": "error_during_execution", "is_error": True, "errors": [error.message]}
    _print_record({**result, "num_turns": steps})
    return int(bool(result["is_error"]))


def _parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripted")
    parser.add_argument("--session-id", default="")
    parser.add_argument("--resume", default="")
    parser.add_argument("--model", default="claude-opus-5-5")
    parser.add_argument("--max-turns", type=int, default=STEPS_MAX)
    parser.add_argument("--prompt", required=True)
    return parser.parse_args(words)


def _print_record(record: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
