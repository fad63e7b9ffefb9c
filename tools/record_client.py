"""Record what a real client writes, for the tests of the agent that reads it.

    .venv/bin/python -m tools.record_client tests/recordings/codex/0.166.0/tool-call …

The directory names client, version and case, and holds what is recorded in `case.yaml`:

    note: a tool call, then the session is resumed
    environment: {NAME: value}          # for the client, optional
    files: {notes.txt: "text"}          # in its project beside README.md, optional
    scenario:                           # what the model answers: flightlog.agents.scripted.scenario
      rules:
        - when: {prompt: "make a file"}
          replies:
            - blocks: [{text: "I make it."}, {shell: "echo x > made.txt"}]
              usage: {input: 1000, output: 40, cache_read: 300, cache_write: 0, reasoning: 10}
            - text: Done.
    runs:                               # one after the other in the same home
      - prompt: make a file please
      - prompt: And now?
        arguments: [resume, "{session}"]    # put before the prompt; the session of the run before

`shell` is a call of the client's own tool that runs a command; name any other with `tool`. A run with
`fork: app-server` (older Codex) forks the session of the run before and gives the prompt to the fork.

Written are `session/…`, the session files at their paths in the client's directory such as ~/.codex (a
SQLite database as `NAME.sql`), and `wire.jsonl`, one line for each response of the model: run, rule,
dialect, model, status, and the usage as it was sent. What was recorded before is removed.

The client runs with private mounts, so that it sees /home/dev/home and /home/dev/project and no path
of this machine (as root on Linux). Its system prompts and tool descriptions become placeholders such
as `[system prompt, 5,813 chars]`. Every placeholder is printed: review them, and the files.
Install a client first: tools/install_agents.sh codex/0.140.0
"""

import argparse
import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.model.errors import read_yaml

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.real_clients import (  # noqa: E402 - it is among the tests
    ClientMachine,
    ClientRun,
    fork_by_app_server,
    make_machine,
)

SEEN_ROOT = Path("/home/dev")
# Shows $1 at /home/dev and the client in $2 at /opt/client, then runs the rest.
_MOUNTS = """
set -e
root=$1 client=$2 program=/opt/client/$3
shift 4
hostname dev
mount -t tmpfs none /opt
mkdir /opt/client
mount --bind "$client" /opt/client
mkdir -p "$root"
mount -t tmpfs none /mnt
mkdir /mnt/root
mount --bind "$root" /mnt/root
mount -t tmpfs none /home
mkdir /home/dev
mount --bind /mnt/root /home/dev
cd /home/dev/project
exec "$program" "$@"
"""
_SHORTEST = 50  # characters of a vendor's text that is looked for inside of others
_WORDS = 20  # characters of a result that no other text holds by chance, such as "text"
_SUSPICIOUS = 400  # characters above which a text of unknown origin is taken for the vendor's
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Texts of a client that are data: where it is, which of its tasks ended, which command was typed.
_DATA = (
    *("<environment_context>", "<task-notification>", "<subagent_notification>"),
    *("<command-name>", "<command-message>", "<local-command-stdout>"),
)
# A task that ended is reported inside of a text of the client, with a note of its own.
_NOTIFICATION = re.compile("<task-notification>.*?</task-notification>", re.DOTALL)
_NOTE = re.compile("<note>(.*?)</note>", re.DOTALL)
_REMINDER = re.compile("</?system-reminder>")
# The beginning of a tool's result that is the client's advice to the model.
_ADVICE = "Async agent launched"
_TOOL_LISTS = frozenset({"tools", "toolsAdded", "dynamic_tools", "functionDeclarations"})


def main(words: Sequence[str]) -> int:
    """Record the cases of the directories given; return the exit code."""
    parser = argparse.ArgumentParser(
        "record_client", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="+", type=Path, help="…/CLIENT/VERSION/CASE")
    for directory in parser.parse_args(words).directory:
        with tempfile.TemporaryDirectory(prefix="record-") as root:
            record_case(directory, Path(root))
    return 0


def record_case(directory: Path, root: Path) -> None:
    """Run the case of `directory` on a machine below `root`, and write what the client wrote."""
    case = read_yaml((directory / "case.yaml").read_text())
    client, version = directory.resolve().parts[-3:-1]
    machine = _mount_machine(make_machine(root, client, version, **case.get("environment", {})))
    for name, text in case.get("files", {}).items():
        (machine.project / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.project / name).write_text(text)
    runs: list[ClientRun] = []
    for run in case["runs"]:
        session = runs[-1].session if runs else ""
        arguments = [word.replace("{session}", session) for word in run.get("arguments", ())]
        scenario = parse_scenario(_name_shell(run.get("scenario", case["scenario"]), machine))
        if run.get("fork") == "app-server":
            runs.append(fork_by_app_server(machine, scenario, session, run["prompt"]))
        else:
            runs.append(machine.run(scenario, run["prompt"], *arguments))
        print(f"{directory}: exit {runs[-1].exit_code} after {runs[-1].seconds:.1f} s")
        if runs[-1].exit_code:
            print(runs[-1].stdout[-2000:], runs[-1].stderr[-2000:], sep="\n")
    shutil.rmtree(directory / "session", ignore_errors=True)
    _write_files(machine, directory / "session", Scrubber(runs, list(iter_strings(case)), machine))
    lines = [json.dumps(line) for line in _wire_lines(runs)]
    (directory / "wire.jsonl").write_text("".join(f"{line}\n" for line in lines))


def mount_prefix(root: Path, program: Path) -> tuple[str, ...]:
    """Return what comes before `program` in its command so that it sees `root` as `SEEN_ROOT`."""
    arguments = (str(root), str(program.parent.resolve()), program.name)
    return ("unshare", "--mount", "--uts", "sh", "-c", _MOUNTS, "sh", *arguments)


def _mount_machine(machine: ClientMachine) -> ClientMachine:
    prefix = mount_prefix(machine.root, machine.program)
    return replace(machine, prefix=prefix, seen_root=SEEN_ROOT)


def _name_shell(value: Any, machine: ClientMachine) -> Any:
    """Return a scenario with each block `shell` as a call of the client's tool."""
    if isinstance(value, list):
        return [_name_shell(item, machine) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"shell"}:
        return machine.shell_call(value["shell"])
    return {name: _name_shell(item, machine) for name, item in value.items()}


def _wire_lines(runs: Sequence[ClientRun]) -> Iterator[dict[str, Any]]:
    for number, run in enumerate(runs, 1):
        for request in run.requests:
            if request.dialect:
                yield {
                    "run": number,
                    "rule": request.rule,
                    "dialect": request.dialect,
                    "model": request.model,
                    "status": request.status,
                    "usage": request.usage,
                }


def _write_files(machine: ClientMachine, target: Path, scrubber: "Scrubber") -> None:
    files = {path for pattern in machine.recipe.state for path in machine.home.glob(pattern)}
    offsets: dict[str, dict[int, int]] = {}
    for path in sorted(path for path in files if path.is_file() and path.stat().st_size):
        name = path.relative_to(machine.home / machine.recipe.folder)
        written = target / name
        if path.suffix == ".lock" or path.name.endswith(("-wal", "-shm")):
            continue
        written.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".db":
            with sqlite3.connect(path) as database:
                dump = "".join(
                    f"{statement}\n"
                    for statement in database.iterdump()
                    # OpenCode has every change of its rows in a second table, too.
                    if not statement.startswith('INSERT INTO "event" ')
                )
            written.with_name(f"{path.name}.sql").write_text(scrubber.scrub_ids(dump))
        elif path.suffix in {".json", ".jsonl"}:
            lines = path.read_text().splitlines(keepends=True)
            # A session's forks name a place in its file, and come after it: the names are times.
            data, ends = scrubber.scrub_lines(lines, str(name), offsets)
            offsets |= dict.fromkeys(_UUID.findall(path.stem), ends)
            written.write_text(data)
        else:
            written.write_text(scrubber.scrub_ids(path.read_text()))


class Scrubber:
    """Replaces the words of a vendor in JSON, and the ids of this machine."""

    def __init__(
        self, runs: Sequence[ClientRun], own: Sequence[str], machine: ClientMachine
    ) -> None:
        """Learn the vendor's words from the requests; `own` are the words of the case."""
        bodies = [request.body for run in runs for request in run.requests]
        self._own = [text for text in own if len(text) >= 8]
        results = (text for body in bodies for text in _iter_results(body))
        self._results = [
            text for text in results if len(text) >= _WORDS and not text.startswith(_ADVICE)
        ]
        texts = {text: "system prompt" for body in bodies for text in _iter_system(body)}
        texts |= {text: "context" for body in bodies for text in self._iter_context(body)}
        texts |= {
            text: "tool description" for body in bodies for text in iter_strings(body.get("tools"))
        }
        long = (text for text in texts if len(text) >= _SHORTEST)
        self._vendor = {text: texts[text] for text in sorted(long, key=len, reverse=True)}
        names = [*machine.home.rglob("installation_id"), *machine.home.rglob("deviceid")]
        self._ids = [path.read_text().strip() for path in names]

    def scrub_lines(
        self, lines: Sequence[str], name: str, offsets: Mapping[str, Mapping[int, int]]
    ) -> tuple[str, dict[int, int]]:
        """Return JSON lines without the vendor's words, and where each old offset is now.

        A file that is one JSON value over several lines is one line here.
        """
        try:
            json.loads(lines[0] if lines else "null")
        except ValueError:
            lines = ["".join(lines)]
        written, old, new = [], 0, 0
        ends: dict[int, int] = {0: 0}
        for number, line in enumerate(lines, 1):
            value = json.loads(line)
            clean = self._scrub(value, f"{name}:{number}", in_tools=False)
            clean = _move_offsets(clean, offsets)
            text = self.scrub_ids(
                line
                if clean == value
                else json.dumps(clean, separators=(",", ":"), ensure_ascii=False) + "\n"
            )
            old, new = old + len(line.encode()), new + len(text.encode())
            ends[old] = new
            written.append(text)
        return "".join(written), ends

    def scrub_ids(self, text: str) -> str:
        """Return `text` with zeros for the ids of this machine."""
        for value in self._ids:
            text = text.replace(value, re.sub("[0-9a-fA-F]", "0", value)) if value else text
        return text

    def _scrub(self, value: Any, place: str, *, in_tools: bool) -> Any:
        if isinstance(value, str):
            return self._scrub_text(value, place)
        if isinstance(value, list):
            return [
                self._scrub(item, f"{place}[{at}]", in_tools=in_tools)
                for at, item in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        clean = {}
        for name, item in value.items():
            if in_tools and name == "description" and isinstance(item, str):
                clean[name] = _placeholder("tool description", item)
            else:
                clean[name] = self._scrub(
                    item, f"{place}.{name}", in_tools=in_tools or name in _TOOL_LISTS
                )
        return clean

    def _scrub_text(self, text: str, place: str) -> str:
        clean = text
        for vendor, kind in self._vendor.items():
            clean = clean.replace(vendor, _placeholder(kind, vendor))
        inner = _REMINDER.sub("", clean).strip()
        if len(inner) >= _SHORTEST and any(inner in vendor for vendor in self._vendor):
            clean = _placeholder("system prompt", clean)
        if len(clean) >= _SUSPICIOUS and not self._is_own(clean):
            clean = _placeholder("text", clean)
        if clean != text:
            print(f"  {place}: {clean[:80]!r}")
        return clean

    def _is_own(self, text: str) -> bool:
        if text.lstrip().startswith(_DATA) or any(own in text for own in self._own):
            return True
        return any(
            text[:_SHORTEST] in result or result[:_SHORTEST] in text for result in self._results
        )

    def _iter_context(self, body: Mapping[str, Any]) -> Iterator[str]:
        """Yield what a client puts into a conversation: a user's texts without words of the case."""
        for message in _messages(body):
            if message.get("role") == "user":
                for text in _texts(message):
                    yield from _NOTE.findall(text)
                    for part in _NOTIFICATION.split(text):
                        if not part.lstrip().startswith(_DATA):
                            yield from _split_around(part, self._own)


def _placeholder(kind: str, text: str) -> str:
    """Return what replaces a text; a tag around it stays, because readers know texts by it."""
    tagged = re.fullmatch(r"\s*<([\w -]+)>.*</\1>\s*", text, re.DOTALL)
    note = f"[{kind}, {len(text):,} chars]"
    return f"<{tagged[1]}>{note}</{tagged[1]}>" if tagged else note


def _move_offsets(value: Any, offsets: Mapping[str, Mapping[int, int]]) -> Any:
    """Return a record whose `history_base` points at the same line of the rewritten parent."""
    payload = (value.get("payload") if isinstance(value, dict) else None) or {}
    base = payload.get("history_base") if isinstance(payload, dict) else None
    if not isinstance(base, dict) or base.get("thread_id") not in offsets:
        return value
    moved = offsets[base["thread_id"]][base["end_byte_offset"]]
    return {**value, "payload": {**payload, "history_base": {**base, "end_byte_offset": moved}}}


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages") or body.get("contents") or body.get("input") or []
    return (
        [message for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content") or message.get("parts")
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"]


def _iter_system(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("system", "instructions", "systemInstruction"):
        yield from iter_strings(body.get(name))
    for message in _messages(body):
        if message.get("role") in {"system", "developer"}:
            yield from _texts(message)


def _iter_results(body: Mapping[str, Any]) -> Iterator[str]:
    for message in _messages(body):
        if message.get("role") == "tool":
            yield from _texts(message)
        yield from iter_strings(message.get("output"))
        for name in ("parts", "content"):
            blocks = message.get(name)
            for block in blocks if isinstance(blocks, list) else ():
                if _is_result(block):
                    yield from iter_strings(block.get("content") or block.get("functionResponse"))


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and (
        "functionResponse" in block or block.get("type") == "tool_result"
    )


def iter_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from iter_strings(item)


def _split_around(text: str, own: Sequence[str]) -> list[str]:
    pattern = "|".join(re.escape(word) for word in sorted(own, key=len, reverse=True))
    return re.split(pattern, text) if pattern else [text]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
