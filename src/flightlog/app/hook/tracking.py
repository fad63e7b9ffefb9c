"""Saving the files a session works on, where a person asked for it (`flightlog lab track`).

The agent waits for this, so that what is saved is what the tool left and nothing later; nobody
who did not ask for it pays more than one look for the list. Runs as a script, like `recorder`.
"""

import os
import sys

import gate  # type: ignore[import-not-found]

LIST = "tracked"


def find_tracked_root(home: str, folder: str) -> str:
    """The directory on the list that holds `folder`; empty when there is none."""
    try:
        file = os.open(os.path.join(home, LIST), os.O_RDONLY)
    except OSError:
        return ""
    try:
        listed = os.read(file, 1 << 16).decode("utf-8", "surrogateescape").split("\n")
    finally:
        os.close(file)
    held = [each for each in listed if each and (folder == each or folder.startswith(each + "/"))]
    return max(held, key=len, default="")


def save_tree(folder: str, session: str, call: str, lane: str) -> None:
    """Save the tree, and wait until that is done."""
    program = [sys.executable, "-P", "-m", "flightlog.app.snapshot", folder, session, call, lane]
    os.waitpid(os.posix_spawn(program[0], program, gate.child_environment(), file_actions=_null_file_actions()), 0)


def _null_file_actions() -> list[tuple[int, int, str, int, int]]:
    return [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
