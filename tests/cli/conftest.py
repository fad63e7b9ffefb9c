"""Fixtures of the tests of `init` and `uninstall`."""

import os
import subprocess

import pytest

from cli.machines import settings
from support.real_agent import agent_program
from support.transcripts import user, write


@pytest.fixture
def machine(tmp_path):
    """A person's machine with one client on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(agent_program("2.1.325"))
    (tmp_path / "home").mkdir()
    path = os.pathsep.join([str(tmp_path / "bin"), "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": str(tmp_path / "home")}


@pytest.fixture
def project(machine, tmp_path):
    """A repository with a hook and instructions of its own, where a session was recorded."""
    top = tmp_path / "shop"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (top / ".git/hooks/pre-commit").write_text("#!/bin/sh\nexit 0\n")
    (top / "CLAUDE.md").write_text("# Shop\n\nUse tabs.\n")
    settings(machine).parent.mkdir()
    settings(machine).write_text('{\n    "model": "opus"\n}\n')
    write(settings(machine).parent, "aaaa", user("hello", cwd=str(top)))
    return top
