"""The build goes on without npm's packages, quickly and without a traceback, and says so."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "import sys; sys.path.insert(0, sys.argv[1]); import build_hook; build_hook.NPM_S_MAX = 2; build_hook.fetch()"
NPM = {
    "fails": "#!/bin/sh\necho 'npm error network' >&2\nexit 1\n",
    "hangs": "#!/bin/sh\nexec sleep 60\n",
}


@pytest.mark.parametrize("npm", [*NPM, "missing"])
def test_a_build_without_the_packages_goes_on_and_says_so(tmp_path, npm):
    web, programs = tmp_path / "tools/web", tmp_path / "bin"
    shutil.copytree(ROOT / "tools/web", web)
    programs.mkdir()
    if npm in NPM:
        (programs / "npm").write_text(NPM[npm])
        (programs / "npm").chmod(0o755)
    path = f"{programs}:/bin" if npm in NPM else str(programs)
    began = time.monotonic()

    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(web)],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert "no charts and no live filters; to try again: " in ran.stderr
    assert time.monotonic() - began < 20
    assert not (tmp_path / "src/flightlog/web/static/vendor/package-lock.json").exists()


def test_make_install_begins_again_where_the_scripts_are_missing(tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copytree(ROOT / "tools/web", tmp_path / "tools/web")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    done = tmp_path / ".venv/.run"
    make = ["make", "PYTHON=python3", "-C", str(tmp_path)]

    for _ in range(2):
        ran = subprocess.run([*make, "install"], capture_output=True, text=True, check=True)
        assert "to try again: make install" in ran.stderr
    again = subprocess.run([*make, ".venv/.run"], capture_output=True, text=True, check=True)

    assert done.exists()
    assert again.stderr == ""
