"""The agent `tinker` of `support.agents`, registered while a test runs, and a session of it."""

import json
from contextlib import contextmanager
from pathlib import Path

from flightlog import agents
from flightlog.agents import RegisteredAgent, recordings

TINKER = RegisteredAgent("tinker", "Tinker", "TINKER_HOME", (".tinker",))
SESSION = "tinker-0001"
EDIT = {"path": "/home/dev/shop/cart.py", "oldText": "a = 1\n", "newText": "a = 2\nb = 3\n"}
RECORDS = (
    {"type": "start", "ms": 1_000, "cwd": "/home/dev/shop", "version": "0.9.1", "branch": "main"},
    {"type": "prompt", "ms": 2_000, "id": "p1", "text": "double the widgets"},
    {
        "type": "reply", "ms": 3_000, "id": "r1", "model": "claude-opus-4-5", "text": "editing",
        "thought": "the cart", "tools": [["c1", "edit", EDIT]], "tokens": [100, 20],
    },
    {"type": "result", "ms": 4_000, "id": "t1", "call": "c1", "text": "done"},
    {
        "type": "reply", "ms": 5_000, "id": "r2", "model": "claude-opus-4-5", "text": "testing",
        "tools": [["c2", "shell", {"command": "pytest"}]], "tokens": [130, 30],
    },
    {"type": "result", "ms": 6_000, "id": "t2", "call": "c2", "text": "1 failed", "exit": 1},
    {"type": "reply", "ms": 7_000, "id": "r3", "model": "claude-opus-4-5", "text": "bye", "tokens": [150, 5]},
)  # fmt: skip


@contextmanager
def registering_agent():
    """Register the agent, as its package and one line of the registry would."""
    before, folder = agents.REGISTRY, str(Path(__file__).parent / "agents")
    agents.__path__.append(folder)
    agents.REGISTRY = recordings.REGISTRY = (*before, TINKER)
    try:
        yield agents.find_agent("tinker")
    finally:
        agents.REGISTRY = recordings.REGISTRY = before
        agents.__path__.remove(folder)


def write_session(
    folder: Path, *more: dict, session: str = SESSION, cwd: str = "/home/dev/shop"
) -> Path:
    """Write a session of the agent, working in `cwd`, below its directory and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{session}.jsonl"
    start = 1_763_000_000_000
    records = [{**record, "ms": start + record["ms"]} for record in (*RECORDS, *more)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(text.replace("/home/dev/shop", cwd))
    return path
