"""A seventh agent, as small as one can be: a file of JSON lines for each session, no hooks.

    {"type": "start", "cwd": …, "version": …, "branch": …}
    {"type": "prompt", "id": …, "text": …}
    {"type": "reply", "id": …, "model": …, "text": …, "thought": …, "tools": […], "tokens": [in, out]}
    {"type": "result", "id": …, "call": …, "text": …, "exit": 0}

Each line has its time in `ms`.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.agents.line_source import LineFormat, LineSource
from flightlog.model.entries import (
    AssistantReply,
    Entry,
    Ignored,
    PromptKind,
    RecordContext,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownRecord,
    UserPrompt,
)
from flightlog.model.session import SessionFile
from flightlog.model.usage import UsageLine
from flightlog.sources.protocol import Fidelity, FileListing

NAME = "tinker"


class Decoder:
    def __init__(self, file):
        self.session, self.context = file.session, RecordContext()

    def decode(self, line):
        record = msgspec.json.decode(line)
        if record["type"] == "start":
            self.context = RecordContext(record["cwd"], record["branch"], record["version"])
        id_ = record.get("id", f"start-{self.session}")
        event = self.event(record)
        return [Entry(event, self.session, id_, at_ms=record["ms"], context=self.context, key=id_)]

    def event(self, record):
        match record["type"]:
            case "start":
                return Ignored("start")
            case "prompt":
                return UserPrompt(PromptKind.HUMAN, (Text(record["text"]),))
            case "reply":
                tools = [ToolUse(*tool) for tool in record.get("tools", ())]
                thought = [Thinking(record["thought"])] if "thought" in record else []
                content = (*thought, Text(record["text"]), *tools)
                given, written = record["tokens"]
                return AssistantReply(
                    message_id=record["id"], model=record["model"], content=content,
                    input_tokens=given, output_tokens=written,
                )  # fmt: skip
            case "result":
                code = record.get("exit", 0)
                content = (Text(record["text"]),)
                return ToolResult(record["call"], content, code != 0, detail={"exitCode": code})
        return UnknownRecord(record["type"])

    def subagents(self):
        return ()


class Counter:
    def __init__(self, file):
        self.file = file

    def count(self, line):
        record = msgspec.json.decode(line)
        if record["type"] == "reply":
            given, written = record["tokens"]
            yield UsageLine(
                record["id"], self.file.session, record["model"], given, written, 0, 0, 0, 0,
                record["ms"], "/home/dev/shop", "", "", False,
            )  # fmt: skip


def find(folder):
    for path in sorted(Path(folder).glob("*.jsonl")):
        stat = path.stat()
        yield SessionFile(
            str(path), path.stem, stat.st_size, stat.st_mtime_ns, "", stat.st_dev, stat.st_ino, NAME
        )


def session_files(file):
    folder = Path(file.path).parent
    return tuple(other for other in find(folder) if other.session == file.session)


FIDELITY = Fidelity(client_totals=False, subagents=False, system_prompt=False, permissions=False)  # fmt: skip
SOURCE = LineSource(LineFormat(NAME, FIDELITY, Decoder, Counter, (b'"tokens"',)), session_files)


class TinkerAgent(Struct, frozen=True):
    name: str = NAME

    @property
    def source(self):
        return SOURCE

    def find(self, dirs):
        return FileListing(tuple(file for folder in dirs for file in find(folder)))

    def hooks(self):
        return None

    def find_plugin(self, config_dir):
        del config_dir
        return ""


AGENT = TinkerAgent()
