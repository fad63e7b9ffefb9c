"""How the real Claude Code attributed cache misses, as a test asks for it.

`tests/recordings/cache-causes/CASE/` was made by `tools/record_cache_cases.py`, which says what is in it.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "recordings" / "cache-causes"
CASES = sorted(path.name for path in ROOT.iterdir())


def read_case(case: str) -> dict[str, Any]:
    """What was done in a case, and the verdicts on its requests: ours and the client's."""
    return json.loads((ROOT / case / "case.json").read_text())


def read_status_lines(case: str) -> list[dict[str, Any]]:
    """The payloads of the client's status line; none for a case without a terminal."""
    path = ROOT / case / "statusline.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def client_verdicts(payloads: list[dict[str, Any]]) -> list[tuple[str, list[str] | None]]:
    """The client's verdict and causes for each request, from what changed between its payloads."""
    verdicts: list[tuple[str, list[str] | None]] = []
    last: dict[str, Any] = {}
    for payload in payloads:
        cache = payload.get("prompt_cache")
        if cache is None:  # a new session, or a new process
            last = {}
        elif cache["requests"] > last.get("requests", 0):
            verdicts += _verdicts_between(last, cache)
            last = cache
    return verdicts


def _verdicts_between(
    last: dict[str, Any], cache: dict[str, Any]
) -> list[tuple[str, list[str] | None]]:
    if not last:
        assert cache["requests"] == 1
        return [("cold", None)]
    requests = cache["requests"] - last["requests"]
    misses = cache["misses"] - last["misses"]
    rebuilds = cache["expected_rebuilds"] - last["expected_rebuilds"]
    if not misses + rebuilds:
        return [("hit", None)] * requests
    assert requests == 1, "one of several requests was a miss"
    cause = cache["last_miss_cause"] or {}
    return [("miss", cause.get("causes")) if misses else ("rebuild", None)]
