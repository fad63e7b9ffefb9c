"""A finished run to ask again, made once by the scripted agent and copied for each test."""

import json
import shutil
from pathlib import Path

from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.resample.plan import Sweep
from flightlog.lab.resample.service import SamplingOptions, resample_edited, resample_grid
from flightlog.lab.resample.state import BatchLimits
from flightlog.lab.store import RunStore
from support import labs

SONNET = "claude-sonnet-4-5"
KEY = "sk-" + "ant-" + "test" * 8
SCRIPT = {
    "rules": [
        {
            "replies": [
                {"blocks": [{"thinking": "Look first.", "signature": "signed-1"}, labs.bash("ls")]},
                {
                    "blocks": [
                        {"thinking": "Now write.", "signature": "signed-2"},
                        labs.bash("echo hi > x"),
                    ]
                },
                {"text": "done"},
            ]
        }
    ]
}


def make_run(root: Path) -> Path:
    """Make the run; `root/runs/run` is its directory."""
    labs.run(root, labs.config(root, SCRIPT, "do it", engine="scripted"))
    return root


def copy_run(made: Path, root: Path) -> Path:
    """Copy it, as somebody who moved it would."""
    shutil.copytree(made / "runs", root / "runs", symlinks=True)
    (root / "home").mkdir(parents=True, exist_ok=True)
    return root / "runs" / "run"


def answers(run: Path, folder: str = "request_002") -> dict[str, dict]:
    """The samples of a request, by file name."""
    place = run / "session_01" / "resamples" / folder
    return {
        path.name: json.loads(path.read_bytes()) for path in sorted(place.glob("sample_*.json"))
    }


def holds(root: Path, word: str) -> list[str]:
    """Every file of a directory that holds a word."""
    files = (path for path in root.rglob("*") if path.is_file())
    return [str(path.relative_to(root)) for path in files if word.encode() in path.read_bytes()]


def book(run: Path) -> RunStore:
    """The run's book."""
    return service.open_run(open_runtime(), run.parent, run.name)


def sampling_options(url: str = "", **limits) -> SamplingOptions:
    """How samples are sent: quickly."""
    return SamplingOptions(
        BatchLimits(**({"wait_s": 0.01} | limits)), lambda *_: None, base_url=url
    )


def ask(run: Path, url: str = "", *, sweep=None, dry_run=False, **limits):
    """Ask again, as it was."""
    return resample_grid(
        open_runtime(),
        book(run),
        sweep or Sweep(requests=(2,)),
        sampling_options(url, **limits),
        dry_run=dry_run,
    )


def edit(run: Path, url: str, body, label="edit", **more):
    """Ask again with another body."""
    return resample_edited(
        open_runtime(),
        book(run),
        Sweep(requests=(2,), count=2, **more),
        body,
        label,
        sent=sampling_options(url),
    )
