"""`python -m flightlog.agents.scripted.play`: one session of the scripted agent as a process of its own.

Speaks as Claude Code does with `-p --output-format stream-json`: an `init` record, then a `result`.
The model's address and the place for transcripts come from the variables the client reads too.
"""

import argparse
import json
import os
import sys
import time
import uuid
from pathlib import Path

from flightlog.agents.scripted.agent import STEPS_MAX, VERSION, ScriptedAgent, ScriptedEnvironment, StepLimitReached
from flightlog.model.errors import FlightlogError


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
