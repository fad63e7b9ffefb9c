"""A copy of the project with one thing broken, and what a test of it says there.

The copy has a Python environment of its own, which finds the broken package and everything else
where it is installed: programs the tests start, with an environment of their own, find it too.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from tools.promises.breaks import Break

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src", "flightlog")
LIMIT_S = 600  # for all tests unbroken; a broken one that takes this long has not been noticed
_FAILED = 1  # what pytest says when a test failed; another number means that it could not be tried
_TOO_LONG = -1
_PROGRAM = "#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({name}())\n"


def is_noticed(broken: Break, folder: Path) -> bool:
    """Break the promise in a copy below `folder` and say whether its test fails there."""
    root = copy_project(folder, broken)
    ran = run_tests(root, [broken.test])
    output = (root / "said.txt").read_text("utf-8", "replace")[-2000:]
    assert ran in {0, _FAILED, _TOO_LONG}, (
        f"{broken.test} could not be tried: pytest ends with {ran}\n{output}"
    )
    return ran == _FAILED


def copy_project(folder: Path, broken: Break | None = None) -> Path:
    """Copy the project, broken or not, and give it programs of its own; return where it is."""
    root = folder / "copy"
    root.mkdir(parents=True)
    for name in ("src", "tests", "tools"):
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
        )
    for name in ("pyproject.toml", "README.md", "docs", ".tools"):
        if (ROOT / name).exists():
            (root / name).symlink_to(ROOT / name)
    if broken is not None:
        path = root / PACKAGE / broken.file
        path.write_text(break_text(path.read_text("utf-8"), broken), "utf-8")
    _environment(root)
    return root


def break_text(text: str, broken: Break) -> str:
    """The text of a file with the break in it."""
    count = text.count(broken.old)
    assert count == 1, (
        f"{broken.promise}: what is broken stands {count} times in {broken.file}: {broken.old!r}"
    )
    return text.replace(broken.old, broken.new)


def run_tests(root: Path, tests: Sequence[str]) -> int:
    """Run tests in the copy and return what pytest says; past the limit they are ended."""
    words = [
        _python(root),
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not soak",
        *tests,
    ]
    with (root / "said.txt").open("wb") as output:
        running = subprocess.Popen(
            words, cwd=root, stdout=output, stderr=output, env=_plain(), start_new_session=True
        )
        try:
            return running.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return _TOO_LONG
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


def _environment(root: Path) -> None:
    """Make an environment whose first place for packages is the copy, and whose second is ours."""
    venv.create(root / ".venv", with_pip=False, symlinks=True)
    inside = sysconfig.get_path(
        "purelib", vars={"base": str(root / ".venv"), "platbase": str(root / ".venv")}
    )
    Path(inside, "copy.pth").write_text(
        f"{root / 'src'}\n{sysconfig.get_path('purelib')}\n", "utf-8"
    )
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    for program, place in scripts.items():
        module, _, name = place.partition(":")
        path = root / ".venv" / "bin" / program
        path.write_text(_PROGRAM.format(python=_python(root), module=module, name=name), "utf-8")
        path.chmod(0o755)


def _python(root: Path) -> str:
    return str(root / ".venv" / "bin" / Path(sys.executable).name)


def _plain() -> dict[str, str]:
    left_out = {"PYTHONPATH", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"}
    return {name: value for name, value in os.environ.items() if name not in left_out}
