"""Standing between private files and git: git itself is asked what it tracks or would add.

Two questions for each file: may its kind be tracked (`tiers`), and does its text hold a
secret. The hooks ask the same and let git go on when they cannot ask: a guard that is not
installed right must not stop anybody's work.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import NotFound
from flightlog.model.pages import Tier
from flightlog.privacy import tiers
from flightlog.privacy.detect import engine
from flightlog.privacy.detect.hits import MEDIUM, SECRET
from flightlog.privacy.redact import masked
from flightlog.store import files, settings_file

_TEXT_BYTES_MAX = 4 << 20
_MARK = "# flightlog privacy guard"
_BEFORE = "before-flightlog"
HOOKS = ("pre-commit", "pre-push")


class Verdict(Struct, frozen=True):
    """What the guard says of one file."""

    path: str
    state: str  # tracked, staged or addable
    tier: str
    rule: str
    fine: bool
    why: str = ""


def check(repository: Path, *, scan: bool = True) -> list[Verdict]:
    """Return a verdict for each file of ours that git tracks, has staged or would add, and for staged secrets."""
    staged = set(_git(repository, "diff", "--cached", "--name-only", "--diff-filter=d", "-z"))
    tracked = set(_git(repository, "ls-files", "-z"))
    addable = set(_git(repository, "ls-files", "--others", "--exclude-standard", "-z"))
    verdicts: list[Verdict] = []
    for path in sorted(tracked | staged | addable):
        state = "staged" if path in staged else "tracked" if path in tracked else "addable"
        verdicts += _verdicts(repository, path, state, scan=scan)
    return verdicts


def install_guard(repository: Path, *, command: str = "flightlog") -> list[Path]:
    """Put the guard before commits and pushes; hooks of other people stay and run first. Return what changed."""
    folder = _hooks_folder(repository)
    made = []
    for name in HOOKS:
        hook = folder / name
        before = folder / f"{name}.{_BEFORE}"
        if hook.exists() and _MARK not in hook.read_text(errors="replace") and not before.exists():
            files.renamed(hook, before.name)
        script = _script(name, command).encode()
        if not hook.exists() or hook.read_bytes() != script:
            files.replace(hook, script, mode=0o755)
            made.append(hook)
    return made


def remove_guard(repository: Path) -> list[Path]:
    """Take the guard out again; a hook that was there before comes back."""
    gone = []
    for hook in guards(repository):
        before = hook.with_name(f"{hook.name}.{_BEFORE}")
        settings_file.remove(hook)
        if before.exists():
            files.renamed(before, hook.name)
        gone.append(hook)
    return gone


def guards(repository: Path) -> list[Path]:
    """Return where the guard stands in a repository."""
    folder = _hooks_folder(repository)
    hooks = [folder / name for name in HOOKS]
    return [hook for hook in hooks if hook.is_file() and _MARK in hook.read_text(errors="replace")]


def _hooks_folder(repository: Path) -> Path:
    return repository / _git(repository, "rev-parse", "--git-path", "hooks", nul=False)[0]


def _verdicts(repository: Path, path: str, state: str, *, scan: bool) -> Iterator[Verdict]:
    known = tiers.kind_of(path)
    tier, rule = (known[1].tier, f"{known[0].room}: {known[1].name} ({known[1].path})") if known else (None, "")
    if tier is not None:
        fine = tier is Tier.TRACKED
        why = "" if fine else f"{tier.value} files do not belong in git"
        yield Verdict(path, state, tier.value, rule, fine, why)
    if scan and (state == "staged" or tier is Tier.TRACKED):
        yield from _secrets(repository, path, state)


def _secrets(repository: Path, path: str, state: str) -> Iterator[Verdict]:
    data = _staged_bytes(repository, path) if state == "staged" else _file_bytes(repository / path)
    for found in engine.find(data) if b"\0" not in data[:8000] else ():
        if found.kind == SECRET and found.weight >= MEDIUM:
            line = data.count(b"\n", 0, found.start) + 1
            why = f"line {line} holds what looks like a secret: {masked(found.value)}"
            yield Verdict(path, state, "", found.rule, fine=False, why=why)


def _staged_bytes(repository: Path, path: str) -> bytes:
    shown = subprocess.run(["git", "show", f":{path}"], cwd=repository, capture_output=True, check=False)
    return shown.stdout[:_TEXT_BYTES_MAX]


def _file_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_TEXT_BYTES_MAX)
    except OSError:
        return b""


def _git(repository: Path, *words: str, nul: bool = True) -> list[str]:
    done = subprocess.run(["git", *words], cwd=repository, capture_output=True, check=False)
    if done.returncode:
        raise NotFound(f"not a git repository: {repository}", hint="run it inside one, or make one with: git init")
    text = done.stdout.decode("utf-8", "surrogateescape")
    return [name for name in text.split("\0") if name] if nul else text.splitlines()


def _script(name: str, command: str) -> str:
    given = "$(cat)" if name == "pre-push" else ""  # git tells a push what it pushes on standard input
    return f"""#!/bin/sh
{_MARK}: no private file and no secret leaves with git.
# Another hook that was here before runs first. Exit 1 of the check stops git; any other failure does not.
given={given}
before="$0.{_BEFORE}"
if [ -x "$before" ]; then
  printf '%s\\n' "$given" | "$before" "$@" || exit $?
fi
command -v {command} >/dev/null 2>&1 || exit 0
{command} privacy check --quiet </dev/null 1>&2
[ $? -eq 1 ] || exit 0
echo "{name} stopped: see above, or go on with --no-verify" >&2
exit 1
"""
