"""Runs the tests with every process measured, and names the files whose lines they run too few of.

A child of a test gets its own environment, so coverage starts from the virtual environment's site-packages, for as
long as the run lasts. The hooks start Python with `-S`, which skips site-packages: the tests run in a copy of the
virtual environment whose `python` drops that option. Tests that count loaded modules or time fail under it; their
outcome is not what is measured.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "coverage"
CORE = ("agents", "model", "sources", "usage", "views")
CORE_MIN, OTHERS_MIN = 95.0, 85.0
REASONS = {
    "store/compression.py": "has one import for Python 3.14 and one for the versions before it",
    "mcp/file_history.py": "runs in a child that the server kills once it has the answer; the figures are lost",
}
_START = (
    "import os; os.environ.setdefault('COVERAGE_PROCESS_START', {rc!r}); "
    "import coverage; coverage.process_startup()\n"
)
# `exec -a` keeps the path of the copy, by which Python finds the virtual environment.
_PYTHON = """#!/bin/bash
words=()
for word; do [[ ${{#words[@]}} -lt 3 && $word == -S ]] || words+=("$word"); done
exec -a "$0" {python} "${{words[@]}}"
"""


def measure(arguments: list[str]) -> None:
    """Run pytest; the figures of all its processes are combined below build/coverage."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in BUILD.glob(".coverage*"):
        old.unlink()
    rc = BUILD / "coveragerc"
    rc.write_text(
        f"[run]\nsource = {ROOT / 'src' / 'flightlog'}\ndata_file = {BUILD / '.coverage'}\nparallel = true\n"
        "concurrency = thread\nsigterm = true\npatch = _exit, fork\n"
        "[report]\nexclude_also =\n    if TYPE_CHECKING:\n    assert_never\n",
        "utf-8",
    )
    start = Path(sysconfig.get_path("purelib")) / "flightlog_coverage.pth"
    start.write_text(_START.format(rc=str(rc)), "utf-8")
    try:
        words = ["-n", "2", "--dist", "worksteal", "-q", "-m", "not soak", "-p", "no:cacheprovider"]
        subprocess.run(
            [str(_copy_environment()), "-m", "pytest", *words, *arguments], cwd=ROOT, check=False
        )
    finally:
        start.unlink()
    for words in (["combine", "-q"], ["json", "-q", "-o", str(BUILD / "coverage.json")]):
        subprocess.run(
            [sys.executable, "-m", "coverage", *words, f"--rcfile={rc}"], cwd=BUILD, check=True
        )


def _copy_environment() -> Path:
    """Return the `python` of a copy of this virtual environment that never skips site-packages."""
    copy, original = BUILD / "venv", Path(sys.prefix)
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "bin").mkdir(parents=True)
    (copy / "lib").symlink_to(original / "lib")
    (copy / "pyvenv.cfg").write_bytes((original / "pyvenv.cfg").read_bytes())
    for program in (original / "bin").iterdir():
        (copy / "bin" / program.name).symlink_to(program)
    for name in ("python", "python3", Path(sys.executable).name):
        program = copy / "bin" / name
        program.unlink(missing_ok=True)
        program.write_text(
            _PYTHON.format(python=shlex.quote(os.path.realpath(sys.executable))), "utf-8"
        )
        program.chmod(0o755)
    return copy / "bin" / "python"


def files_below_limit() -> list[tuple[float, float, str]]:
    """Return share, limit and name of each file with less than its limit, the lowest first."""
    report = json.loads((BUILD / "coverage.json").read_text("utf-8"))
    below = []
    for path, figures in report["files"].items():
        name = path.rpartition("src/flightlog/")[2]
        limit = CORE_MIN if name.partition("/")[0] in CORE else OTHERS_MIN
        share = figures["summary"]["percent_covered"]
        if share < limit:
            below.append((share, limit, name))
    return sorted(below)


if __name__ == "__main__":
    measure(sys.argv[1:])
    unexplained = 0
    for share, limit, name in files_below_limit():
        unexplained += name not in REASONS
        print(f"{share:5.1f} % of {limit:.0f} %  {name}  {REASONS.get(name, '')}")
    sys.exit(unexplained > 0)
