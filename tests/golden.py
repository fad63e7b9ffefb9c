"""Golden files: what the code says now, held against what somebody has read and found right.

`make golden` writes them again; the diff is then reviewed like any other change.
"""

import os
from pathlib import Path

ROOT = Path(__file__).parent / "golden"


def matches(name: str, said: str) -> bool:
    """Compare `said` with the golden file `name`, or write it when asked to."""
    path = ROOT / name
    if os.environ.get("FLIGHTLOG_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(said, encoding="utf-8")
    return path.exists() and path.read_text(encoding="utf-8") == said
