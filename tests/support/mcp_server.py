"""Our MCP server as a client starts it: a process that answers one JSON line at a time."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cli_runs import FLIGHTLOG

PROTOCOL = "2025-11-25"


class McpServer:
    """A running server; `call` answers a tool, `ask` any other method."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0

    def send(self, message: object) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, "the server ended"
        return json.loads(line)

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        answer = self.receive()
        assert answer["id"] == self._number
        return answer

    def call(self, name: str, **arguments: object) -> str:
        """Call a tool and return its text; a refusal begins with "refused: "."""
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        assert set(result) == {"content", "isError"}, "text alone: clients hide it otherwise"
        (block,) = result["content"]
        return f"refused: {block['text']}" if result["isError"] else block["text"]


@contextmanager
def run_server(
    environment: dict[str, str], cwd: Path, *options: str, client: str = "test"
) -> Iterator[McpServer]:
    """Start the server in `cwd` and introduce a client; it ends with the block."""
    process = subprocess.Popen(
        [FLIGHTLOG, "mcp", *options],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    server = McpServer(process)
    try:
        server.ask("initialize", protocolVersion=PROTOCOL, clientInfo={"name": client})
        yield server
    finally:
        process.stdin.close()
        assert process.wait(10) == 0
        process.stdout.close()
