"""Define which kinds of files are private, shareable or tracked, and render git's files from it.

A file that the table does not name is private. The ignore file has the order of the source
document: ignore everything, include directories, ignore their content, include safe files. Git
cannot include a file whose directory is ignored.
"""

import re
from pathlib import PurePosixPath

from msgspec import Struct

from flightlog.model.output_files import Tier


class FileKind(Struct, frozen=True):
    """A kind of file in a layout; `path` is relative to its root, and `*` matches no slash."""

    name: str
    path: str
    tier: Tier
    is_append_only: bool = False  # append-only: a merge takes the lines of both sides


class TierLayout(Struct, frozen=True):
    """The files of one feature under one directory."""

    feature: str
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
            FileKind("metrics", "logs/metrics.jsonl", _TRACKED, is_append_only=True),
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
            FileKind("row", "tracked/*.jsonl", _TRACKED, is_append_only=True),
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


def layout_of(feature: str) -> TierLayout:
    """Return the layout of `feature`."""
    return next(layout for layout in LAYOUTS if layout.feature == feature)


def kind_of(path: str) -> tuple[TierLayout, FileKind] | None:
    """Return the layout and kind of a path in a repository, or None if it is in no layout."""
    parts = PurePosixPath(path).parts
    for layout in LAYOUTS:
        if layout.root in parts[:-1]:
            inside = "/".join(parts[parts.index(layout.root) + 1 :])
            if inside in (".gitignore", ".gitattributes"):
                return layout, FileKind("git", inside, _TRACKED)
            kinds = [kind for kind in layout.kinds if _matches_pattern(kind.path, inside)]
            kinds = [_KEEP] if _KEEP in kinds else kinds  # it keeps private directories, too
            return layout, next(iter(kinds), FileKind("unnamed", "*", _PRIVATE))
    return None


def render_gitignore(layout: TierLayout, *, root: str | None = None) -> str:
    """Return the ignore rules of a layout, for a file above its root, or in it with `root=""`."""
    base = f"{layout.root if root is None else root}/"
    tracked = [kind.path for kind in layout.kinds if kind.tier is _TRACKED]
    folders = sorted(
        {
            path.rsplit("/", depth)[0]
            for path in tracked
            if "/" in path
            for depth in range(1, path.count("/") + 1)
        }
    )
    folders = [folder for folder in folders if not folder.startswith("*")]
    named = sorted({kind.path.split("/")[0] for kind in layout.kinds if "/" in kind.path} - {"*"})
    open_folders = sorted(
        {*folders, *(named if _KEEP in layout.kinds else ())},
        key=lambda folder: (folder.count("/"), folder),
    )
    own = [] if root is None else [f"!{base}.gitignore", f"!{base}.gitattributes"]
    lines = ["# Everything here is private unless it is named below.", f"{base}*", *own]
    for folder in open_folders:
        lines += [f"!{base}{folder}/", f"{base}{folder}/*"]
    return "\n".join([*lines, *(f"!{base}{path}" for path in tracked)]) + "\n"


def render_gitattributes(layout: TierLayout, *, root: str | None = None) -> str:
    """Return the merge rules of a layout: append-only files take the lines of both sides."""
    base = "" if root == "" else f"{layout.root}/"
    growing = [kind.path for kind in layout.kinds if kind.is_append_only and kind.tier is _TRACKED]
    return "".join(f"{base}{path} merge=union text eol=lf\n" for path in growing)


def _matches_pattern(pattern: str, path: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), path) is not None
