"""The client of MCP's own SDK, a judge that is not ours, uses the server."""

import json
import subprocess

import pytest

from support.cli_runs import FLIGHTLOG, environment
from support.judges import ROOT
from support.transcripts import SESSION, assistant, user, write

PROGRAM = """
import asyncio, json, sys
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    program, cwd, environment, mode = json.load(sys.stdin)
    server = StdioServerParameters(command=program, args=["mcp"], env=environment, cwd=cwd)
    said = {}
    async with Client(stdio_client(server), mode=mode) as client:
        said["version"] = client.protocol_version
        said["server"] = client.server_info.name
        said["instructions"] = client.instructions
        listed = await client.list_tools()
        said["tools"] = {tool.name: tool.input_schema["required"] for tool in listed.tools}
        calls = {
            "search": {"query": "lantern"}, "open": {"address": sys.argv[1] + "#1.1"}, "sessions": {},
            "usage": {"scope": "project"}, "file_history": {"path": "lantern.py"},
        }
        for name, given in calls.items():
            result = await client.call_tool(name, given)
            said[name] = [result.is_error, result.structured_content, [block.text for block in result.content]]
        refused = await client.call_tool("open", {"address": "nowhere"})
        said["refused"] = [refused.is_error, refused.content[0].text]
        try:
            await client.call_tool("destroy", {})
        except MCPError as error:
            said["unknown tool"] = error.error.code
        try:
            await client.list_prompts()
        except MCPError as error:
            said["unknown method"] = error.error.code
        # Four run at a time, so the last of many still waits when it is canceled.
        running = [asyncio.ensure_future(client.call_tool("search", {"query": "lantern"})) for _ in range(24)]
        await asyncio.sleep(0.01)
        running[-1].cancel()
        try:
            await running[-1]
        except asyncio.CancelledError:
            said["canceled"] = True
        said["after"] = [result.is_error for result in await asyncio.gather(*running[:-1])]
    print(json.dumps(said))

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_passes_every_tool_list_error_and_cancellation(tmp_path, mode):
    (tmp_path / "shop").mkdir()
    where = {"cwd": str(tmp_path / "shop")}
    block = {"type": "text", "text": "It is lit."}
    write(
        tmp_path, SESSION, user("light the lantern", 1, **where), assistant("m", 2, block, **where)
    )
    python = ROOT / "scout" / "bin" / "python"
    assert python.exists(), "the judges are not installed: run tools/install_judges.sh"
    given = [str(FLIGHTLOG), str(tmp_path / "shop"), environment(tmp_path), mode]

    done = subprocess.run(
        [python, "-c", PROGRAM, SESSION], input=json.dumps(given), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["server"] == "flightlog"
    assert report["tools"] == {
        "search": ["query"], "open": ["address"], "sessions": [], "usage": [], "file_history": ["path"],
    }  # fmt: skip
    for name in report["tools"]:
        is_error, structured, (text,) = report[name]
        assert (is_error, structured) == (False, None)
        assert text.startswith("[flightlog mcp] ")
    assert report["refused"][0]
    assert (report["unknown tool"], report["unknown method"]) == (-32602, -32601)
    assert report["canceled"]
    assert report["after"] == [False] * 23
