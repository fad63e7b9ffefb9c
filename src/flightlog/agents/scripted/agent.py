"""A small agent with real tools, for machines without the real client; runs as a process.

The model's replies are scripted, but requests, commands, files and the transcript are real. Callers
provide time and ids, so that a run can be repeated exactly.

Like Claude Code with `-p --output-format stream-json` it prints an `init` and a `result` record, and
reads the model's address and its configuration directory from the same variables.
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
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.claude_code.resume import project_dir, transcript_file
from flightlog.agents.dialects.anthropic_messages import SESSION_ID
from flightlog.model.errors import FlightlogError, NotFound, Unavailable
from flightlog.model.text import format_utc_ms
from flightlog.store.files import ensure_dir, replace_file
from flightlog.store.jsonl import append_line

VERSION = "2.1.325"
MODEL = "claude-opus-5-5"
TOOL_TIMEOUT_S = 120
STEPS_MAX = 50
# With these a person points git at a repository elsewhere; the agent's commands are for its project.
_OTHER_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"}
# The model is on loopback, so proxies named in the environment are ignored.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ScriptedEnvironment(Struct, frozen=True):
    """The model, project, configuration directory, clock and ids of a scripted agent."""

    url: str
    project: Path
    config_dir: Path
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    model: str = MODEL
    steps_max: int = STEPS_MAX


class StepLimitReached(Unavailable):
    """The agent did not finish within its limit of steps."""


class ScriptedAgent:
    """One session of the scripted agent."""

    def __init__(self, environment: ScriptedEnvironment, session: str, parent: str = "") -> None:
        """Start `session`; with a `parent`, as a fork that begins with the parent's records."""
        self._environment = environment
        self._session = session
        self._messages: list[dict[str, Any]] = []
        self._last: str | None = None
        folder = project_dir(environment.config_dir, environment.project)
        ensure_dir(folder)
        self.transcript = transcript_file(folder, session)
        self.steps = 0
        if parent:
            self._copy_parent(self.transcript.with_name(f"{parent}.jsonl"))

    def run_prompt(self, prompt: str) -> str:
        """Work on `prompt` until the model calls no more tools; return its last text."""
        self._messages.append({"role": "user", "content": prompt})
        fields = {"message": self._messages[-1], "promptSource": "sdk", "turnOrigin": "sdk"}
        self._write_record("user", fields)
        for _ in range(self._environment.steps_max):
            reply = self._send_request()
            self.steps += 1
            self._messages.append({"role": "assistant", "content": reply["content"]})
            calls = self._write_reply(reply)
            if not calls:
                texts = (block for block in reply["content"] if block["type"] == "text")
                return "\n".join(block["text"] for block in texts)
            results = [self._run_tool(uuid, block) for uuid, block in calls]
            self._messages.append({"role": "user", "content": results})
        text = f"the scripted agent did not finish within {self._environment.steps_max} steps"
        raise StepLimitReached(text)

    def _copy_parent(self, parent: Path) -> None:
        try:
            lines = parent.read_bytes().splitlines()
        except FileNotFoundError as error:
            hint = "flightlog session list"
            raise NotFound(f"no such session: {parent.stem}", hint=hint) from error
        for line in lines:
            record = {**json.loads(line), "sessionId": self._session}
            append_line(self.transcript, json.dumps(record, separators=(",", ":")).encode())
            self._last = record["uuid"]
            self._restore_message(record["message"])

    def _restore_message(self, message: dict[str, Any]) -> None:
        """Append a recorded message, or its blocks to the last one: each line has one block."""
        last = self._messages[-1] if self._messages else {}
        content = message["content"]
        are_lists = isinstance(content, list) and isinstance(last.get("content"), list)
        if are_lists and last["role"] == message["role"] and last.get("id") == message.get("id"):
            last["content"] = [*last["content"], *content]
        else:
            self._messages.append(dict(message))

    def _send_request(self) -> dict[str, Any]:
        sent = ("role", "content")
        messages = [{name: message[name] for name in sent} for message in self._messages]
        body = {"model": self._environment.model, "max_tokens": 4096, "messages": messages}
        body["tools"] = [{"name": "Bash"}]
        headers = {"content-type": "application/json", SESSION_ID: self._session}
        request = urllib.request.Request(  # noqa: S310 - always http to loopback, made by `serve_scenario`
            f"{self._environment.url}/v1/messages", json.dumps(body).encode(), headers
        )
        try:
            with _DIRECT.open(request, timeout=TOOL_TIMEOUT_S) as answer:
                return {**json.load(answer), "request_id": answer.headers.get("request-id", "")}
        except (OSError, http.client.HTTPException, ValueError) as error:
            hint = "run the command again"
            raise Unavailable(f"the scripted model did not answer: {error}", hint=hint) from error

    def _write_reply(self, reply: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Write a line for each block, as the client does; return tool calls with their uuids."""
        calls = []
        left_out = {"content", "request_id"}
        message = {key: value for key, value in reply.items() if key not in left_out}
        for index, block in enumerate(reply["content"]):
            own = {**message, "content": [block]}
            record = {"message": own, "apiBlockIndex": index, "requestId": reply["request_id"]}
            uuid = self._write_record("assistant", record)
            if block["type"] == "tool_use":
                calls.append((uuid, block))
        return calls

    def _run_tool(self, uuid: str, block: dict[str, Any]) -> dict[str, Any]:
        output, failed = _execute_tool(block["name"], block["input"], self._environment.project)
        result = {"type": "tool_result", "tool_use_id": block["id"]}
        result |= {"content": output, "is_error": failed}
        message = {"role": "user", "content": [result]}
        record = {"message": message, "toolUseResult": output, "sourceToolAssistantUUID": uuid}
        self._write_record("user", record, parent=uuid)
        return result

    def _write_record(self, kind: str, fields: dict[str, Any], parent: str | None = None) -> str:
        uuid = self._environment.new_id()
        record = {
            "parentUuid": parent or self._last,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "timestamp": format_utc_ms(self._environment.now_ms()),
            "sessionId": self._session,
            "cwd": str(self._environment.project),
            "version": VERSION,
            "entrypoint": "sdk-cli",
            "userType": "external",
            **fields,
        }
        append_line(self.transcript, json.dumps(record, separators=(",", ":")).encode())
        self._last = uuid
        return uuid


def _execute_tool(name: str, arguments: dict[str, Any], project: Path) -> tuple[str, bool]:
    """Run a tool; return its output and whether it failed."""
    try:
        match name:
            case "Bash":
                return _run_bash(str(arguments.get("command", "")), project)
            case "Write" | "Edit" | "Read":
                return _run_file_tool(name, arguments, project / str(arguments["file_path"]))
            case _:
                return f"No such tool: {name}", True
    except KeyError as error:
        return f"The argument {error} is missing.", True
    except (OSError, UnicodeError, FlightlogError, subprocess.TimeoutExpired) as error:
        return str(error), True


def _run_file_tool(name: str, arguments: dict[str, Any], path: Path) -> tuple[str, bool]:
    if name == "Write":
        replace_file(path, str(arguments["content"]).encode(), durable=False)
        return f"File created successfully at: {path.name}", False
    if name == "Read":
        return path.read_text(), False
    old, new, text = str(arguments["old_string"]), str(arguments["new_string"]), path.read_text()
    if old not in text:
        return "String to replace not found in file.", True
    replace_file(path, text.replace(old, new, 1).encode(), durable=False)
    return f"The file {path.name} has been updated.", False


def _run_bash(command: str, project: Path) -> tuple[str, bool]:
    process = subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        env={name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    output = (process.stdout + process.stderr).decode("utf-8", "replace").rstrip("\n")
    if process.returncode:
        return (f"Exit code {process.returncode}\n{output}", True)
    return (output, False)


def main(words: list[str]) -> int:
    """Run one session, print its records and return the exit code."""
    options = _parse_arguments(words)
    environment = ScriptedEnvironment(
        os.environ["ANTHROPIC_BASE_URL"],
        Path.cwd(),
        Path(os.environ["CLAUDE_CONFIG_DIR"]),
        lambda: time.time_ns() // 1_000_000,
        lambda: str(uuid.uuid4()),
        options.model,
        options.max_turns,
    )
    session = options.session_id or str(uuid.uuid4())
    init = {"type": "system", "subtype": "init", "session_id": session}
    _print_record({**init, "claude_code_version": VERSION})
    result = {"type": "result", "subtype": "success", "is_error": False, "session_id": session}
    steps = 0
    try:
        agent = ScriptedAgent(environment, session, options.resume)
        try:
            result["result"] = agent.run_prompt(options.prompt)
        finally:
            steps = agent.steps
    except FlightlogError as error:
        is_limit = isinstance(error, StepLimitReached)
        subtype = "error_max_turns" if is_limit else "error_during_execution"
        result |= {"subtype": subtype, "is_error": True, "errors": [error.message]}
    _print_record({**result, "num_turns": steps})
    return int(bool(result["is_error"]))


def _parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripted")
    parser.add_argument("--session-id", default="")
    parser.add_argument("--resume", default="")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--max-turns", type=int, default=STEPS_MAX)
    parser.add_argument("--prompt", required=True)
    return parser.parse_args(words)


def _print_record(record: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
