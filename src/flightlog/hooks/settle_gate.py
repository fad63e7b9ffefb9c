"""At most one detached settle per session; work-tree snapshot requests.

Whoever holds the lock on `settle.lock` runs `flightlog settle`; the kernel gives it back when the
holder dies, so no marker can go stale. Who finds it held leaves `settle.again`, and the holder
goes round once more. The runner is detached from the agent: own session, no stdio, no key in
its environment. Runs as a script, like `recorder`.

The agent waits for this, so that what is saved is what the tool left and nothing later; nobody
who did not ask for it pays more than one look for the list. Runs as a script, like `recorder`.
"""

import _signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import sys
import time

DEBOUNCE_S = 0.15
LIMIT_S = 120.0
ROUNDS_MAX = 20
PATIENCE_S = {"SessionEnd": 1.0}  # the agent gives all hooks of its end 1.5 s together.
PATIENCE_OTHERS_S = 8.0
_KEPT = ("CLAUDE_CONFIG_DIR", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
_KEPT_PREFIXES = ("FLIGHTLOG_", "XDG_")
LIST = "tracked"


def settle_command(session: str) -> list[str]:
    """The settle of one session; -P because the agent's project is not a place to import from."""
    return [sys.executable, "-P", "-m", "flightlog", "settle", session]


def run_settle_once(directory: str, program: list[str], wait_s: float) -> None:
    """Have `program` run once for `directory`, detached; wait for it up to `wait_s`."""
    lock = os.open(os.path.join(directory, "settle.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if not _try_lock(lock):
        _request_another_run(directory)
        # The holder may have looked for the mark just before we made it.
        if not _try_lock(lock, wait_s):
            return
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            _detach_from_agent(keep=(lock, writer))
            _run_due(directory, program, lock, 0 if wait_s else DEBOUNCE_S)
        finally:
            os._exit(0)
    os.close(writer)
    os.close(lock)
    if wait_s:
        select.select([reader], [], [], wait_s)


def _run_due(directory: str, program: list[str], lock: int, debounce_s: float) -> None:
    """Run until nobody has asked again, the lock given back included."""
    for _ in range(ROUNDS_MAX):
        time.sleep(debounce_s)
        _clear_request(directory)
        _run_with_limit(program)
        if not _is_run_requested(directory):
            fcntl.flock(lock, fcntl.LOCK_UN)
            if not _is_run_requested(directory) or not _try_lock(lock):
                return


def _run_with_limit(program: list[str]) -> None:
    """Run `program` to its end; past the limit it goes, and we with it."""
    _signal.signal(_signal.SIGALRM, lambda *_: os.killpg(0, _signal.SIGKILL))
    _signal.setitimer(_signal.ITIMER_REAL, LIMIT_S)
    os.waitpid(os.posix_spawn(program[0], program, child_environment()), 0)
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def child_environment() -> dict[str, str]:
    """The environment of what we start: no key of the agent's."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}


def _detach_from_agent(keep: tuple[int, int]) -> None:
    """Leave the agent's group, terminal, directory and pipes; only the lock is handed down."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stdio in (0, 1, 2):
        os.dup2(null, stdio)
    low, high = sorted(keep)
    for start, end in ((3, low), (low + 1, high), (high + 1, 256)):
        os.closerange(start, end)
    os.set_inheritable(keep[0], True)


def _try_lock(lock: int, wait_s: float = 0) -> bool:
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
        else:
            return True


def _request_another_run(directory: str) -> None:
    os.close(os.open(os.path.join(directory, "settle.again"), os.O_WRONLY | os.O_CREAT, 0o600))


def _clear_request(directory: str) -> None:
    if _is_run_requested(directory):
        os.unlink(os.path.join(directory, "settle.again"))


def _is_run_requested(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, "settle.again"))


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
    os.waitpid(os.posix_spawn(program[0], program, child_environment(), file_actions=_null_file_actions()), 0)


def _null_file_actions() -> list[tuple[int, int, str, int, int]]:
    return [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
