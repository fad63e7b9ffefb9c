"""Golden files: output that a person has read and found right, compared with what the code prints now.

`make golden` writes them again; the diff is then reviewed like any other change.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1] / "golden"
DIFF_LINES_MAX = 400


def assert_golden(name: str, text: str) -> None:
    """Fail with a unified diff unless `text` equals the golden file `name`; write the file if asked to."""
    assert_all_golden({name: text})


def assert_all_golden(texts: Mapping[str, str]) -> None:
    """Do the same for several files, and show what differs in all of them."""
    __tracebackhide__ = True
    if os.environ.get("FLIGHTLOG_GOLDEN") == "write":
        for name, text in texts.items():
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    lines = [line for name, text in texts.items() for line in diff(name, text)]
    cut = [f"... {len(lines) - DIFF_LINES_MAX} more lines"] if len(lines) > DIFF_LINES_MAX else []
    if lines:
        raise AssertionError("\n".join(["not as golden:", *lines[:DIFF_LINES_MAX], *cut]))


def diff(name: str, text: str) -> list[str]:
    """Return how `text` differs from the golden file `name`, as the lines of a unified diff."""
    path = ROOT / name
    if not path.exists():
        return [f"{path} does not exist; write it with: make golden"]
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        golden = file.read()
    if golden == text:
        return []
    names = (f"golden/{name}", f"printed/{name}")
    return list(
        difflib.unified_diff(golden.split("\n"), text.split("\n"), *names, n=2, lineterm="")
    )
