"""A finished run to ask again, made once by the scripted agent and copied for each test."""

import json
import shutil
from pathlib import Path

import labs

KEY = "sk-" + "ant-" + "test" * 8
SCRIPT = {
    "rules": [
        {
            "replies": [
                {"blocks": [{"thinking": "Look first.", "signature": "signed-1"}, labs.bash("ls")]},
                {"blocks": [{"thinking": "Now write.", "signature": "signed-2"}, labs.bash("echo hi > x")]},
                {"text": "done"},
            ]
        }
    ]
}


def finished(root: Path) -> Path:
    """Make the run; `root/runs/run` is its directory."""
    labs.run(root, labs.config(root, SCRIPT, "do it", engine="scripted"))
    return root


def copied(made: Path, root: Path) -> Path:
    """Copy it, as somebody who moved it would."""
    shutil.copytree(made / "runs", root / "runs", symlinks=True)
    (root / "home").mkdir(parents=True, exist_ok=True)
    return root / "runs" / "run"


def answers(run: Path, folder: str = "request_002") -> dict[str, dict]:
    """The samples of a request, by file name."""
    place = run / "session_01" / "resamples" / folder
    return {path.name: json.loads(path.read_bytes()) for path in sorted(place.glob("sample_*.json"))}


def holds(root: Path, word: str) -> list[str]:
    """Every file of a directory that holds a word."""
    files = (path for path in root.rglob("*") if path.is_file())
    return [str(path.relative_to(root)) for path in files if word.encode() in path.read_bytes()]
