"""Start at most one detached settle per session, and wait for it if asked; save work-tree snapshots.

The process that holds the lock on `settle.lock` runs `flightlog settle`; the kernel releases the
lock when the holder dies, so no marker can go stale. A hook that finds it locked creates
`settle.again`, and the holder runs once more. The runner is detached from the agent: own
session, no stdio, no key in its environment. Runs as a script, like `recorder`.

The agent waits for a snapshot, so that it holds what the tool left and nothing later. If no
directory is tracked, that costs one look for the list.
"""

import _signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import sys
import time

from flightlog.hooks import writer

DEBOUNCE_S = 0.15  # the last events of a turn arrive together
PROMPT_S = 0.3  # the agent writes a prompt to its transcript a moment after the event
LIMIT_S = 120.0
ROUNDS_MAX = 20  # then the next event starts a new runner
# Longest waits for a settle. In a project that collects rows the agent waits at the events after
# which its machine may end, because a detached settle would end with the machine. A settle that
# takes longer than half a second at Stop goes on beside the agent; the next event completes it.
PATIENCE_ROWS_S = {"Stop": 0.4, "SessionEnd": 7.5}
PATIENCE_INLINE_S = (
    7.5  # below the 10 s that our settings give the hook, and `docker stop` a machine
)
_ENVIRONMENT = tuple(
    "CLAUDE_CONFIG_DIR HOME LANG LC_ALL LOGNAME ML_COLLECTION_ENABLED PATH TMPDIR TZ USER".split()
)
_ENVIRONMENT_PREFIXES = ("FLIGHTLOG_", "XDG_")
LIST = "tracked"


def find_command(*, is_installed: bool = True) -> list[str]:
    """Return how flightlog is called: by this Python, or the program on the path; [] if neither.

    -P, to import nothing from the project; for the same reason only absolute paths are searched.
    """
    if is_installed:
        return [sys.executable, "-P", "-m", "flightlog"]
    folders = os.environ.get("PATH", "").split(os.pathsep)
    programs = (os.path.join(folder, "flightlog") for folder in folders if os.path.isabs(folder))
    files = filter(os.path.isfile, programs)
    return next(([path] for path in files if os.access(path, os.X_OK)), [])


def settle_command(session: str, command: list[str], *, is_end: bool = False) -> list[str]:
    """Return the command that settles one session."""
    return [*command, "settle", session, *(["--ended"] if is_end else [])]


def run_settle_once(
    directory: str, program: list[str], wait_s: float, debounce_s: float = DEBOUNCE_S
) -> None:
    """Run `program` once for `directory`, detached; wait for it up to `wait_s`."""
    again = os.path.join(directory, "settle.again")
    path = os.path.join(directory, "settle.lock")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if not writer.try_lock(lock, 0):
        os.close(os.open(again, os.O_WRONLY | os.O_CREAT, 0o600))
        # The holder may have looked for the file just before we created it.
        if not writer.try_lock(lock, wait_s):
            return
    reader, sender = os.pipe()
    if os.fork() == 0:
        _settle_and_exit(again, program, (lock, sender), 0 if wait_s else debounce_s)
    os.close(sender)
    os.close(lock)
    if wait_s:
        select.select([reader], [], [], wait_s)


def _settle_and_exit(
    again: str, program: list[str], keep: tuple[int, int], debounce_s: float
) -> None:
    """Run `program` detached, as the child; the pipe in `keep` closes when it is done."""
    try:
        _detach_from_agent(keep)
        _run_until_done(again, program, keep[0], debounce_s)
    finally:
        os._exit(0)


def _run_until_done(again: str, program: list[str], lock: int, debounce_s: float) -> None:
    """Run until the file `again` is missing, also after the lock was released."""
    for _ in range(ROUNDS_MAX):
        time.sleep(debounce_s)
        if os.path.exists(again):
            os.unlink(again)
        _run_with_limit(program)
        if not os.path.exists(again):
            fcntl.flock(lock, fcntl.LOCK_UN)
            if not os.path.exists(again) or not writer.try_lock(lock, 0):
                return


def _run_with_limit(program: list[str]) -> None:
    """Run `program` to its end; past the limit, kill it and this process."""
    _signal.signal(_signal.SIGALRM, lambda *_: os.killpg(0, _signal.SIGKILL))
    _signal.setitimer(_signal.ITIMER_REAL, LIMIT_S)
    os.waitpid(os.posix_spawn(program[0], program, child_environment()), 0)
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def child_environment() -> dict[str, str]:
    """Return the environment of a child process, without the agent's keys."""
    names = [name for name in os.environ if name.startswith(_ENVIRONMENT_PREFIXES)]
    return {name: os.environ[name] for name in (*names, *_ENVIRONMENT) if name in os.environ}


def _detach_from_agent(keep: tuple[int, int]) -> None:
    """Leave the agent's group, terminal, directory and pipes; children inherit only the lock."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stdio in (0, 1, 2):
        os.dup2(null, stdio)
    low, high = sorted(keep)
    for start, end in ((3, low), (low + 1, high), (high + 1, 256)):
        os.closerange(start, end)
    os.set_inheritable(keep[0], True)


def find_tracked_root(home: str, folder: str) -> str:
    """Return the tracked directory that contains `folder`; empty if there is none."""
    listed = writer.read_file(os.path.join(home, LIST), writer.DIRECTORIES_BYTES_MAX)
    roots = listed.decode("utf-8", "surrogateescape").split("\n")
    matching = [root for root in roots if root and f"{folder}/".startswith(f"{root}/")]
    return max(matching, key=len, default="")


def save_tree(folder: str, session: str, call: str, subagent: str) -> None:
    """Save a snapshot of the work tree, and wait until that is done."""
    program = [sys.executable, "-P", "-m", "flightlog.app.snapshot"]
    program += [folder, session, call, subagent]
    no_stdio = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    os.waitpid(os.posix_spawn(program[0], program, child_environment(), file_actions=no_stdio), 0)
