"""Who may see which file: one table of kinds, and the git files made from it.

Deny by default: what the table does not name is private. The order of the ignore file is
that of the source document: ignore all, let directories in, ignore what is in them, let
the safe files in; git cannot let in a file whose directory is ignored.
"""

import re
from pathlib import PurePosixPath

from msgspec import Struct

from flightlog.model.output_files import Tier


class FileKind(Struct, frozen=True):
    """A kind of file in a layout; `path` is relative to its root, `*` stays within a name."""

    name: str
    path: str
    tier: Tier
    grows: bool = False  # lines are only added, so that both sides of a merge are kept


class TierLayout(Struct, frozen=True):
    """The files of one room under one directory."""

    room: str
    root: str
    kinds: tuple[FileKind, ...]


_PRIVATE, _SHAREABLE, _TRACKED = Tier.PRIVATE, Tier.SHAREABLE, Tier.TRACKED
_KEEP = FileKind("keep", "*/.gitkeep", _TRACKED)

LAYOUTS = (
    TierLayout(
        "retro",
        ".chat-retro-runtime",
        (
            FileKind("debug", "logs/debug.jsonl", _PRIVATE),
            FileKind("audit", "logs/debug_*.jsonl", _SHAREABLE),
            FileKind("metrics", "logs/metrics.jsonl", _TRACKED, grows=True),
            FileKind("issue", "issues/issue_*.json", _TRACKED),
            FileKind("changelog", "issues/CHANGELOG.md", _TRACKED),
            FileKind("state", "state/*", _PRIVATE),
            FileKind("resume", "resume-session.json", _PRIVATE),
            FileKind("draft", "issue-drafts/*", _PRIVATE),
            FileKind("issue-state", "issue-state.json", _PRIVATE),
            FileKind("feedback", "feedback/*", _PRIVATE),
            FileKind("output", "outputs/*", _PRIVATE),
            FileKind("script", "tmp/*", _PRIVATE),
            _KEEP,
        ),
    ),
    TierLayout(
        "dataset",
        ".git-ml",
        (
            FileKind("row", "tracked/*.jsonl", _TRACKED, grows=True),
            FileKind("shard", "tracked/pending/*.jsonl", _TRACKED),
            FileKind("kept open", "tracked/pending/.gitkeep", _TRACKED),
            FileKind("chat", "chats/*", _PRIVATE),
            FileKind("session", "sessions/*", _PRIVATE),
            FileKind("action", "actions/*", _PRIVATE),
        ),
    ),
    TierLayout("lab", "runs", ()),
    TierLayout("loop", "ralph-loop-sessions", ()),
)


def layout_of(room: str) -> TierLayout:
    """Return the layout of `room`."""
    return next(one for one in LAYOUTS if one.room == room)


def kind_of(path: str) -> tuple[TierLayout, FileKind] | None:
    """Return the layout and kind of a path in a repository, or nothing if it is in no layout of ours."""
    parts = PurePosixPath(path).parts
    for one in LAYOUTS:
        if one.root in parts[:-1]:
            inside = "/".join(parts[parts.index(one.root) + 1 :])
            if inside in (".gitignore", ".gitattributes"):
                return one, FileKind("git", inside, _TRACKED)
            named = (kind for kind in one.kinds if _matches_pattern(kind.path, inside))
            return one, next(named, FileKind("unnamed", "*", _PRIVATE))
    return None


def render_gitignore(one: TierLayout, *, root: str | None = None) -> str:
    """Return the ignore rules of a layout, for a file above its root, or in it with `root=""`."""
    base = f"{one.root if root is None else root}/"
    tracked = [kind.path for kind in one.kinds if kind.tier is _TRACKED]
    folders = sorted(
        {path.rsplit("/", depth)[0] for path in tracked if "/" in path for depth in range(1, path.count("/") + 1)}
    )
    folders = [folder for folder in folders if not folder.startswith("*")]
    named = sorted({kind.path.split("/")[0] for kind in one.kinds if "/" in kind.path} - {"*"})
    open_folders = sorted(
        {*folders, *(named if _KEEP in one.kinds else ())}, key=lambda folder: (folder.count("/"), folder)
    )
    own = [] if root is None else [f"!{base}.gitignore", f"!{base}.gitattributes"]
    lines = ["# Everything here is private unless it is named below.", f"{base}*", *own]
    for folder in open_folders:
        lines += [f"!{base}{folder}/", f"{base}{folder}/*"]
    return "\n".join([*lines, *(f"!{base}{path}" for path in tracked)]) + "\n"


def render_gitattributes(one: TierLayout, *, root: str | None = None) -> str:
    """Return the merge rules of a layout: files that only grow keep the lines of both sides."""
    base = "" if root == "" else f"{one.root}/"
    grown = [kind.path for kind in one.kinds if kind.grows and kind.tier is _TRACKED]
    return "".join(f"{base}{path} merge=union text eol=lf\n" for path in grown)


def _matches_pattern(pattern: str, path: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), path) is not None
