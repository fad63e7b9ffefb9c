"""The tutorial, run as written: every block that is marked `sh`, in one shell, on a machine that has nothing else."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MINUTES_MAX = 10
END = "=== end of block ==="


def blocks():
    """Each block of commands with the lines its output must hold."""
    pairs = []
    for kind, body in BLOCK.findall(PAGE.read_text("utf-8")):
        if kind == "sh":
            pairs.append((body, []))
        else:
            pairs[-1][1].extend(body.splitlines())
    return pairs


def offline():
    """Nothing to talk to but loopback, where that can be had."""
    return (
        ["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
        if os.geteuid() == 0
        else []
    )


def follow_tutorial(programs, home):
    """Run the blocks with the commands in the directory `programs`, in an empty `home`."""
    written = blocks()
    script = "set -e\n" + "".join(f"{body}\necho '{END}'\n" for body, _ in written)
    git = Path(shutil.which("git")).parent
    path = f"{programs}:{git}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "COLUMNS": "140", "TZ": "UTC"}
    began = time.monotonic()

    ran = subprocess.run([*offline(), "bash", "-c", script], cwd=home, env=env, stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, check=False, timeout=60 * MINUTES_MAX)  # fmt: skip

    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    outputs = ran.stdout.split(END)
    assert len(written) >= 12
    for (body, wanted), out in zip(written, outputs, strict=False):
        for line in wanted:
            form = ".*".join(re.escape(part.strip()) for part in line.split("…"))
            match = re.search(re.sub(r"(\\ )+", r"\\s+", form), out)
            assert match, f"{line!r} is not in what this says:\n{body}\n{out}"
    assert time.monotonic() - began < 60 * MINUTES_MAX


def test_the_tutorial_works_as_written(tmp_path):
    follow_tutorial(Path(sys.executable).parent, tmp_path)
