"""Puts the pages' front-end assets into the package when it is built or installed.

The packages are pinned by checksum in package-lock.json and come through npm; nothing of them
is in the repository. If npm is missing or fails, the build goes on and says so: everything but
the charts and the live filters works without them, and the pages say how to get them. A source
archive contains them, so installing from one needs no npm.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent
VENDOR = HERE.parents[1] / "src/flightlog/web/static/vendor"
FILES = {
    "htmx.js": "htmx.org/dist/htmx.min.js",
    "d3.js": "d3/dist/d3.min.js",
    "plot.js": "@observablehq/plot/dist/plot.umd.min.js",
}
LICENCES = {
    "htmx.LICENSE": "htmx.org/LICENSE",
    "d3.LICENSE": "d3/LICENSE",
    "plot.LICENSE": "@observablehq/plot/LICENSE",
}
NPM_S_MAX = 60  # with the packages in reach it takes 2 s
WITHOUT = "the pages will have no charts and no live filters; to try again: make install"


class AssetsHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Called by hatchling before a wheel, an editable install or a source archive is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch the assets unless they are there."""
        del version, build_data
        fetch()


def fetch() -> None:
    """Install the pinned packages in a directory of their own and copy what the pages load."""
    lock = (HERE / "package-lock.json").read_bytes()
    stamp = VENDOR / "package-lock.json"
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    npm = shutil.which("npm")
    if npm is None:
        print(f"npm is missing: {WITHOUT}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        command = [
            npm,
            "ci",
            "--prefix",
            folder,
            "--omit=dev",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            # One retry after a second: npm's own two would wait 70 s for a registry out of reach.
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
            "--fetch-timeout=20000",
            "--loglevel=error",
        ]
        try:
            subprocess.run(command, check=True, stdout=sys.stderr, timeout=NPM_S_MAX)
        except subprocess.TimeoutExpired:
            print(f"npm took more than {NPM_S_MAX} s: {WITHOUT}", file=sys.stderr)
            return
        except (subprocess.CalledProcessError, OSError):
            print(f"npm failed: {WITHOUT}", file=sys.stderr)
            return
        VENDOR.mkdir(parents=True, exist_ok=True)
        for name, source in (FILES | LICENCES).items():
            shutil.copy(Path(folder) / "node_modules" / source, VENDOR / name)
    stamp.write_bytes(lock)
