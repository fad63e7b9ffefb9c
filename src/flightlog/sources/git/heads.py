"""What is checked out, as git's own files say it: a question asked after each turn, without a process.

Answers only what the plain files say beyond doubt. Whatever else there is (another way of keeping refs, a ref
that points to a ref, a new repository) gives None, and git is to be asked.
"""

import re
from contextlib import suppress
from pathlib import Path

_BRANCH = "refs/heads/"
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NOT_HERE = ".invalid"  # what git writes into HEAD where refs are kept in tables


def find_common_dir(top: Path) -> Path:
    """Return what all work trees of a repository share."""
    git_dir = top / ".git"
    with suppress(OSError):
        if git_dir.is_file():
            own = (top / git_dir.read_text().removeprefix("gitdir:").strip()).resolve()
            shared = own / "commondir"
            return (own / shared.read_text().strip()).resolve() if shared.exists() else own
    return git_dir.resolve()


def read_branch(top: Path) -> str | None:
    """Return the branch that is checked out in the work tree at `top`; empty when none is."""
    said = _read_head(top)
    if said is None or _HASH.fullmatch(said):
        return said if said is None else ""
    name = said.removeprefix("ref: ").removeprefix(_BRANCH)
    return name if said == f"ref: {_BRANCH}{name}" and name != _NOT_HERE else None


def read_tip(top: Path, common: Path) -> str | None:
    """Return the commit that is checked out in the work tree at `top`."""
    said = _read_head(top)
    if said is None or _HASH.fullmatch(said):
        return said
    name = read_branch(top)
    if not name:
        return None
    loose = _read_text(common / _BRANCH / name)
    if loose is not None:
        return loose if _HASH.fullmatch(loose) else None
    packed = _read_text(common / "packed-refs") or ""
    found = re.search(rf"^({_HASH.pattern}) {re.escape(_BRANCH + name)}$", packed, re.MULTILINE)
    return found[1] if found else None


def _read_head(top: Path) -> str | None:
    """Return what HEAD of this work tree says, whether its `.git` is a directory or names one."""
    git = top / ".git"
    if git.is_dir():
        return _read_text(git / "HEAD")
    said = _read_text(git)
    return _read_text(top / said.removeprefix("gitdir: ") / "HEAD") if said and said.startswith("gitdir: ") else None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None
