"""A room of its own for an agent: its tree at a path others use too, and an end that leaves nobody behind.

Linux only, through `unshare` and `setpriv`: a mount namespace shows a private tree at a shared
path; a process namespace dies whole with the agent; and the agent dies with whoever started it,
however that ended. Without these programs, or where they are forbidden, there is no room, and the
caller does one thing after the other. Knows nothing of agents: it makes the words before a command.
"""

import enum
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

PROBE_TIMEOUT_S = 10
# The tree is mounted first; only then does the agent's own working directory mean the private one.
_ENTER = 'n=$1; shift; while [ "$n" -gt 0 ]; do mount --bind -- "$1" "$2" || exit 125; shift 2; n=$((n-1)); done; '
_GO = 'cd -- "$1" || exit 125; shift; exec "$@"'
# Every other mount becomes read-only; one that cannot be ends it, so that nothing runs unguarded.
_SEAL = (
    'w=$1; shift; mount --bind -- "$w" "$w" || exit 125; while read -r _ _ _ _ m _; do case "$m" in '
    '"$w"|/proc|/proc/*|/sys|/sys/*|/dev|/dev/*) ;; *) mount -o remount,bind,ro -- "$m" || exit 125 ;; esac; '
    'done < /proc/self/mountinfo; cd -- "$w" || exit 125; exec "$@"'
)
_LEASH = ("setpriv", "--pdeathsig", "KILL")
_PROCESSES = ("--pid", "--fork", "--kill-child", "--mount-proc")


class IsolationMode(enum.Enum):
    """How a room can be had here."""

    ROOT = "mount namespace"
    USER = "mount namespace of an ordinary user"
    NONE = "none"


class BindMount(Struct, frozen=True):
    """What is to be seen at `path`."""

    private: Path
    path: Path


def probe_isolation(path: str) -> IsolationMode:
    """Try whether a room can be had, with programs found on the search path `path`."""
    means = IsolationMode.ROOT if os.geteuid() == 0 else IsolationMode.USER
    try:
        tried = subprocess.run(
            [*isolation_prefix(means, (), Path("/")), "true"],
            env={"PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return IsolationMode.NONE
    return means if tried.returncode == 0 else IsolationMode.NONE


def isolation_prefix(means: IsolationMode, mounts: Sequence[BindMount], cwd: Path) -> tuple[str, ...]:
    """The words to put before a command so that it sees `mounts`, works in `cwd` and dies with its caller."""
    assert means is not IsolationMode.NONE, "there is no room to be had"
    pairs = [str(each) for mount in mounts for each in (mount.private, mount.path)]
    return _namespace_prefix(means, ("sh", "-c", _ENTER + _GO, "sh", str(len(mounts)), *pairs, str(cwd)))


def read_only_prefix(means: IsolationMode, writable: Path) -> tuple[str, ...]:
    """The words to put before a command so that it can write in `writable` and nowhere else, and works there."""
    assert means is not IsolationMode.NONE, "there is no room to be had"
    return _namespace_prefix(means, ("sh", "-c", _SEAL, "sh", str(writable)))


def _namespace_prefix(means: IsolationMode, inner: tuple[str, ...]) -> tuple[str, ...]:
    if means is IsolationMode.ROOT:
        return (*_LEASH, "unshare", "--mount", *_PROCESSES, *inner)
    # An ordinary user is root in there for the mounts alone, and itself again before the agent starts.
    again = ("unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}")
    return (*_LEASH, "unshare", "--user", "--map-root-user", "--mount", *_PROCESSES, *inner, *again)


def parent_death_prefix(path: str) -> tuple[str, ...]:
    """The words that make a command die with its caller, where the system can; else none."""
    try:
        tried = subprocess.run([*_LEASH, "true"], env={"PATH": path}, capture_output=True, check=False)
    except OSError:
        return ()
    return _LEASH if tried.returncode == 0 else ()
