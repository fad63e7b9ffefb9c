"""A person's machine on which `init` and `uninstall` run."""

import json
import subprocess
import sys
from pathlib import Path

FLIGHTLOG = [sys.executable, "-m", "flightlog"]


def init(machine, *arguments, **more):
    return subprocess.run(
        [*FLIGHTLOG, "init", *arguments],
        env=machine,
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


def settings(machine):
    return home(machine) / ".claude" / "settings.json"


def home(machine):
    return Path(machine["HOME"])


def read(machine):
    return json.loads(settings(machine).read_text())


def uninstall(machine, *arguments, **more):
    words = [*FLIGHTLOG, "uninstall", *arguments]
    return subprocess.run(words, env=machine, capture_output=True, text=True, check=False, **more)


def contents(*folders):
    return {
        path: path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
