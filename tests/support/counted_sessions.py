"""Sessions of Claude Code whose token counts follow the scripted model's rule for blocks.

A session is made like a client would: it keeps the messages of the next request, the model's rule
counts them (`count_blocks`), and the records of the transcript are written beside. So the truth
about each request is known block by block, and nothing of the measurement is used to make it.
"""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flightlog.agents.scripted.scenario import Reply, ScriptedBlock
from support.scripted_apis.counts import BlockCount, count_blocks, count_reply, count_text
from support.transcripts import MODEL, SESSION, stamp, write

TOOLS = ("Bash", "Read", "Grep", "mcp__github__search", "mcp__shop__list")
SENTENCE = "the log says that nothing in the test for a basket of fruit has changed today"
WORDS = SENTENCE.split()


@dataclass
class CountedRequest:
    """What one request held, and what the tools of its calls are named."""

    body: dict
    blocks: tuple[BlockCount, ...]
    tool_names: dict[str, str]


@dataclass
class CountedThread:
    """One thread: its records, the messages of the next request and the requests that were sent."""

    dice: random.Random
    agent: str = ""
    count: Callable[[str], int] = count_text
    records: list[dict] = field(default_factory=list)
    requests: list[CountedRequest] = field(default_factory=list)
    messages: list[dict] = field(default_factory=list)
    tool_names: dict[str, str] = field(default_factory=dict)
    servers: int = 1
    sent: str = ""
    sent_hashes: list[str] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)

    def prompt(self, text: str, **fields: object) -> None:
        self.messages.append({"role": "user", "content": text})
        self.add("user", message={"role": "user", "content": text}, **fields)

    def remind(self, kind: str, text: str, **attached: object) -> None:
        """Add what the client puts beside a prompt or a result."""
        self.messages.append({"role": "system", "content": [{"type": "text", "text": text}]})
        rendered = [{"content": text}]
        self.add("attachment", attachment={"type": kind, **attached}, rendered=rendered)

    def compact(self, summary: str) -> None:
        self.messages = []
        self.add("system", subtype="compact_boundary", compactMetadata={"trigger": "auto"})
        self.prompt(summary, isCompactSummary=True)

    def answer(self, *content: dict) -> None:
        """Send the messages, and take `content` as the response."""
        body = {"system": SYSTEM, "tools": self.tools(), "messages": list(self.messages)}
        blocks = count_blocks(body, self.count)
        self.requests.append(CountedRequest(body, blocks, self.tool_names))
        scripted = tuple(ScriptedBlock(**_script(block)) for block in content)
        counts = count_reply(Reply(blocks=scripted), blocks, self.count).usage
        self._log_request(body)
        name = f"msg_{self.agent}{len(self.requests)}"
        usage = {
            "input_tokens": counts["input"],
            "cache_read_input_tokens": counts["cache_read"],
            "cache_creation_input_tokens": counts["cache_write"],
            "output_tokens": counts["output"],
        }
        message = {"id": name, "model": MODEL, "role": "assistant", "stop_reason": "end_turn"}
        message |= {"content": list(content), "usage": usage}
        self.add("assistant", message=message, requestRef=self.sent, requestId=f"req_{name}")
        self.messages.append({"role": "assistant", "content": list(content)})

    def give_results(self, results: dict[str, str]) -> None:
        parts = [
            {"type": "tool_result", "tool_use_id": call, "content": text}
            for call, text in results.items()
        ]
        self.messages.append({"role": "user", "content": parts})
        for part in parts:
            self.add("user", message={"role": "user", "content": [part]})

    def add(self, kind: str, **fields: object) -> None:
        number = len(self.records) + 1
        record = {"type": kind, "uuid": f"{self.agent}u{number}", "timestamp": stamp(number)}
        record["parentUuid"] = f"{self.agent}u{number - 1}" if number > 1 else None
        side = {"isSidechain": True, "agentId": self.agent} if self.agent else {}
        self.records.append(
            {**record, "sessionId": SESSION, "cwd": "/home/ada/shop", **side, **fields}
        )

    def tools(self) -> list[dict]:
        names = [
            *TOOLS[:3],
            *(f"mcp__server{n}__tool{m}" for n in range(self.servers) for m in "ab"),
        ]
        return [{"name": name, "description": f"{name} {DESCRIPTION}"} for name in names]

    def _log_request(self, body: dict) -> None:
        shape = {"system": body["system"], "tools": body["tools"]}
        name = _digest(shape)
        if name not in self.shapes:
            self.shapes.add(name)
            self.records.append({"type": "api-request-shape", "shapeHash": name, "shape": shape})
        hashes = [_digest(message) for message in body["messages"]]
        keep = len(self.sent_hashes) if hashes[: len(self.sent_hashes)] == self.sent_hashes else 0
        before = {"base": self.sent} if keep else {}
        self.sent, self.sent_hashes = f"request-{self.agent}{len(self.requests)}", hashes
        side = {"agentId": self.agent} if self.agent else {}
        self.records.append(
            {
                "type": "api-request",
                "id": self.sent,
                "timestamp": stamp(len(self.records)),
                "shapeHash": name,
                "params": {"model": MODEL},
                "keep": keep,
                "tail": hashes[keep:],
                **before,
                **side,
            }
        )


def make_session(
    config: Path, seed: int, count: Callable[[str], int] = count_text
) -> dict[str, CountedThread]:
    """Write the session of `seed` and return its threads; the main one is ""."""
    dice = random.Random(seed)
    main = CountedThread(dice, count=count)
    threads = {"": main}
    for turn in range(dice.randint(2, 5)):
        if turn and dice.random() < 0.25:
            main.compact(_text(dice, 2_000))
        main.prompt(_text(dice, dice.randint(40, 2_000)))
        if not main.requests or len(main.messages) <= 2:
            _remind_of_memory(main)
        if turn and dice.random() < 0.2:
            main.servers += dice.choice((1, 2, -1)) if main.servers > 1 else 1
        _work(main, dice.randint(2, 12))
        if dice.random() < 0.3:
            threads[f"a{turn}"] = _start_subagent(main, f"a{turn}")
        main.answer({"type": "text", "text": _text(dice, 300)})
    path = write(config, SESSION, *main.records)
    for name, thread in threads.items():
        if name:
            file = path.with_suffix("") / "subagents" / f"agent-{name}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(record) + "\n" for record in thread.records))
    return threads


def _remind_of_memory(thread: CountedThread) -> None:
    notes = _text(thread.dice, 1_200)
    files = [{"path": "/home/ada/shop/CLAUDE.md", "type": "Project", "content": notes}]
    thread.remind("instructions", notes, files=files)
    thread.remind("skill_listing", _text(thread.dice, 3_000))


def _work(thread: CountedThread, steps: int) -> None:
    dice = thread.dice
    for _ in range(steps):
        calls, tool = {}, dice.choice(TOOLS)
        for _ in range(dice.choices((1, 2, 3), (17, 2, 1))[0]):
            name = f"toolu_{len(thread.tool_names)}{thread.agent}"
            # Calls at once are mostly several of one tool.
            calls[name] = thread.tool_names[name] = dice.choices(
                (tool, dice.choice(TOOLS)), (2, 1)
            )[0]
        blocks = [{"type": "text", "text": _text(dice, 120)}]
        if dice.random() < 0.1:
            blocks.insert(0, {"type": "thinking", "thinking": _text(dice, 600), "signature": "s"})
        for name, tool in calls.items():
            word = "packages/shop/tests/" if dice.random() < 0.5 else ""
            arguments = {"command": word * 3 + _text(dice, 60)}
            blocks.append({"type": "tool_use", "id": name, "name": tool, "input": arguments})
        thread.answer(*blocks)
        results = {name: _text(dice, _result_chars(dice)) for name in calls}
        for name in (name for name in results if dice.random() < 0.3):
            results[name] = results[name].replace(" ", "_", len(results[name]) // 10)
        thread.give_results(results)
        if dice.random() < 0.06:
            thread.remind("todo_reminder", _text(dice, 200))


def _start_subagent(main: CountedThread, name: str) -> CountedThread:
    call, prompt = f"toolu_agent{name}", _text(main.dice, 400)
    main.tool_names[call] = "Agent"
    main.answer({"type": "tool_use", "id": call, "name": "Agent", "input": {"prompt": prompt}})
    agent = CountedThread(main.dice, name, main.count)
    agent.prompt(prompt)
    _work(agent, main.dice.randint(1, 5))
    agent.answer({"type": "text", "text": "Done."})
    main.give_results({call: _text(main.dice, 800)})
    return agent


def _result_chars(dice: random.Random) -> int:
    return int(min(40 + dice.expovariate(1 / 6_000), 60_000))


def _text(dice: random.Random, chars: int) -> str:
    return " ".join(dice.choices(WORDS, k=chars // 4 + 2))[:chars].strip() or "ok"


def _script(block: dict) -> dict:
    if block["type"] == "tool_use":
        return {"tool": block["name"], "input": block["input"]}
    return {block["type"]: block[block["type"]]}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


SYSTEM = [{"type": "text", "text": " ".join(WORDS * 60)}]
DESCRIPTION = " ".join(WORDS * 12)
