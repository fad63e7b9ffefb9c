"""Keep private files and secrets out of git: check staged files before a commit, new objects before a push.

The guard checks for each file whether its kind may be tracked (`tiers`) and whether it contains a
secret. If the guard cannot run, a commit goes on with a message, but a push stops: it cannot be
undone.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, BinaryIO, cast

from msgspec import Struct

from flightlog.model.errors import Invalid, NotFound
from flightlog.model.output_files import Tier
from flightlog.privacy import tiers
from flightlog.privacy.detect import engine
from flightlog.privacy.detect.candidates import MEDIUM, SECRET, UNJUDGED
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.redactor import mask_value
from flightlog.privacy.scanner import find_in_stream
from flightlog.store import files, shared_files
from flightlog.store.git.command import GitError, PersonGit, find_hooks_folder

_MARK = "# flightlog privacy guard"
_BEFORE = "before-flightlog"
HOOKS = ("pre-commit", "pre-push")
# A first push of a large history: several GB of text, at the speed of the search.
_LIMIT_S = 600.0
_PIECE_BYTES = 1 << 20
_MESSAGE_BYTES_MAX = 16 << 20  # read into memory whole: longer than any real message
_SIGNATURE = re.compile(rb"^-----BEGIN \w+ SIGNATURE-----$", re.MULTILINE)
# Enough to act on; a dump with a million keys must not fill the memory.
_VERDICTS_MAX = 200
# This many ids fit into a pipe while git still writes the objects of earlier ids.
_IDS_AT_ONCE = 100
_PUSHED = re.compile(r"\S+ ([0-9a-f]{40,64}) \S+ ([0-9a-f]{40,64})")
# Letters with NULs between them: UTF-16 and UTF-32 of either byte order, also in the middle of a file.
_WIDE = re.compile(rb"(?:[^\0]\0{1,3}){8,}")
_WIDE_END = re.compile(rb"(?:[^\0]\0{1,3}){8}[^\0]?\Z")
_WIDE_TAIL_BYTES = 40
_NUL_OR_NOT = b"\0" + b"x" * 255
# In a file with NULs only ASCII text is searched: random bytes can look like a secret.
_ASCII_ALONE = bytes(byte if byte in b"\t\n\r" or 32 <= byte < 127 else 0 for byte in range(256))


class GuardVerdict(Struct, frozen=True):
    """The guard's verdict on one file, or on the message of a commit or tag."""

    path: str
    state: str  # tracked, staged, addable or pushed
    tier: str
    rule: str
    is_allowed: bool
    reason: str = ""


def check_repository(git: PersonGit) -> list[GuardVerdict]:
    """Return a verdict for each of flightlog's files that git tracks or would add, and for staged secrets."""
    staged = _list_staged_blobs(git)
    tracked = set(_list_git_names(git, "ls-files", "-z"))
    addable = set(_list_git_names(git, "ls-files", "--others", "--exclude-standard", "-z"))
    verdicts: list[GuardVerdict] = []
    for path in sorted(tracked | staged.keys() | addable):
        state = "staged" if path in staged else "tracked" if path in tracked else "addable"
        kinds = list(_check_kind(path, state))
        verdicts += kinds
        if state != "staged" and kinds and kinds[0].is_allowed:
            with suppress(OSError), (git.folder / path).open("rb") as source:
                verdicts += _check_content(source, path, state)
    blobs = ((blob, path) for path, blob in staged.items())
    return [*verdicts, *_check_names(staged, "staged"), *_check_objects(git, blobs, "staged")]


def check_push(git: PersonGit, remote: str, lines: Iterable[str]) -> list[GuardVerdict]:
    """Return what must not be pushed: secrets in files, file names and messages, and private files.

    `lines` is the input of git's pre-push hook. Every version of each file that is new to `remote`
    is checked.
    """
    tips, known = _read_pushed_refs(git, lines)
    if not tips:
        return []
    glob = [] if re.search(r"[][*?\\]", remote) else [f"--remotes={remote}"]
    new = [*tips, "--not", *known, *glob]
    commits = git.start_git("rev-list", *new, "--", limit_s=_LIMIT_S).finish_command()
    words = tuple(
        "diff-tree --stdin --no-commit-id -r -c --root -z --no-renames --diff-filter=A".split()
    )
    added = git.start_git(*words, "--name-only", limit_s=_LIMIT_S).finish_command(commits)
    names = sorted({*added.decode("utf-8", "surrogateescape").split("\0")} - {""})
    kinds = (verdict for path in names for verdict in _check_kind(path, "pushed"))
    kinds = (verdict for verdict in kinds if not verdict.is_allowed)
    by_name = islice(chain(kinds, _check_names(names, "pushed")), _VERDICTS_MAX)
    return [*by_name, *_check_objects(git, _iter_new_objects(git, new), "pushed")]


def install_guard(git: PersonGit, *, command: str = "flightlog") -> list[Path]:
    """Install the guard's hooks and return those that changed; existing hooks stay and run first."""
    folder = find_hooks_folder(git)
    changed = []
    for name in HOOKS:
        hook = folder / name
        before = folder / f"{name}.{_BEFORE}"
        if hook.exists() and _MARK not in hook.read_text(errors="replace") and not before.exists():
            files.rename_file(hook, before.name)
        script = _hook_script(name, command).encode()
        if not hook.exists() or hook.read_bytes() != script:
            files.replace_file(hook, script, mode=0o755)
            changed.append(hook)
    return changed


def remove_guard(git: PersonGit) -> list[Path]:
    """Remove the guard's hooks, restore the hooks from before, and return the removed ones."""
    hooks = list_guard_hooks(git)
    for hook in hooks:
        before = hook.with_name(f"{hook.name}.{_BEFORE}")
        shared_files.remove_with_dir(hook)
        if before.exists():
            files.rename_file(before, hook.name)
    return hooks


def list_guard_hooks(git: PersonGit) -> list[Path]:
    """Return the guard's hooks in a repository."""
    hooks = [find_hooks_folder(git) / name for name in HOOKS]
    return [hook for hook in hooks if hook.is_file() and _MARK in hook.read_text(errors="replace")]


def _check_kind(path: str, state: str) -> Iterator[GuardVerdict]:
    known = tiers.kind_of(path)
    if known is not None:
        layout, kind = known
        rule = f"{layout.feature}: {kind.name} ({kind.path})"
        fine = kind.tier is Tier.TRACKED
        why = "" if fine else f"{kind.tier.value} files do not belong in git"
        yield GuardVerdict(path, state, kind.tier.value, rule, fine, why)


def _check_names(paths: Iterable[str], state: str) -> Iterator[GuardVerdict]:
    """Search file names, all at once: no detector crosses a NUL."""
    data = "\0".join(paths).encode("utf-8", "surrogateescape")
    for secret in filter(_blocks_commit, engine.find_private_values(data)):
        name = data[data.rfind(b"\0", 0, secret.start) + 1 :].partition(b"\0")[0]
        path = name.decode("utf-8", "replace")
        masked = mask_value(secret.value)
        shown = path.replace(secret.value.decode("utf-8", "replace"), masked)
        why = f"the file name holds what looks like a secret: {masked}"
        yield GuardVerdict(shown, state, "", secret.rule, is_allowed=False, reason=why)


def _check_content(
    source: "_GitObject | IO[bytes]", path: str, state: str
) -> Iterator[GuardVerdict]:
    for finding in find_in_stream(cast("BinaryIO", _DecodedText(source)), KnownSecrets()):
        if _blocks_commit(finding.detection):
            why = f"line {finding.line} holds what looks like a secret: {mask_value(finding.detection.value)}"
            rule = finding.detection.rule
            yield GuardVerdict(path, state, "", rule, is_allowed=False, reason=why)


def _blocks_commit(detection: engine.Detection) -> bool:
    # Text that is too dense to be judged does not block: certificates and binaries are full of it.
    return detection.kind == SECRET and (detection.weight >= MEDIUM or detection.rule != UNJUDGED)


class _DecodedText:
    """A file's text in any encoding: wide letters become bytes, and binary content NULs."""

    def __init__(self, source: "_GitObject | IO[bytes]") -> None:
        self._source = source
        self._has_nul = self._is_wide = False

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes of text; empty at the end."""
        data = self._source.read(size)
        self._has_nul |= b"\0" in data
        if not self._has_nul or not data:
            return data
        if self._is_wide:
            data = data.lstrip(b"\0")  # the rest of a letter that began in the piece before
        self._is_wide = _WIDE_END.search(data[-_WIDE_TAIL_BYTES:]) is not None
        # A search for bytes is a hundred times faster than `_WIDE`.
        zeros = data.translate(_NUL_OR_NOT)
        if any(letters in zeros for letters in (b"x\0" * 8, b"x\0\0\0" * 8)):
            data = _WIDE.sub(lambda run: run[0].replace(b"\0", b""), data)
        return data.translate(_ASCII_ALONE) or b"\0"


class _GitObject:
    """One object in the output of `git cat-file --batch`."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source = source
        self._left = size

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; empty at its end."""
        data = self._source.read(min(size, self._left))
        if not data and self._left:
            raise GitError("git cat-file ended early", hint="run the command again")
        self._left -= len(data)
        return data


def _check_objects(
    git: PersonGit, wanted: Iterator[tuple[str, str]], state: str
) -> list[GuardVerdict]:
    """Search blobs and the messages of commits and tags; `wanted` are ids and paths."""
    verdicts: list[GuardVerdict] = []
    running = git.start_git("cat-file", "--batch", limit_s=_LIMIT_S)
    to_git, from_git = running.open_streams()
    while batch := list(islice(wanted, _IDS_AT_ONCE)):
        with suppress(BrokenPipeError):  # git ended: the next read notices
            to_git.write("".join(f"{name}\n" for name, _ in batch).encode())
            to_git.flush()
        for name, path in batch:
            header = from_git.readline().split()
            if not header:
                running.finish_command()
            if len(header) != 3:
                raise GitError(f"git cannot read an object: {name}", hint="git fsck")
            _, kind, size = header
            content = _GitObject(from_git, int(size))
            found = _check_object(content, kind, path or f"{kind.decode()} {name[:12]}", state)
            verdicts += islice(found, _VERDICTS_MAX - len(verdicts))
            while content.read(_PIECE_BYTES):
                pass
            from_git.read(1)  # the line end after each object
    running.finish_command()
    return verdicts


def _check_object(
    content: _GitObject, kind: bytes, path: str, state: str
) -> Iterator[GuardVerdict]:
    if kind == b"blob":
        yield from _check_content(content, path, state)
    elif kind != b"tree":
        # The message follows the headers. The signature of a tag is random letters: it is not searched.
        message = content.read(_MESSAGE_BYTES_MAX).partition(b"\n\n")[2]
        yield from _check_content(io.BytesIO(_SIGNATURE.split(message)[0]), path, state)


def _iter_new_objects(git: PersonGit, new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield id and path of every object in the revisions `new` of `git rev-list`."""
    words = ("--objects", "--missing=allow-promisor", *new, "--")
    running = git.start_git("rev-list", *words, limit_s=_LIMIT_S)
    for line in running.open_streams()[1]:
        name, _, path = line.rstrip(b"\n").decode("utf-8", "surrogateescape").partition(" ")
        yield name, path
    running.finish_command()


def _read_pushed_refs(git: PersonGit, lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the commits and tags being pushed, and those of the remote that this repository has."""
    tips, remote = [], []
    for line in filter(str.strip, lines):
        fields = _PUSHED.fullmatch(line.strip())
        if fields is None:
            hint = "git help githooks"
            raise Invalid(f"not a line of a pre-push hook: {line.strip()[:80]}", hint=hint)
        tips += [fields[1]] if fields[1].strip("0") else []  # zeros: the ref is deleted
        remote += [fields[2]] if fields[2].strip("0") else []
    names = "".join(f"{name}\n" for name in remote).encode()
    listed = git.run_git("cat-file", "--batch-check", given=names).require_success()
    unknown = (line for line in listed.splitlines() if line.endswith(b" missing"))
    missing = {line.split()[0].decode() for line in unknown}
    return tips, [name for name in remote if name not in missing]


def _list_staged_blobs(git: PersonGit) -> dict[str, str]:
    """Return path and blob of each staged file; a submodule's commit is no blob of this repository."""
    words = ("--cached", "--raw", "-z", "--no-abbrev", "--no-renames", "--diff-filter=d")
    fields = _list_git_names(git, "diff", *words)
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return {path: facts.split()[3] for facts, path in pairs if facts.split()[1] != "160000"}


def _list_git_names(git: PersonGit, *words: str) -> list[str]:
    answer = git.run_git(*words)
    if answer.exit_code:
        hint = "run it inside one, or make one with: git init"
        raise NotFound(f"not a git repository: {git.folder}", hint=hint)
    return [name for name in answer.stdout.decode("utf-8", "surrogateescape").split("\0") if name]


def _hook_script(name: str, command: str) -> str:
    act = name.removeprefix("pre-")
    if act == "push":  # git writes the pushed refs to standard input
        reads, option = "given=$(cat; echo x)\ngiven=${given%x}", ' --push="$1"'
        unable = "push stopped: the flightlog guard could not run", "1"
    else:
        reads, option = "given=", ""
        unable = "NOT CHECKED: the flightlog guard could not run; the commit goes on", "0"
    return f"""#!/bin/sh
{_MARK}: no private file and no secret leaves with git.
# A hook that was here before runs first. A push stops when the guard cannot run, a commit goes on.
{reads}
before="$0.{_BEFORE}"
if [ -x "$before" ]; then
  printf '%s' "$given" | "$before" "$@" || exit $?
fi
if [ "${{FLIGHTLOG_GUARD:-1}}" = 0 ]; then
  echo "NOT CHECKED: FLIGHTLOG_GUARD=0" >&2
  exit 0
fi
printf '%s' "$given" | {command} privacy check --quiet{option} 1>&2
code=$?
[ $code -eq 0 ] && exit 0
around="Go on without it: git {act} --no-verify, or FLIGHTLOG_GUARD=0"
if [ $code -ne 1 ]; then
  echo "{unable[0]} (exit $code). $around" >&2
  exit {unable[1]}
fi
echo "{act} stopped by the flightlog guard: see above. $around" >&2
exit 1
"""
