"""Registering the hook with the agent, and taking it out again."""

import shlex
from pathlib import Path

SCRIPT = Path(__file__).parent / "hook" / "record.py"


def command(python: Path, script: Path = SCRIPT, *, agent: str = "claude-code", inline: bool = False) -> str:
    """The hook as settings call it: silent, and exit 0 even when Python or the script is gone."""
    words = [str(python), "-I", "-S", str(script), agent, *(["--inline"] if inline else [])]
    return f"{shlex.join(words)} >/dev/null 2>&1 || :"
