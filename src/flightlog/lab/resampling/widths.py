"""Whether more samples of a target are wanted: not once every share of its actions is known to a given width.

Reads each answer once, when it is first asked about after that came.
"""

import json
from collections import Counter
from pathlib import Path

from flightlog.lab.resampling.events import SampleTarget
from flightlog.lab.statistics.actions import action_of_response
from flightlog.lab.statistics.stopping import has_enough_samples


class StoppingRule:
    """The counts of each target so far."""

    def __init__(self, run: Path, width: float, work_dir: str) -> None:
        """Look at the answers of the run at `run`."""
        self._run = run
        self._width = width
        self._work_dir = work_dir
        self._seen: dict[SampleTarget, set[str]] = {}
        self._counts: dict[SampleTarget, Counter[str]] = {}

    def needs_more_samples(self, target: SampleTarget) -> bool:
        """Whether another sample would tell something."""
        seen = self._seen.setdefault(target, set())
        counts = self._counts.setdefault(target, Counter())
        for item in target.items:
            if item.answer_file not in seen and (key := self._read_action_key(item.answer_file)):
                seen.add(item.answer_file)
                counts[key] += 1
        return not has_enough_samples(counts.values(), self._width)

    def _read_action_key(self, file: str) -> str:
        try:
            said = json.loads((self._run / file).read_bytes())
        except (OSError, ValueError):
            return ""
        content = said.get("content") if isinstance(said, dict) else None
        blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        return action_of_response(blocks, str(said.get("stop_reason") or ""), self._work_dir).key if blocks else ""
