"""Observe sessions: hook log, status payloads, transcript tail, git, tmux, processes.

Reads only what is new since the last collection. An `ObservedSession` stores how far each file
was read; it is a cache and can be deleted. Agents without hooks are known by their records alone.
"""

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

from msgspec import UNSET, Struct

from flightlog.agents import source_of
from flightlog.agents.claude_code import hooks
from flightlog.agents.recordings import find_agent_dirs
from flightlog.archive.archive import Archive, SessionFiles
from flightlog.hooks.statusline_segments import compaction_point, context_percent
from flightlog.live.billing import LimitSample, Payment
from flightlog.live.health import LIVE_MS, SYNCED_MS
from flightlog.live.layout import format_age
from flightlog.live.state import (
    ContextUsage,
    GitStatus,
    ModelInfo,
    Thresholds,
    TmuxPane,
    TranscriptInfo,
    VendorLimits,
    VendorWindow,
)
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import one_line
from flightlog.privacy.scanner import secret_counts
from flightlog.sources.hook_log import read_new_hook_records
from flightlog.sources.protocol import TranscriptTail
from flightlog.store.files import PROC, has_processes, process_start, read_ps
from flightlog.store.git.command import GitError, PersonGit
from flightlog.store.recordings.reader import content_size, open_reader

GIT_EVERY_MS = 30_000  # a collection follows every turn; git and tmux are asked less often
PANES_EVERY_MS = 30_000
GIT_LIMIT_S = 2.0  # one slow work tree must not hold up the collection
SECRETS_EVERY_MS = 300_000  # detection is the slowest part of a collection
SECRETS_BYTES_MAX = 32 << 20  # bounds the memory and time of one search
SAMPLES_MAX = 400  # more than three hours of samples; the forecast uses 90 minutes
SAMPLE_EVERY_MS = 30_000
_STATUS = ("status", "--porcelain=v2", "--branch", "-uno")
_SEPARATOR = "\t"
# The session's name comes last, because it may contain the separator.
_FIELDS = ("pane_id", "pane_width", "pane_height", "window_index", "session_name")
_FORMAT = _SEPARATOR.join(f"#{{{name}}}" for name in _FIELDS)
_NAME_CHARS_MAX = 64
_WINDOW_DEFAULT = 200_000  # the context window of Claude models
_WINDOW_LONG = 1_000_000  # that of models with the suffix [1m], which transcripts leave out


class ObservedSession(Struct):
    """Observations of a session, and how far its files were read."""

    session: str
    first_seen_ms: int = 0
    hooks_offset: int = 0
    status_offset: int = 0
    transcript_offset: int = 0
    last_event: str = ""
    event_ms: int = 0
    last_tool: str = ""
    status: hooks.ClientStatus | None = None
    message_count: int = 0
    last_message: str = ""
    model: str = ""
    context_tokens: int = 0
    secrets_offsets: dict[str, int] = {}
    secrets: dict[str, int] = {}
    secrets_scanned_ms: int = 0
    git: GitStatus | None = None
    output_fingerprint: int = 0
    output_written_ms: int = 0
    status_lines: dict[str, str] = {}
    tmux: TmuxPane | None = None
    tmux_checked_ms: int = 0


class ObserverState(Struct):
    """All observed sessions, and the limits seen of each profile."""

    sessions: dict[str, ObservedSession] = {}
    limits: dict[str, VendorLimits] = {}
    samples: dict[str, list[LimitSample]] = {}
    cleanup_ms: int = 0
    payments: dict[str, list[Payment]] = {}
    """What each account paid here, for the ledgers of the other directories."""

    def record_limits(
        self, name: str, status: hooks.ClientStatus, before: hooks.ClientStatus | None
    ) -> None:
        """Keep the limits that a payload reports for the profile `name`.

        A payload without a new response repeats those of the one `before`: other sessions may have
        used more since then.
        """
        limits, at_ms, old = status.payload.rate_limits, status.at_ms, before and before.payload
        if limits is None or (old and (old.rate_limits, old.cost) == (limits, status.payload.cost)):
            return
        stored = self.limits.setdefault(name, VendorLimits())
        for field in VendorLimits.__struct_fields__:
            window, last = _vendor_window(getattr(limits, field), at_ms), getattr(stored, field)
            # A window counts until its reset, although other payloads leave it out.
            if last is None or (last.as_of or 0) <= at_ms:
                setattr(stored, field, window or (last if last and last.resets_at else None))
        block = limits.five_hour
        if block is not None and block.used_percentage is not None:
            samples = self.samples.setdefault(name, [])
            if not samples or at_ms - samples[-1].at_ms >= SAMPLE_EVERY_MS:
                samples.append(LimitSample(at_ms, block.used_percentage, block.resets_ms))
                del samples[:-SAMPLES_MAX]


def _vendor_window(limit: hooks.StatusLimit | None, at_ms: int) -> VendorWindow | None:
    if limit is None or limit.used_percentage is None:
        return None
    used_percent = round(limit.used_percentage, 1)
    return VendorWindow(used_percent, limit.resets_ms or None, "statusline", at_ms)


def update_observation(
    memo: ObservedSession, folder: str, recording: SessionFiles | None
) -> list[hooks.ClientStatus]:
    """Bring an observation up to date; return the new status payloads."""
    records, memo.hooks_offset = read_new_hook_records(folder, memo.hooks_offset)
    for record in records:
        if record.at_ms >= memo.event_ms and not hooks.is_notice(record):
            memo.last_event, memo.event_ms = record.event, record.at_ms
            memo.last_tool = one_line(hooks.read_tool_name(record), _NAME_CHARS_MAX)
    fresh, memo.status_offset = hooks.read_new_status(folder, memo.status_offset)
    if fresh:
        memo.status = fresh[-1]
    main = recording.main if recording else None
    if recording is not None and main is not None:
        _read_transcript(memo, source_of(recording.agent).tail(main.path, memo.transcript_offset))
    return fresh


def switch_time(before: hooks.ClientStatus | None, status: hooks.ClientStatus) -> int:
    """Return from when on the account of `status` pays.

    The client reports after each response. If the cost grew since the last report, the responses in
    between were requested by the new account.
    """
    paid = (item.payload.cost if item else None for item in (before, status))
    costs = [cost.total_cost_usd if cost else None for cost in paid]
    if before is not None and None not in costs and costs[1] > costs[0]:  # type: ignore[operator]
        return before.at_ms + 1
    return status.at_ms


def _read_transcript(memo: ObservedSession, tail: TranscriptTail) -> None:
    grew = tail.end not in {0, memo.transcript_offset}  # 0: the file cannot be read
    memo.transcript_offset = tail.end
    if not grew:
        return
    memo.message_count += tail.messages
    memo.model = tail.model or memo.model
    if tail.total_tokens is not None:
        memo.context_tokens = tail.total_tokens
    # The message itself is private, so only its role and size are shown.
    memo.last_message = f"{tail.last_role}, {tail.last_bytes:,} bytes" if tail.last_role else ""


def is_alive(memo: ObservedSession, proc: Path = PROC) -> bool | None:
    """Return whether the agent's process still runs; None if the process is unknown."""
    if memo.status is None or not memo.status.launch.pid:
        return None
    launch = memo.status.launch
    if launch.pid_started:
        return process_start(launch.pid, proc) == launch.pid_started  # otherwise the pid was reused
    if has_processes(proc):
        return (proc / str(launch.pid)).exists() or _accepts_signal(launch.pid)
    # Without /proc the hook records no start, but a process that began after the record is another.
    return 0 < read_ps(launch.pid)[1] * 1000 <= memo.status.at_ms


def _accepts_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def model_info(memo: ObservedSession) -> ModelInfo:
    """Return the model by the client's own word, otherwise by the transcript."""
    model = memo.status.payload.model if memo.status else None
    if model is not None and (model.display_name or model.id):
        return ModelInfo(str(model.display_name or model.id), "jsonInput", 80)
    if memo.model:
        return ModelInfo(memo.model, "transcript", 90)
    return ModelInfo("unknown", "default", 10)


def context_usage(memo: ObservedSession, thresholds: Thresholds) -> ContextUsage:
    """Return how full the context is, with the client's point of compaction as 100 percent."""
    window = memo.status.payload.context_window if memo.status else None
    size = window.context_window_size if window else None
    current = window.current_usage if window else UNSET
    used = current.usage().total_tokens if current else 0
    used = memo.context_tokens if current is UNSET else used
    is_long = "[1m]" in memo.model or used > _WINDOW_DEFAULT
    size = size or (_WINDOW_LONG if is_long else _WINDOW_DEFAULT)
    usable = compaction_point(size, thresholds.compaction_percent or 0.0)
    percent = context_percent(used, usable)
    near = percent >= (thresholds.context_warning_percent or 0)
    return ContextUsage(used, max(usable - used, 0), percent, size, near)


def transcript_info(
    memo: ObservedSession, recording: SessionFiles | None, now_ms: int
) -> TranscriptInfo:
    """Return size, age and message count of the transcript."""
    main = recording.main if recording else None
    if recording is None or main is None:
        return TranscriptInfo()
    age = now_ms - recording.changed_ms
    return TranscriptInfo(
        exists=True,
        size_bytes=main.size,
        last_modified=recording.changed_ms,
        last_modified_ago=format_age(age),
        message_count=memo.message_count,
        last_message_preview=memo.last_message,
        is_synced=age < SYNCED_MS,
    )


def observe_git(
    projects: Iterable[tuple[ObservedSession, str]], now_ms: int, trusts: Callable[[Path], bool]
) -> None:
    """Run `git status` in work trees that are due, in parallel; a slow one keeps its old status.

    `trusts` says whether the person allowed the project's configuration; an old git version runs
    only in such projects.
    """
    due: dict[str, list[ObservedSession]] = {}
    for memo, folder in projects:
        checked_ms = (memo.git.last_checked or 0) if memo.git else 0
        if folder and Path(folder).is_dir() and now_ms - checked_ms > GIT_EVERY_MS:
            due.setdefault(folder, []).append(memo)
    running = {}
    for folder in due:
        with suppress(FlightlogError):
            git = PersonGit(Path(folder), trusts(Path(folder)))
            running[folder] = git.start_git(*_STATUS, limit_s=GIT_LIMIT_S)
    for folder, process in running.items():
        with suppress(GitError):
            answer = process.wait_for_answer()
            text = answer.stdout.decode("utf-8", "replace")
            status = _parse_git_status(text, now_ms) if answer.exit_code == 0 else None
            for memo in due[folder]:
                memo.git = status


def _parse_git_status(text: str, now_ms: int) -> GitStatus:
    status = GitStatus(dirty=0, last_checked=now_ms)
    for line in text.splitlines():
        if line.startswith("# branch.head "):
            status.branch = line.removeprefix("# branch.head ")
        elif line.startswith("# branch.ab "):
            ahead, behind = line.removeprefix("# branch.ab ").split()
            status.ahead, status.behind = int(ahead), -int(behind)
        elif not line.startswith("#"):
            status.dirty = (status.dirty or 0) + 1
    return status


def search_secrets(memo: ObservedSession, recording: SessionFiles, now_ms: int) -> None:
    """Search what was written since the last search; store only counts by rule."""
    memo.secrets_scanned_ms = now_ms
    for file in recording.files:
        start = memo.secrets_offsets.get(file.path, 0)
        try:
            size = content_size(file.path, file.size)
            start = start if start <= size else 0
            if start == size:
                continue
            with closing(open_reader(file.path)) as reader:
                data = reader.read(start, min(size - start, SECRETS_BYTES_MAX))
        except OSError:
            continue
        end = data.rfind(b"\n") + 1
        for rule, count in secret_counts(data[:end].splitlines(keepends=True)).items():
            memo.secrets[rule] = memo.secrets.get(rule, 0) + count
        memo.secrets_offsets[file.path] = start + end


def observe_panes(memos: Iterable[ObservedSession], now_ms: int) -> None:
    """Update the tmux pane of each session; if its server is gone, only the pane's id remains."""
    due: dict[str, list[ObservedSession]] = {}
    for memo in memos:
        launch = memo.status.launch if memo.status else None
        if launch is None or not launch.tmux_pane:
            memo.tmux = None
            continue
        is_other = memo.tmux is None or memo.tmux.pane != launch.tmux_pane
        if is_other or now_ms - memo.tmux_checked_ms > PANES_EVERY_MS:
            memo.tmux, memo.tmux_checked_ms = TmuxPane(launch.tmux_pane), now_ms
            due.setdefault(launch.tmux.partition(",")[0], []).append(memo)
    for socket, sessions in due.items():
        panes = list_panes(socket)
        for memo in sessions:
            memo.tmux = panes.get(memo.tmux.pane, memo.tmux) if memo.tmux else None


def list_panes(socket: str) -> dict[str, TmuxPane]:
    """Return the panes of the tmux server at `socket`, by id; none if it is another user's."""
    if not _is_ours(socket):
        return {}
    import subprocess  # noqa: PLC0415 - most collections start no tmux

    command = ["tmux", "-S", socket, "list-panes", "-a", "-F", _FORMAT]
    env = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, timeout=GIT_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return dict(_parse_pane(line, socket) for line in lines if line.count(_SEPARATOR) >= 4)


def _parse_pane(line: str, socket: str) -> tuple[str, TmuxPane]:
    pane, width, height, window, session = line.split(_SEPARATOR, 4)
    wide, high = (int(size) if size.isdecimal() else None for size in (width, height))
    return pane, TmuxPane(pane, one_line(session, _NAME_CHARS_MAX), window, wide, high, socket)


def _is_ours(socket: str) -> bool:
    """Return whether `socket` is a socket of our own user; others are never connected to."""
    path = Path(socket)
    try:
        status = path.stat() if path.is_absolute() else None
    except OSError:
        return False
    return status is not None and stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()


class RecentSession(Struct, frozen=True):
    """A session with a record of the last hour; whether its agent still runs is not known."""

    session: str
    agent: str
    project: str
    last_record_ms: int


def list_recent(runtime: Runtime) -> list[RecentSession]:
    """Return the sessions of other agents than Claude Code with a new record, newest first."""
    dirs = {
        name: paths for name, paths in find_agent_dirs(runtime).items() if name != DEFAULT_AGENT
    }
    archive, since_ms = Archive(dirs), runtime.clock.now_ms() - LIVE_MS
    recent = []
    for recording in archive.recordings.values():
        if recording.changed_ms > since_ms:
            last_ms = archive.last_record_ms(recording)
            if last_ms > since_ms:
                cwd = archive.first_cwd(recording)
                recent.append(RecentSession(recording.session, recording.agent, cwd, last_ms))
    return sorted(recent, key=lambda session: (-session.last_record_ms, session.session))
