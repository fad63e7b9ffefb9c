"""How driven: one driver per agent."""

from pathlib import Path

# Recordings that ship with the package, as a configuration directory of Claude Code.
SAMPLES = Path(__file__).parent / "scripted" / "recordings"
