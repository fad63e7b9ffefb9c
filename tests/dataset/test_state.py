import subprocess
import tempfile
from pathlib import Path

from flightlog.dataset.state import MARK, find_collecting_root
from support.unprivileged import run_unprivileged


def test_unreadable_mark_counts_as_absent():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q", folder], check=True)
        mark = root / ".git" / MARK
        mark.parent.mkdir(parents=True)
        mark.touch()
        root.chmod(0o755)
        assert find_collecting_root(root) == root
        mark.parent.chmod(0)

        assert run_unprivileged(lambda: find_collecting_root(root)) is None
        mark.parent.chmod(0o700)
