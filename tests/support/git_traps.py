"""Clones that try to run a program: each way git has to be made to, with a marker file as the proof."""

import os
import subprocess
from pathlib import Path

WHO = {
    f"GIT_{who}_{what}": "x@example.com"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}
PROGRAMS = (
    *(
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "filter.a=b.clean",
        "diff.x.command",
        "diff.x.textconv",
    ),
    *(
        "diff.external",
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.askPass",
        "core.editor",
        "gpg.program",
    ),
    *(
        "core.gitProxy",
        "core.alternateRefsCommand",
        "credential.helper",
        "remote.origin.uploadpack",
    ),
    *(
        "remote.origin.receivepack",
        "uploadpack.packObjectsHook",
        "merge.x.driver",
        "gpg.ssh.program",
    ),
)
SETTINGS = {
    "user.name": "x",
    "user.email": "x@example.com",
    "filter.x.required": "true",
    "protocol.ext.allow": "always",
    "log.showSignature": "true",
    "submodule.deep.update": "!{0}",
    "diff.submodule": "diff",
    "status.submoduleSummary": "true",
    "credential.https://example.com.helper": "!{0}",
}


def git(folder: Path, *words: str, **more: str) -> str:
    """Run git as its author would."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **WHO,
        **more,
    }
    words = ("-c", "protocol.file.allow=always", *words)
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout


def clone(root: Path) -> tuple[Path, Path]:
    """Return a work tree whose own configuration runs a program wherever git lets it, and the marker it leaves."""
    top, marker = root / "clone", root / "PWNED"
    trap = root / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {marker}\ncat\n')
    trap.chmod(0o755)
    git(root, "init", "-q", "-b", "main", str(top))
    (top / ".gitattributes").write_text("* filter=x diff=x merge=x\n*.eq filter=a=b\n")
    for name in ("a.txt", "b.eq", "--output=x"):
        (top / name).write_text("one\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "first")
    _add_submodule(top, trap)
    _bare(top / "bare", top / ".gitattributes", trap)
    git(top, "add", "-A")
    _commit_signed(top)
    git(top, "update-ref", "refs/heads/--upload-pack=" + str(trap), "HEAD")
    git(top, "remote", "add", "origin", f"ext::{trap} %S")
    for name in PROGRAMS:
        git(top, "config", name, str(trap))
    for name, value in SETTINGS.items():
        git(top, "config", name, value.format(trap))
    (root / "more.config").write_text(f'[filter "y"]\n\tclean = {trap}\n')
    git(top, "config", "include.path", str(root / "more.config"))
    _hooks(top, trap)
    for name in ("a.txt", "b.eq"):  # git compares what has changed, and so filters it
        (top / name).write_text("two\n")
        os.utime(top / name, (1, 1))
    (top / "deep" / "d.txt").write_text("changed\n")
    marker.unlink(missing_ok=True)
    return top, marker


def bare(root: Path) -> tuple[Path, Path]:
    """Return the directory of a fresh clone that looks like a bare repository, with a filter in its configuration."""
    top, marker = root / "outer", root / "PWNED"
    git(root, "init", "-q", "-b", "main", str(top))
    trap = root / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    trap.chmod(0o755)
    _bare(top / "bare", top / "unused", trap)
    git(top, "add", "-A", "-f")
    git(top, "commit", "-q", "-m", "first")
    git(root, "clone", "-q", str(top), str(root / "fresh"))
    marker.unlink(missing_ok=True)
    return root / "fresh" / "bare", marker


def _bare(folder: Path, _: Path, trap: Path) -> None:
    """Make a directory that git takes for a repository whose work tree is beside it, all of it ordinary files."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    (tree / ".gitattributes").write_text("* filter=x\n")
    (tree / "a.txt").write_text("one\n")
    git(folder, "init", "-q", "-b", "main", "tree")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "x")
    for path in (tree / ".git").iterdir():
        if path.name not in {"hooks", "logs", "COMMIT_EDITMSG", "description", "branches"}:
            path.rename(folder / path.name)
    subprocess.run(["rm", "-rf", tree / ".git"], check=True)
    (folder / "refs" / "heads" / "keep").write_text(
        (folder / "refs" / "heads" / "main").read_text()
    )
    (folder / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = tree\n"
        f'\tfsmonitor = {trap}\n[filter "x"]\n\tclean = {trap}\n'
    )
    (tree / "a.txt").write_text("two\n")
    os.utime(tree / "a.txt", (1, 1))


def _add_submodule(top: Path, trap: Path) -> None:
    deep = top / "deep"
    git(top, "init", "-q", "-b", "main", str(deep))
    (deep / ".gitattributes").write_text("* filter=deep diff=deep\n")
    (deep / "d.txt").write_text("one\n")
    git(deep, "add", "-A")
    git(deep, "commit", "-q", "-m", "deep")
    git(top, "add", "deep")
    for name in (
        "filter.deep.clean",
        "filter.deep.process",
        "diff.deep.textconv",
        "core.fsmonitor",
    ):
        git(deep, "config", name, str(trap))


def _commit_signed(top: Path) -> None:
    """Make a commit with a signature: showing it would run the program that checks signatures."""
    tree = git(top, "write-tree").strip()
    head = git(top, "rev-parse", "HEAD").strip()
    signature = "-----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    who = "x <x@example.com> 1700000000 +0000"
    body = (
        f"tree {tree}\nparent {head}\nauthor {who}\ncommitter {who}\ngpgsig {signature}\n\nsigned\n"
    )
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=top, input=body, text=True,
        capture_output=True, check=True,
    ).stdout.strip()  # fmt: skip
    git(top, "update-ref", "HEAD", made)


def _hooks(top: Path, trap: Path) -> None:
    hooks = top / ".git" / "traps"
    hooks.mkdir()
    for name in (
        "post-index-change",
        "reference-transaction",
        "pre-push",
        "pre-commit",
        "post-checkout",
        "pre-auto-gc",
    ):
        (hooks / name).write_bytes(trap.read_bytes())
        (hooks / name).chmod(0o755)
    git(top, "config", "core.hooksPath", str(hooks))
