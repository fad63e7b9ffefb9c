"""Command prefixes that isolate an agent: private mounts, and an end that leaves no process behind.

Linux only, through `unshare` and `setpriv`: a mount namespace shows a private tree at a shared
path; a process namespace ends with the agent; and the kernel kills the agent when its parent dies.
Without these programs, or where they are forbidden, there is no isolation, and callers run agents
one after the other.
"""

import enum
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

PROBE_TIMEOUT_S = 10
# `cd` comes after the mounts: a directory entered before them would be the shared one.
_ENTER = 'n=$1; shift; while [ "$n" -gt 0 ]; do mount --bind -- "$1" "$2" || exit 125; shift 2; n=$((n-1)); done; '
_GO = 'cd -- "$1" || exit 125; shift; exec "$@"'
# Remount everything else read-only; if one mount refuses, exit instead of running unguarded.
_SEAL = (
    'w=$1; shift; mount --bind -- "$w" "$w" || exit 125; while read -r _ _ _ _ m _; do case "$m" in '
    '"$w"|/proc|/proc/*|/sys|/sys/*|/dev|/dev/*) ;; *) mount -o remount,bind,ro -- "$m" || exit 125 ;; esac; '
    'done < /proc/self/mountinfo; cd -- "$w" || exit 125; exec "$@"'
)
_PARENT_DEATH = ("setpriv", "--pdeathsig", "KILL")
_PROCESSES = ("--pid", "--fork", "--kill-child", "--mount-proc")


class IsolationMode(enum.Enum):
    """The kind of isolation that this machine allows."""

    ROOT = "mount namespace"
    USER = "mount namespace of an ordinary user"
    NONE = "none"


class BindMount(Struct, frozen=True):
    """Show the directory `private` at `path`."""

    private: Path
    path: Path


def probe_isolation(path: str) -> IsolationMode:
    """Return the isolation that works here, tested with the programs on the search path `path`."""
    mode = IsolationMode.ROOT if os.geteuid() == 0 else IsolationMode.USER
    works = _succeeds([*isolation_prefix(mode, (), Path("/")), "true"], path)
    return mode if works else IsolationMode.NONE


def isolation_prefix(
    mode: IsolationMode, mounts: Sequence[BindMount], cwd: Path
) -> tuple[str, ...]:
    """Return the prefix of a command that sees `mounts` in `cwd` and dies with its caller."""
    pairs = [str(path) for mount in mounts for path in (mount.private, mount.path)]
    inner = ("sh", "-c", _ENTER + _GO, "sh", str(len(mounts)), *pairs, str(cwd))
    return _namespace_prefix(mode, inner)


def read_only_prefix(mode: IsolationMode, writable: Path) -> tuple[str, ...]:
    """Return the prefix of a command that works in `writable` and can write nowhere else."""
    return _namespace_prefix(mode, ("sh", "-c", _SEAL, "sh", str(writable)))


def _namespace_prefix(mode: IsolationMode, inner: tuple[str, ...]) -> tuple[str, ...]:
    assert mode is not IsolationMode.NONE, "no isolation on this machine"
    if mode is IsolationMode.ROOT:
        return (*_PARENT_DEATH, "unshare", "--mount", *_PROCESSES, *inner)
    # An ordinary user is root for the mounts only, and itself again before the agent starts.
    unroot = ("unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}")
    unshare = ("unshare", "--user", "--map-root-user", "--mount")
    return (*_PARENT_DEATH, *unshare, *_PROCESSES, *inner, *unroot)


def parent_death_prefix(path: str) -> tuple[str, ...]:
    """Return the prefix of a command that dies with its caller; empty where the system has none."""
    return _PARENT_DEATH if _succeeds([*_PARENT_DEATH, "true"], path) else ()


def _succeeds(command: Sequence[str], path: str) -> bool:
    try:
        process = subprocess.run(
            command,
            env={"PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0
