"""The errors of docs/how-to/troubleshoot.md, made on purpose: each command prints what the page says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "troubleshoot.md"
SAMPLES = ROOT / "src" / "flightlog" / "agents" / "scripted" / "recordings"
BLOCK = re.compile(r"^```text\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def make_person(top):
    """Return the directory and the environment of a person with three sessions and no agent.

    One session has a line that a killed agent left torn.
    """
    shutil.copytree(SAMPLES, top / ".claude")
    (torn,) = (top / ".claude" / "projects").glob("*/7575a0bb*.jsonl")
    torn.write_bytes(torn.read_bytes() + b'{"broken\n{"type":"user"}\n')
    project = top / "project"
    project.mkdir()
    path = f"{Path(sys.executable).parent}:{Path(shutil.which('git')).parent}:/usr/bin:/bin"
    return project, {"PATH": path, "HOME": str(top), "LANG": "C.UTF-8", "TZ": "UTC"}


def test_every_error_of_the_page_is_printed_as_it_says(tmp_path):
    project, env = make_person(tmp_path)
    written = BLOCK.findall(PAGE.read_text("utf-8"))
    wrong = []

    for command, lines in written:
        ran = subprocess.run(
            ["bash", "-c", command], cwd=project, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        printed = ran.stdout + ran.stderr
        wrong += [
            f"{command}\n{line}\nis not in\n{printed}"
            for line in lines.splitlines()
            if not re.search(".*".join(map(re.escape, line.split("…"))), printed)
        ]

    assert len(written) >= 14
    assert wrong == [], "\n\n".join(wrong)
