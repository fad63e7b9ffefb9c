"""Looking at running sessions: hook events, noted payloads, transcripts, working copies, processes.

Reads only what is new since the last look; where it stopped is kept in a `Memo` per session, which
can be thrown away. Knows files and processes, judges nothing.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from flightlog.archive import Recording
from flightlog.live.billing import Sample
from flightlog.live.payloads import Told, told
from flightlog.live.state import Git, Limits, Tmux
from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import FlightlogError
from flightlog.store.git.command import GitError, PersonGit
from flightlog.store.reading import open_reader

TAIL_BYTES = 2 << 20
GIT_EVERY_MS = 30_000
GIT_LIMIT_S = 2.0
SECRETS_EVERY_MS = 300_000
SECRETS_BYTES_MAX = 32 << 20

_STATUS = ("status", "--porcelain=v2", "--branch", "-uno")


class Memo(Struct):
    """What is known of a session, and how far its files were read."""

    session: str
    first_seen_ms: int = 0
    hooks_at: int = 0
    status_at: int = 0
    transcript_at: int = 0
    last_event: str = ""
    event_ms: int = 0
    told: Told | None = None
    messages: int = 0
    said: str = ""
    model: str = ""
    tokens: int = 0
    secrets_at: dict[str, int] = {}
    secrets: dict[str, int] = {}
    secrets_ms: int = 0
    git: Git | None = None
    page_print: int = 0
    page_ms: int = 0
    lines: dict[str, str] = {}
    tmux: Tmux | None = None
    tmux_ms: int = 0


class Memory(Struct):
    """All memos, and what was seen of each profile's limits."""

    sessions: dict[str, Memo] = {}
    limits: dict[str, Limits] = {}
    samples: dict[str, list[Sample]] = {}
    cleaned_ms: int = 0


class _HookEvent(Struct):
    event: str = ""
    at_ms: int = 0


class _Usage(Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class _Message(Struct):
    model: str = ""
    usage: _Usage | None = None


class _Spoken(Struct):
    type: str = ""
    message: _Message | None = None


_hook = msgspec.json.Decoder(_HookEvent).decode
_spoken = msgspec.json.Decoder(_Spoken, strict=False).decode


def look(memo: Memo, folder: str, recording: Recording | None) -> list[Told]:
    """Bring a memo up to date; return the payloads that are new."""
    lines, memo.hooks_at = new_lines(f"{folder}/hooks.jsonl", memo.hooks_at)
    for line in lines:
        try:
            event = _hook(line)
        except UNREADABLE:
            continue
        if event.at_ms >= memo.event_ms:
            memo.last_event, memo.event_ms = event.event, event.at_ms
    lines, memo.status_at = new_lines(f"{folder}/status.jsonl", memo.status_at)
    fresh = [each for line in lines if (each := told(line)) is not None]
    if fresh:
        memo.told = fresh[-1]
    main = recording.main if recording else None
    if main is not None:
        _read_transcript(memo, main.path)
    return fresh


def new_lines(path: str, start: int) -> tuple[list[bytes], int]:
    """The whole lines from `start` on, of a first look the last two megabytes at most, and where they end."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116 - two hundred sessions, three files each
        if size == start:
            return [], start
        if size < start:
            start = 0
        skipped = start or max(size - TAIL_BYTES, 0)
        data = _read(path, skipped, size - skipped)
    except OSError:
        return [], 0
    begin = data.find(b"\n") + 1 if skipped and not start else 0
    end = data.rfind(b"\n") + 1
    return [line for line in data[begin:end].split(b"\n") if line], skipped + end if end else start


def _read(path: str, start: int, length: int) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(start)
        return file.read(length)


def _read_transcript(memo: Memo, path: str) -> None:
    start = memo.transcript_at
    lines, memo.transcript_at = new_lines(path, start)
    for line in lines:
        if b'"type":"assistant"' in line or b'"type":"user"' in line:
            memo.messages += 1
    for line in reversed(lines):
        if b'"usage"' not in line or b'"assistant"' not in line:
            continue
        try:
            spoken = _spoken(line)
        except UNREADABLE:
            continue
        if spoken.type == "assistant" and spoken.message and spoken.message.usage:
            use = spoken.message.usage
            memo.model = spoken.message.model
            memo.tokens = use.input_tokens + use.output_tokens
            memo.tokens += use.cache_creation_input_tokens + use.cache_read_input_tokens
            break
    if lines:
        memo.said = _preview(lines)


def _preview(lines: list[bytes]) -> str:
    """Who spoke last and how long; the words themselves are private and stay where they are."""
    for line in reversed(lines):
        for role in ("assistant", "user"):
            if f'"type":"{role}"'.encode() in line:
                return f"{role}, {len(line):,} bytes"
    return ""


def alive(memo: Memo) -> bool | None:
    """Whether the agent's process still runs; None when we were never told which it is."""
    launch = memo.told.launch if memo.told else None
    if launch is None or not launch.pid:
        return None
    if not launch.pid_started:
        return Path(f"/proc/{launch.pid}").exists() or _answers(launch.pid)
    try:
        return int(Path(f"/proc/{launch.pid}/stat").read_bytes().rpartition(b")")[2].split()[19]) == launch.pid_started
    except (OSError, ValueError, IndexError):
        return False


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def look_at_git(wanted: Iterable[tuple[Memo, str]], now_ms: int, trusts: Callable[[Path], bool]) -> None:
    """Ask git about work trees not asked about lately, all at once; a slow one is left for the next time.

    `trusts` says whether the person allowed what a project configures; an old git runs in no other.
    """
    due: dict[str, list[Memo]] = {}
    for memo, folder in wanted:
        if folder and Path(folder).is_dir() and now_ms - (memo.git.last_checked or 0 if memo.git else 0) > GIT_EVERY_MS:
            due.setdefault(folder, []).append(memo)
    if not due:
        return
    running = {}
    for folder in due:
        with suppress(FlightlogError):
            running[folder] = PersonGit(Path(folder), trusts(Path(folder))).start(*_STATUS, limit_s=GIT_LIMIT_S)
    for folder, process in running.items():
        with suppress(GitError):
            answer = process.answer()
            found = _git(answer.out.decode("utf-8", "replace"), now_ms) if answer.code == 0 else Git()
            for memo in due[folder]:
                memo.git = found


def _git(said: str, now_ms: int) -> Git:
    found = Git(dirty=0, last_checked=now_ms)
    for line in said.splitlines():
        if line.startswith("# branch.head "):
            found.branch = line.removeprefix("# branch.head ")
        elif line.startswith("# branch.ab "):
            ahead, behind = line.removeprefix("# branch.ab ").split()
            found.ahead, found.behind = int(ahead), -int(behind)
        elif not line.startswith("#"):
            found.dirty = (found.dirty or 0) + 1
    return found


def look_for_secrets(memo: Memo, recording: Recording, now_ms: int) -> None:
    """Search what was written since the last search; only counts by rule are kept."""
    from flightlog.privacy.stream import secret_counts  # noqa: PLC0415 - its rules take a while to read

    memo.secrets_ms = now_ms
    for file in recording.files:
        start = memo.secrets_at.get(file.path, 0)
        start = start if start <= file.size else 0
        if start == file.size:
            continue
        try:
            with closing(open_reader(file.path)) as reader:
                data = reader.read(start, min(file.size - start, SECRETS_BYTES_MAX))
        except OSError:
            continue
        end = data.rfind(b"\n") + 1
        for rule, count in secret_counts(data[:end].splitlines(keepends=True)).items():
            memo.secrets[rule] = memo.secrets.get(rule, 0) + count
        memo.secrets_at[file.path] = start + end
