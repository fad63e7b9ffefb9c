"""`python -m flightlog.agents.scripted.play SCENARIO CONFIG_DIR SESSION PROMPT`: one session of the scripted agent.

Speaks stream-json on standard output as Claude Code does, so that whoever drives one drives both.
"""

import json
import sys
import time
import uuid
from pathlib import Path

from flightlog.agents.scripted import load, serve
from flightlog.agents.scripted.agent import Desk, ScriptedAgent
from flightlog.model.errors import FlightlogError


def main(arguments: list[str]) -> int:
    """Let the agent work on the prompt in the current directory."""
    scenario, config, session, prompt = arguments
    _say({"type": "system", "subtype": "init", "session_id": session})
    try:
        with serve(load(Path(scenario))) as model:
            desk = Desk(
                model.url, Path.cwd(), Path(config), lambda: time.time_ns() // 1_000_000, lambda: str(uuid.uuid4())
            )
            agent = ScriptedAgent(desk, session)
            text = agent.ask(prompt)
    except FlightlogError as error:
        _say({"type": "result", "is_error": True, "result": error.message, "session_id": session})
        return 1
    for line in agent.transcript.read_text("utf-8").splitlines():
        record = json.loads(line)
        if record.get("type") == "assistant":
            _say({"type": "assistant", "message": record["message"], "session_id": session})
    _say({"type": "result", "is_error": False, "result": text, "session_id": session})
    return 0


def _say(record: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
