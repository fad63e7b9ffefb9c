"""Collect the live state: observe sessions, bill profiles, write the output files and a log line.

Called after each turn (settle) and by status, watch and the web page. Everything impure in `live`
starts here; time, directories and time zone come from the runtime. A lock per directory lets one
process collect at a time.
"""

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.claude_code.files import projects_dir
from flightlog.archive.archive import Archive, SessionFiles
from flightlog.live import health, layout, observe
from flightlog.live.billing import COST_DIGITS, LedgerPlace, find_cost_issues, sum_hourly_costs
from flightlog.live.cleanup import archive_removed, clean_up, log_line
from flightlog.live.events import Event, fold_history
from flightlog.live.observe import ObservedSession, ObserverState, observe_panes
from flightlog.live.profiles import ProfileLedger
from flightlog.live.state import (
    Alerts,
    AuthProfile,
    RuntimeSession,
    RuntimeState,
    SessionActivity,
    SessionCost,
    SessionMetadata,
    Thresholds,
    has_automatic_label,
)
from flightlog.live.state_file import runtime_state
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import format_utc_ms
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted
from flightlog.store import files
from flightlog.store.journal import Journal
from flightlog.store.locks import exclusive_lock
from flightlog.store.output_files import write_output_files
from flightlog.store.shared_files import back_up

FOLDER = "session-health"
LOCK = "gather.lock"
RECENT_MS = 8 * DAY_MS  # the week that billing looks back, and a day to spare
# An output file is rewritten without news after PAGE_EVERY_MS plus up to PAGE_SPREAD_S seconds,
# spread by session id, so that not all files of many sessions are due at once.
PAGE_EVERY_MS = 90_000
PAGE_SPREAD_S = 120
GATHER_WAIT_S = 30.0  # a collection of a large archive takes seconds; a longer wait is a hang

Draw = Callable[[dict[str, Any]], dict[str, str]]
"""Renders the status line from a session's output file, by width."""


class LiveDirectory(Struct, frozen=True):
    """An agent's configuration directory at one time."""

    runtime: Runtime
    config_dir: Path
    now_ms: int
    draw: Draw | None = None
    peers: tuple[Path, ...] = ()
    """All configuration directories, whose accounts have the same ids everywhere."""

    @property
    def folder(self) -> Path:
        """The directory of the output files."""
        return self.config_dir / FOLDER

    @property
    def home(self) -> Path:
        """Our own data directory."""
        return Path(self.runtime.data_dir)


class CollectDepth(Struct, frozen=True):
    """How much to collect: git and secrets of all sessions or `only` one; how long to wait."""

    only: str = ""
    secrets: bool = True
    durable: bool = True
    wait_s: float = GATHER_WAIT_S


class LiveState(Struct):
    """The collected state of one configuration directory."""

    config_dir: str
    state: RuntimeState
    error: str
    now_ms: int
    launches: dict[str, layout.LaunchInfo]
    changed_count: int = 0
    hourly_costs: tuple[float, ...] = ()
    """USD of each of the last 24 hours, oldest first; empty if it was not collected now."""


def collect_live_state(
    where: LiveDirectory, archive: Archive, effort: CollectDepth | None = None
) -> LiveState:
    """Collect the live state and write what changed."""
    effort = effort or CollectDepth()
    with exclusive_lock(where.folder / runtime_state.OWN / LOCK, limit_s=effort.wait_s):
        return LiveCollector(where, archive, effort).collect_all()


def open_journal(where: LiveDirectory) -> Journal[Event]:
    """Open the journal beside the state file."""
    path = where.folder / runtime_state.OWN / "journal.jsonl"
    now = format_utc_ms(where.now_ms)
    return Journal(path, Event, now=lambda: now, new_id=where.runtime.new_id)


class LiveCollector:
    """One collection for one configuration directory."""

    def __init__(self, where: LiveDirectory, archive: Archive, effort: CollectDepth) -> None:
        self.where, self.archive, self.effort, self.now_ms = where, archive, effort, where.now_ms
        template = where.runtime.config.get("statusline.template")
        self.template = str(template.value) if template is not None else ""
        self.observer = _load_observer(where.folder)
        self.journal = open_journal(where)
        self.history = fold_history(self.journal.read_records())
        root = projects_dir(where.config_dir) + "/"
        self.recordings = {
            name: recording
            for name, recording in archive.recordings.items()
            if self.now_ms - recording.changed_ms < RECENT_MS
            and any(file.path.startswith(root) for file in recording.files)
        }
        self.projects: dict[str, str] = {}
        self.due: set[str] = set()
        self.record_times: dict[str, int] = {}

    def collect_all(self) -> LiveState:
        folder, now_ms = self.where.folder, self.now_ms
        # A state file deleted later is restored from the journal, not from old output files.
        if not (folder / runtime_state.NAME).exists() and not self.journal.path.exists():
            old = layout.old_billing(folder)
            if old is not None:
                back_up(folder / layout.SHARED, (folder / layout.SHARED).read_bytes())
            runtime_state.migrate_billing(folder, now_ms, old)
        before = runtime_state.load_state(folder, now_ms)
        ledger = ProfileLedger(before.state, self.history, self.observer, self._ledger_place())
        ledger.apply_edits()
        digests = self.archive.usage_pipeline.session_digests(self.recordings)
        self.projects = {digest.session: digest.project for digest in digests}
        observed = self._observe_sessions(ledger)
        for event in ledger.events:
            self.journal.append(event)
        profiles = ledger.bill_profiles(
            digests, self.archive.usage_pipeline.session_responses, self.where.runtime.zone
        )
        thresholds = before.state.thresholds
        sessions = [
            self._build_session(memo, ledger, thresholds, broken=bool(before.error))
            for memo in observed
        ]
        launches = {memo.session: self._launch_info(memo, ledger) for memo in observed}
        self._draw_status_lines(RuntimeState(profiles, sessions, thresholds), launches)
        update = self._write_state(profiles, sessions)
        broken = update.error or before.error
        live = LiveState(str(self.where.config_dir), update.state, broken, now_ms, launches)
        live.changed_count = self._write_output(live)
        live.hourly_costs = sum_hourly_costs(digests, now_ms)
        if now_ms - self.observer.cleanup_ms > DAY_MS:
            clean_up(folder, self.where.home, now_ms)
            self.observer.cleanup_ms = now_ms
        path = folder / runtime_state.OWN / "memory.bin"
        files.replace_file(path, msgspec.msgpack.encode(self.observer), durable=False)
        counts = (live.changed_count, len(update.removed))
        log_line(folder, layout.log_entry(live.state, live.error, counts, now_ms))
        return live

    def _ledger_place(self) -> LedgerPlace:
        peers = [path / FOLDER for path in self.where.peers if path != self.where.config_dir]
        states = [runtime_state.read_state(folder, self.now_ms) for folder in peers]
        others = [profile for state in states for profile in state.auth_profiles]
        paid = [_load_observer(folder).payments for folder in peers]
        return LedgerPlace(str(self.where.config_dir), self.now_ms, others, paid)

    def _observe_sessions(self, ledger: ProfileLedger) -> list[ObservedSession]:
        """Bring every known session up to date and return the live ones."""
        shown = layout.sessions_with_status_line(self.where.home, self.where.config_dir)
        live = []
        for name in sorted({*self.recordings, *shown, *self.observer.sessions}):
            new = ObservedSession(name, self.now_ms, secrets_scanned_ms=self.now_ms)
            memo = self.observer.sessions.setdefault(name, new)
            recording = self.recordings.get(name)
            recent = recording is not None and self.now_ms - recording.changed_ms < health.LIVE_MS
            # The transcript of a resting session is not read; its payer counts for the week.
            read = recording if recent or observe.is_alive(memo) else None
            folder = f"{self.where.home}/sessions/{DEFAULT_AGENT}/{name}"
            last = memo.status
            statuses = observe.update_observation(memo, folder, read)
            ledger.observe_session(name, statuses, self._project_path(memo), last)
            signals = self._read_signals(memo)
            if health.is_live(signals):
                live.append(memo)
            elif self.now_ms - signals.activity_ms > RECENT_MS:
                del self.observer.sessions[name]
        self._observe_details([memo for memo in live if self.effort.only in {"", memo.session}])
        return live

    def _observe_details(self, sessions: list[ObservedSession]) -> None:
        observe_panes(sessions, self.now_ms)
        projects = [(memo, self._project_path(memo)) for memo in sessions]
        observe.observe_git(projects, self.now_ms, partial(is_trusted, self.where.runtime))
        for memo in sessions if self.effort.secrets else ():
            recording = self.recordings.get(memo.session)
            is_old = self.now_ms - memo.secrets_scanned_ms > observe.SECRETS_EVERY_MS
            if recording is not None and (is_old or not self.effort.only):
                observe.search_secrets(memo, recording, self.now_ms)

    def _project_path(self, memo: ObservedSession) -> str:
        payload = memo.status.payload if memo.status else None
        if payload is not None and payload.workspace is not None and payload.workspace.project_dir:
            return payload.workspace.project_dir
        return (payload.cwd if payload else None) or self.projects.get(memo.session, "")

    def _last_record_ms(self, recording: SessionFiles) -> int:
        if recording.session not in self.record_times:
            self.record_times[recording.session] = self.archive.last_record_ms(recording)
        return self.record_times[recording.session]

    def _read_signals(self, memo: ObservedSession) -> health.HealthSignals:
        recording = self.recordings.get(memo.session)
        status_ms = memo.status.at_ms if memo.status and memo.last_event != "SessionEnd" else 0
        return health.HealthSignals(
            now_ms=self.now_ms,
            last_event=memo.last_event,
            last_tool=memo.last_tool,
            event_ms=max(memo.event_ms, status_ms),
            changed_ms=self._last_record_ms(recording) if recording else 0,
            transcript_exists=recording is not None and recording.main is not None,
            has_messages=memo.message_count > 0,
            has_hooks=memo.hooks_offset > 0,
            pid_alive=observe.is_alive(memo),
            secret_count=sum(memo.secrets.values()),
        )

    def _build_session(
        self,
        memo: ObservedSession,
        ledger: ProfileLedger,
        settings: Thresholds | None,
        *,
        broken: bool,
    ) -> RuntimeSession:
        profile = ledger.profile_of(memo.session)
        thresholds = health.effective_thresholds(settings, profile.thresholds)
        context = observe.context_usage(memo, thresholds)
        signals = self._read_signals(memo)
        signals.percent_used, signals.has_broken_file = context.percent_used, broken
        signals.cost_issues = find_cost_issues(profile.billing, thresholds, self.now_ms)
        recording = self.recordings.get(memo.session)
        payload = memo.status.payload if memo.status else None
        client = payload.cost.total_cost_usd if payload and payload.cost else None
        spent = ledger.session_usd.get(memo.session)
        activity = SessionActivity(memo.last_event, memo.event_ms, memo.last_tool or None)
        return RuntimeSession(
            session_id=memo.session,
            auth_profile=profile.profile_id,
            project_path=self._project_path(memo),
            transcript_path=recording.main.path if recording and recording.main else "",
            health=health.judge_health(signals, thresholds),
            model=observe.model_info(memo),
            context=context,
            git=memo.git,
            transcript=observe.transcript_info(memo, recording, self.now_ms),
            alerts=Alerts(
                bool(memo.secrets),
                sorted(memo.secrets),
                health.is_stale(signals, thresholds),
                health.is_at_risk(signals, thresholds),
            ),
            metadata=SessionMetadata(self.now_ms, signals.activity_ms),
            cost=SessionCost(
                round(spent + 0.0, COST_DIGITS) if spent is not None else None,
                round(client + 0.0, COST_DIGITS) if client is not None else None,
                memo.status.at_ms if memo.status and client is not None else None,
            ),
            profile_switches=ledger.list_switches(memo.session),
            tmux=memo.tmux,
            activity=activity if memo.last_event else None,
        )

    def _write_state(
        self, profiles: list[AuthProfile], sessions: list[RuntimeSession]
    ) -> runtime_state.StateFileUpdate:
        def change(state: RuntimeState) -> RuntimeState:
            before = {session.session_id: session for session in state.sessions}
            now = {session.session_id: session for session in sessions}
            for name, session in now.items():
                _restore_unchanged_times(before.get(name), session)
            state.auth_profiles = _merge_profiles(state.auth_profiles, profiles)
            # Sessions keep their order in the file; new ones follow.
            state.sessions = [now[name] for name in {**before, **now} if name in now]
            state.thresholds = state.thresholds or health.default_thresholds()
            state.metadata = True
            return state

        folder = self.where.folder
        update = runtime_state.update_state(
            folder, self.now_ms, change, durable=self.effort.durable
        )
        archive_removed(folder, self.journal, update.removed, self.now_ms)
        return update

    def _launch_info(self, memo: ObservedSession, ledger: ProfileLedger) -> layout.LaunchInfo:
        profile = ledger.profile_of(memo.session)
        launch = memo.status.launch if memo.status else None
        return layout.LaunchInfo(
            auth_profile=profile.profile_id,
            label=profile.label,
            detection_method=ledger.method_of(memo.session),
            launch_alias=launch.alias if launch else "",
            config_dir=str(self.where.config_dir),
            tmux_pane_id=launch.tmux_pane if launch else "",
            first_seen=memo.first_seen_ms,
            cli_version=(memo.status.payload.version or "") if memo.status else "",
            account=launch.account if launch else "",
        )

    def _draw_status_lines(
        self, state: RuntimeState, launches: dict[str, layout.LaunchInfo]
    ) -> None:
        """Find the sessions whose output file is due and render their status lines."""
        for session in state.sessions:
            name = session.session_id
            memo, launch = self.observer.sessions[name], launches[name]
            fingerprint = layout.fingerprint_session(session, launch, self.template)
            every_ms = PAGE_EVERY_MS + 1000 * (zlib.crc32(name.encode()) % PAGE_SPREAD_S)
            aged = self.now_ms - memo.output_written_ms > every_ms
            if name == self.effort.only or fingerprint != memo.output_fingerprint or aged:
                memo.output_fingerprint, memo.output_written_ms = fingerprint, self.now_ms
                self.due.add(name)
                if self.where.draw is not None:
                    body = layout.session_body(session, launch, state, self.template)
                    memo.status_lines = self.where.draw(body)
            session.formatted_strings = memo.status_lines or None

    def _write_output(self, live: LiveState) -> int:
        due = [
            layout.session_file(
                session, live.launches[session.session_id], live.state, self.template
            )
            for session in live.state.sessions
            if session.session_id in self.due
        ]
        shared = layout.shared_files(live.state, self.now_ms, self.template)
        return len(write_output_files(self.where.folder, [*due, *shared], durable=False))


def _merge_profiles(before: list[AuthProfile], new: list[AuthProfile]) -> list[AuthProfile]:
    """Return the profiles of the file with new figures; a person's own edits stay."""
    figures = {profile.profile_id: profile for profile in new}
    for profile in before:
        fresh = figures.pop(profile.profile_id, None)
        if fresh is not None:
            profile.billing, profile.metadata = fresh.billing, fresh.metadata
            profile.label = fresh.label if has_automatic_label(profile) else profile.label
            profile.billing_fingerprint = profile.billing_fingerprint or fresh.billing_fingerprint
    return before + list(figures.values())


def _restore_unchanged_times(before: RuntimeSession | None, now: RuntimeSession) -> None:
    """Give a session in which nothing happened its old times, so that its text stays the same."""
    if before is None or before.metadata is None or now.metadata is None:
        return
    old, new = before.health, now.health
    if (old.status, old.issues) == (new.status, new.issues):
        new.last_update = old.last_update
    gathered_at = now.metadata.gathered_at
    now.metadata.gathered_at = before.metadata.gathered_at
    if before != now:
        now.metadata.gathered_at = gathered_at


def _load_observer(folder: Path) -> ObserverState:
    try:
        data = (folder / runtime_state.OWN / "memory.bin").read_bytes()
        return msgspec.msgpack.decode(data, type=ObserverState)
    except (OSError, msgspec.MsgspecError):
        return ObserverState()
