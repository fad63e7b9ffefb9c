"""Whether more samples of a target are wanted: not once every share of its actions is known to a given width.

Reads each answer once, when it is first asked about after that came.
"""

import json
from collections import Counter
from pathlib import Path

from flightlog.lab.resampling.events import Target
from flightlog.lab.statistics.actions import of_response
from flightlog.lab.statistics.stopping import enough


class Widths:
    """The counts of each target so far."""

    def __init__(self, run: Path, width: float, work_dir: str) -> None:
        """Look at the answers of the run at `run`."""
        self._run = run
        self._width = width
        self._work_dir = work_dir
        self._seen: dict[Target, set[str]] = {}
        self._counts: dict[Target, Counter[str]] = {}

    def goes_on(self, target: Target) -> bool:
        """Whether another sample would tell something."""
        seen = self._seen.setdefault(target, set())
        counts = self._counts.setdefault(target, Counter())
        for item in target.items:
            if item.file not in seen and (key := self._action(item.file)):
                seen.add(item.file)
                counts[key] += 1
        return not enough(counts.values(), self._width)

    def _action(self, file: str) -> str:
        try:
            said = json.loads((self._run / file).read_bytes())
        except (OSError, ValueError):
            return ""
        content = said.get("content") if isinstance(said, dict) else None
        blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        return of_response(blocks, str(said.get("stop_reason") or ""), self._work_dir).key if blocks else ""
