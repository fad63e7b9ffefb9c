"""What real agents wrote, as a test asks for it.

`tests/recordings/` holds the transcripts of real Claude Code runs of 14 versions against a
scripted model; a test gets them copied into a configuration directory of its own.
"""

import shutil
from pathlib import Path

from flightlog.archive.archive import Archive

ROOT = Path(__file__).parents[1] / "recordings" / "claude-code"
CASES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/*"))
# The archive that goldens are printed from: a new recording does not change them all.
FROZEN_CASES = [case for case in CASES if "interactive-queued" not in case]


def config_dir(where: Path, *cases: str) -> Path:
    """Lay out a configuration directory that holds these cases, one project each."""
    for case in cases:
        shutil.copytree(ROOT / case / "transcripts", where / "projects" / case.replace("/", "-"))
    return where


def archive(where: Path, *cases: str) -> Archive:
    """Open these cases as an archive."""
    return Archive({"claude-code": (str(config_dir(where, *cases)),)})
