"""Record how the real Claude Code attributes cache misses, for the tests of our own attribution.

    unshare --net sh -c 'ip link set lo up && .venv/bin/python -m tools.record_cache_cases [CASE …]'

A case is `tests/recordings/cache-causes/CASE/case.json`:

    note           what is done between which requests
    arguments      of the client's first start, `environment` for it, both optional
    mcp            for an MCP server `lab`: which of its files `ready` and `second` are there, optional
    rules          of the scenario beside those of the prompts, optional
    steps          what is done, one after the other:
      prompt       types it; `usage` is [cache read, cache write] of the scripted response, or `replies`
                   are several responses as in a scenario
      type         types a command, then presses `keys`; `until` is a pattern the screen then shows
      keys         presses them (tmux's names), with `until`
      touch        makes a file that the MCP server waits for, then waits `wait_s` seconds
      wait_s       waits
      start        leaves the client and starts it again with these arguments; {session} is the last one
      run          a whole run with `-p` and these arguments and the step's `prompt`
    requests       of the main thread in order: our verdict and causes, and the client's (null for none)

Written are `projects/…` as below the client's configuration directory, and `statusline.jsonl`, the
payloads of the client's status line (a run with `-p` has none). The model is scripted, and so are hits
and misses: a recording shows how the client attributes them, not what a server caches.

The client runs with private mounts as in tools/record_client.py (as root on Linux), and its words become
placeholders in the same way; the hashes of its request log stay as they were. Install the client and
tmux first: tools/install_agents.sh, tools/install_terminal.sh
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.record_client import (
    REPOSITORY,
    SEEN_ROOT,
    Scrubber,
    iter_strings,
    mount_prefix,
)

from flightlog.agents.scripted.scenario import Scenario, parse_scenario
from flightlog.agents.scripted.server import ScriptedModel, serve_scenario

sys.path.insert(0, str(REPOSITORY / "tests"))

from support.real_agent import Bench, agent_program, make_bench
from support.real_clients import ClientMachine, ClientRun
from support.terminal_client import TerminalClient

CASES = REPOSITORY / "tests" / "recordings" / "cache-causes"
# Answers once the file `ready` is beside it, and has a second tool once the file `second` is.
_MCP_SERVER = """
import json, sys, threading, time
from pathlib import Path

here = Path(__file__).parent

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def wait_for(name):
    while not (here / name).exists():
        time.sleep(0.05)

def announce():
    wait_for("second")
    send(method="notifications/tools/list_changed")

wait_for("ready")
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        server = {"name": "lab", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(id=request["id"], result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": server})
        threading.Thread(target=announce, daemon=True).start()
    elif method == "tools/list":
        names = ["tool1", "tool2"] if (here / "second").exists() else ["tool1"]
        schema = {"type": "object", "properties": {}}
        tools = [{"name": name, "description": "A tool of the lab.", "inputSchema": schema} for name in names]
        send(id=request["id"], result={"tools": tools})
    elif "id" in request:
        send(id=request["id"], error={"code": -32601, "message": "no such method"})
"""


def main(words: Sequence[str]) -> int:
    """Record the cases named, or all; return the exit code."""
    parser = argparse.ArgumentParser(
        "record_cache_cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="*", default=sorted(path.name for path in CASES.iterdir()))
    for name in parser.parse_args(words).case:
        with tempfile.TemporaryDirectory(prefix="record-") as root:
            record_case(CASES / name, Path(root))
    return 0


def record_case(directory: Path, root: Path) -> None:
    """Do the steps of the case in `directory` on a machine below `root`, and write its files."""
    case = json.loads((directory / "case.json").read_text())
    bench = make_bench(root / "machine", **case.get("environment", {}))
    prefix = mount_prefix(bench.root, agent_program(bench.version))
    with (
        serve_scenario(_build_scenario(case)) as model,
        TerminalClient(bench, model.url, prefix=prefix, seen_root=SEEN_ROOT) as client,
    ):
        _take_steps(client, bench, case)
    target = directory / "projects"
    shutil.rmtree(target, ignore_errors=True)
    _write_transcripts(bench, target, _learn_words(bench, model, case))
    lines = [json.dumps(payload) for payload in client.status_lines()]
    if lines:
        (directory / "statusline.jsonl").write_text("".join(f"{line}\n" for line in lines))
    print(f"{directory.name}: {len(lines)} status lines")


def _build_scenario(case: Mapping[str, Any]) -> Scenario:
    rules = list(case.get("rules", ()))
    for step in case["steps"]:
        if "prompt" in step:
            replies = step.get("replies") or [_reply(step)]
            rules.append({"when": {"prompt": step["prompt"]}, "replies": replies})
    return parse_scenario({"rules": rules})


def _reply(step: Mapping[str, Any]) -> dict[str, Any]:
    cache_read, cache_write = step["usage"]
    usage = {"input": 10, "output": 20, "cache_read": cache_read, "cache_write": cache_write}
    return {"text": f"Answered: {step['prompt']}", "usage": usage}


def _take_steps(client: TerminalClient, bench: Bench, case: Mapping[str, Any]) -> None:
    is_headless = any("run" in step for step in case["steps"])
    arguments = list(case.get("arguments", ()))
    if case.get("mcp"):
        (bench.root / "lab.py").write_text(_MCP_SERVER)
        server = {"command": "python3", "args": [str(SEEN_ROOT / "lab.py")]}
        arguments += ["--mcp-config", json.dumps({"mcpServers": {"lab": server}})]
        for name in case["mcp"]:
            (bench.root / name).touch()
    if not is_headless:
        client.start(*arguments)
    for step in case["steps"]:
        _take_step(client, bench, step)
    if not is_headless:
        client.stop()


def _take_step(client: TerminalClient, bench: Bench, step: Mapping[str, Any]) -> None:
    if "start" in step:
        client.stop()
        client.start(*_name_session(step["start"], bench))
    elif "run" in step:
        client.run_headless(*_name_session(step["run"], bench), step["prompt"])
    elif "prompt" in step:
        usage = step.get("usage") or [
            step["replies"][-1]["usage"][name] for name in ("cache_read", "cache_write")
        ]
        client.type_prompt(step["prompt"], *usage)
    if "touch" in step:
        (bench.root / step["touch"]).touch()
    if "type" in step:
        client.terminal.type_text(step["type"])
    client.terminal.press(*step.get("keys", ()))
    if "until" in step:
        client.terminal.wait_for(step["until"])
    time.sleep(step.get("wait_s", 0))


def _name_session(words: Sequence[str], bench: Bench) -> list[str]:
    files = sorted(bench.config.glob("projects/*/*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [word.replace("{session}", files[-1].stem if files else "") for word in words]


def _learn_words(bench: Bench, model: ScriptedModel, case: Mapping[str, Any]) -> Scrubber:
    run = ClientRun(0, "", "", 0, model.requests)
    replies = [_reply(step) for step in case["steps"] if "usage" in step]
    # A single word, such as the name of a kind of agent, is in the client's texts, too.
    own = [text for text in iter_strings([case, replies]) if " " in text]
    return Scrubber([run], own, ClientMachine(bench.root, "claude", bench.version))


def _write_transcripts(bench: Bench, target: Path, scrubber: Scrubber) -> None:
    source = bench.config / "projects"
    for path in _list_transcripts(source):
        written = target / path.relative_to(source)
        written.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines(keepends=True)
        written.write_text(scrubber.scrub_lines(lines, path.name, {})[0])


def _list_transcripts(source: Path) -> Iterator[Path]:
    return (path for path in sorted(source.rglob("*")) if path.suffix in {".jsonl", ".json"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
