"""Judges that are not ours: Harbor's validators of two versions, and Inspect Scout's import.

They are put in .tools/judges by tools/install_judges.sh; when one is missing the test fails and
says so. Each call is one process for many files, because starting one takes seconds.
"""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2] / ".tools" / "judges"
HARBORS = ("0.25.0", "0.5.0")
STRICT = "0.5.0"  # knows nothing newer than version 1.6

_VALIDATE = """
import json, sys
from pathlib import Path
from harbor.utils.trajectory_validator import TrajectoryValidator
said = {}
for path in json.load(sys.stdin):
    validator = TrajectoryValidator()
    said[path] = [] if validator.validate(Path(path)) else list(validator.get_errors())
print(json.dumps(said))
"""

_IMPORT = """
import asyncio, json, sys
from inspect_scout.sources import atif

async def transcripts(path):
    said = {}
    async for each in atif(path=path):
        calls = [event.output.usage for event in each.events if event.event == "model"]
        said[each.source_uri] = {
            "messages": each.message_count,
            "prompt": sum(use.input_tokens + (use.input_tokens_cache_read or 0) for use in calls),
            "completion": sum(use.output_tokens for use in calls),
            "cached": sum(use.input_tokens_cache_read or 0 for use in calls),
            "own tokens": each.total_tokens or 0,
            "responses": len(calls),
            "compactions": sum(event.event == "compaction" for event in each.events),
            "subagents": sum(event.event == "span_begin" for event in each.events),
        }
    return said

print(json.dumps(asyncio.run(transcripts(sys.argv[1]))))
"""


def validate_files(version: str, paths: Iterable[Path]) -> dict[str, list[str]]:
    """What Harbor's validator of one version minds about each file; a valid one has no errors."""
    return _run_judge(version, _VALIDATE, given=json.dumps([str(path) for path in paths]))


def import_trajectories(folder: Path) -> dict[str, dict[str, int]]:
    """What Inspect Scout counts in each main trajectory below a directory."""
    return _run_judge(HARBORS[0], _IMPORT, str(folder))


def _run_judge(version: str, program: str, *arguments: str, given: str = "") -> dict:
    python, harbor = ROOT / "scout" / "bin" / "python", ROOT / f"harbor-{version}"
    for needed in (python, harbor):
        assert needed.exists(), (
            f"{needed.name} is not installed: run tools/install_judges.sh (make test does)"
        )
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(ROOT),
        "PYTHONPATH": str(harbor),
        "PYTHONUTF8": "1",
    }
    ran = subprocess.run(
        [python, "-c", program, *arguments],
        input=given,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])
