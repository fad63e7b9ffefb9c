"""Fixtures of the retro tests."""

import subprocess

import pytest


@pytest.fixture
def place(tmp_path):
    (tmp_path / "config").mkdir()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path
