"""The programs flightlog is measured against, installed by name and run without their launchers.

A peer that cannot be had here is missing from the table by name, never silently.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple


class Peer(NamedTuple):
    """A program that was found, or why it was not."""

    name: str
    program: Path | None
    version: str


def peers(folder: Path) -> dict[str, Peer]:
    """Install what is not there yet below `folder`."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(
        platform.machine().lower(), platform.machine()
    )
    place = f"{sys.platform}-{machine}"
    libc = "-musl" if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "") else "-gnu"
    packages = {
        "ccusage": f"@ccusage/ccusage-{place}",
        "tokscale": f"@tokscale/cli-{place}{libc if sys.platform == 'linux' else ''}",
    }
    installed = {name: _from_npm(name, package, folder) for name, package in packages.items()}
    return installed | {"agentsview": _from_pypi("agentsview", folder)}


def status_peer(folder: Path) -> Peer:
    """Install the status line that is a script for Node."""
    home = folder / "status"
    program = home / "node_modules" / "ccstatusline" / "dist" / "ccstatusline.js"
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        if not shutil.which("npm"):
            return Peer("ccstatusline", None, "npm is not installed")
        _quietly(
            [
                "npm",
                "install",
                "--prefix",
                str(home),
                "--no-save",
                "--no-audit",
                "--no-fund",
                "ccstatusline",
            ]
        )
    if not program.exists():
        return Peer("ccstatusline", None, "ccstatusline cannot be had")
    package = json.loads((program.parents[1] / "package.json").read_text())
    return Peer("ccstatusline", program, str(package.get("version", "?")))


def _from_npm(name: str, package: str, folder: Path) -> Peer:
    home = folder / name
    program = home / "node_modules" / package / "bin" / name
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        if not shutil.which("npm"):
            return Peer(name, None, "npm is not installed")
        _quietly(
            [
                "npm",
                "install",
                "--prefix",
                str(home),
                "--no-save",
                "--no-audit",
                "--no-fund",
                package,
            ]
        )
    if not program.exists():
        return Peer(name, None, f"{package} cannot be had")
    program.chmod(0o755)
    return Peer(name, program, _version(program))


def _from_pypi(name: str, folder: Path) -> Peer:
    home = folder / name
    program = home / "bin" / name
    if not program.exists():
        venv.create(home, with_pip=True)
        _quietly([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", name])
    native = [
        path
        for path in home.glob(f"lib/*/site-packages/{name}/bin/{name}")
        if os.access(path, os.X_OK)
    ]
    if not native and not program.exists():
        return Peer(name, None, f"{name} cannot be had")
    return Peer(name, native[0] if native else program, _version(native[0] if native else program))


def _version(program: Path) -> str:
    words = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout.split()
    return next((word for word in words if word.lstrip("v")[:1].isdigit()), "?")


def _quietly(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
