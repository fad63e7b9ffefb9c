"""Gathering: look at what runs, work out who pays what, write all pages and one line to the log.

Called after each turn (settle) and by whoever looks (status, watch, the page). The one impure
driver of the room; time, place and time zone are told from outside. One at a time per directory.
"""

import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.claude_code.files import AGENT_NAME, projects_dir
from flightlog.archive.archive import Archive, SessionFiles
from flightlog.live import health, layout, observe
from flightlog.live.billing import round_cents
from flightlog.live.cleanup import archive_removed, clean_up, log_line
from flightlog.live.events import BillingHistory, Event, ProfileBilled, fold_history
from flightlog.live.observe import ObservedSession, ObserverState, observe_panes
from flightlog.live.profiles import ProfileLedger
from flightlog.live.state import (
    Alerts,
    AuthProfile,
    ContextUsage,
    ModelInfo,
    RuntimeSession,
    RuntimeState,
    SessionCost,
    SessionMetadata,
    Thresholds,
    TranscriptInfo,
)
from flightlog.live.state_file import runtime_state
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.usage import DAY_MS
from flightlog.privacy.trust import is_trusted
from flightlog.store import files
from flightlog.store.journal import Journal
from flightlog.store.locks import exclusive_lock
from flightlog.store.output_files import write_output_files

FOLDER = "session-health"
LOCK = "gather.lock"
RECENT_MS = 8 * DAY_MS  # the week that billing looks back, and a day to spare
WINDOW_DEFAULT = 200_000
WINDOW_LONG = 1_000_000
PAGE_EVERY_MS = 90_000
PAGE_SPREAD_S = 120
GATHER_WAIT_S = 30.0


Draw = Callable[[dict[str, Any]], dict[str, str]]
"""The status line of a session's page, by width."""


class LiveDirectory(Struct, frozen=True):
    """An agent's configuration directory, looked at from one runtime at one time."""

    runtime: Runtime
    config_dir: Path
    now_ms: int
    draw: Draw | None = None

    @property
    def folder(self) -> Path:
        """Where the pages are."""
        return self.config_dir / FOLDER

    @property
    def home(self) -> Path:
        """Our own data directory."""
        return Path(self.runtime.data_dir)


class CollectDepth(Struct, frozen=True):
    """How hard to look: git and secrets of all sessions, or of `only` one; how long to wait for who looks already."""

    only: str = ""
    secrets: bool = True
    durable: bool = True
    wait_s: float = GATHER_WAIT_S


class LiveState(Struct):
    """What was gathered."""

    config_dir: str
    state: RuntimeState
    broken: str
    now_ms: int
    launches: dict[str, layout.LaunchInfo]
    changed: int = 0


def collect_live_state(where: LiveDirectory, archive: Archive, effort: CollectDepth | None = None) -> LiveState:
    """Look, and write down what is different."""
    effort = effort or CollectDepth()
    with exclusive_lock(where.folder / runtime_state.OWN / LOCK, limit_s=effort.wait_s):
        return LiveCollector(where, archive, effort).collect_all()


def open_journal(where: LiveDirectory) -> Journal[Event]:
    """The room's journal."""
    moment = datetime.fromtimestamp(where.now_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    path = where.folder / runtime_state.OWN / "journal.jsonl"
    return Journal(path, Event, now=lambda: moment.replace("+00:00", "Z"), new_id=where.runtime.new_id)


class LiveCollector:
    """One look at everything."""

    def __init__(self, where: LiveDirectory, archive: Archive, effort: CollectDepth) -> None:
        self.where, self.archive, self.effort, self.now_ms = where, archive, effort, where.now_ms
        template = where.runtime.config.get("statusline.template")
        self.template = str(template.value) if template is not None else ""
        self.memory = _load_memory(where.folder)
        self.journal = open_journal(where)
        self.book: BillingHistory = fold_history(self.journal.read_records())
        self.recordings = self._recent_recordings()
        self.projects: dict[str, str] = {}
        self.due: set[str] = set()

    def collect_all(self) -> LiveState:
        # A file deleted later is made again from the journal, not from our own old pages.
        if not (self.where.folder / runtime_state.NAME).exists() and not self.journal.path.exists():
            runtime_state.migrate_billing(self.where.folder, self.now_ms, layout.old_billing(self.where.folder))
        seen = runtime_state.load_state(self.where.folder, self.now_ms)
        accounts = ProfileLedger(seen.state, self.book, self.memory, self.now_ms)
        accounts.apply_edits()
        digests = self.archive.usage_pipeline.session_digests(self.recordings)
        self.projects = {each.session: each.project for each in digests}
        memos = self._observe_sessions(accounts)
        for event in accounts.events:
            self.journal.append(event)
        profiles = accounts.bill_profiles(
            digests, self.archive.usage_pipeline.session_responses, self.where.runtime.zone
        )
        thresholds = seen.state.thresholds
        sessions = [self._build_session(memo, accounts, thresholds, broken=bool(seen.broken)) for memo in memos]
        launched = {each.session_id: self._launch_info(each, accounts) for each in sessions}
        self._draw_status_lines(RuntimeState(profiles, sessions, thresholds), launched)
        done = self._write_state(profiles, sessions)
        gathered = LiveState(str(self.where.config_dir), done.state, done.broken or seen.broken, self.now_ms, launched)
        gathered.changed = self._write_pages(gathered)
        self._finish_collection(gathered, len(done.removed))
        return gathered

    def _recent_recordings(self) -> dict[str, SessionFiles]:
        """The sessions of this configuration directory that changed in the last days."""
        root = projects_dir(self.where.config_dir) + "/"
        return {
            name: each
            for name, each in self.archive.recordings.items()
            if self.now_ms - each.changed_ms < RECENT_MS and any(file.path.startswith(root) for file in each.files)
        }

    def _observe_sessions(self, accounts: ProfileLedger) -> list[ObservedSession]:
        marked = layout.sessions_with_status_line(self.where.home, self.where.config_dir)
        names = sorted({*self.recordings, *marked, *self.memory.sessions})
        memos = []
        for name in names:
            memo = self.memory.sessions.setdefault(name, ObservedSession(name, self.now_ms, secrets_ms=self.now_ms))
            recording = self.recordings.get(name)
            recent = recording is not None and self.now_ms - recording.changed_ms < health.LIVE_MS
            # Of a session that rests, only what was noted is read: who paid for it counts all week.
            read = recording if recent or observe.is_alive(memo) else None
            fresh = observe.update_observation(memo, f"{self.where.home}/sessions/{AGENT_NAME}/{name}", read)
            accounts.observe_session(name, fresh, self._project_path(memo), str(self.where.config_dir))
            signs = self._read_signals(memo)
            if health.is_live(signs):
                memos.append(memo)
            elif self.now_ms - signs.activity_ms > RECENT_MS:
                del self.memory.sessions[name]
        mine = [memo for memo in memos if self.effort.only in {"", memo.session}]
        observe_panes(mine, self.now_ms)
        observe.observe_git(
            [(memo, self._project_path(memo)) for memo in mine], self.now_ms, partial(is_trusted, self.where.runtime)
        )
        for memo in mine if self.effort.secrets else ():
            recording = self.recordings.get(memo.session)
            due = not self.effort.only or self.now_ms - memo.secrets_ms > observe.SECRETS_EVERY_MS
            if recording is not None and due:
                observe.search_secrets(memo, recording, self.now_ms)
        return memos

    def _project_path(self, memo: ObservedSession) -> str:
        payload = memo.told.payload if memo.told else None
        if payload is not None and payload.workspace is not None and payload.workspace.project_dir:
            return payload.workspace.project_dir
        return (payload.cwd if payload else None) or self.projects.get(memo.session, "")

    def _read_signals(self, memo: ObservedSession) -> health.HealthSignals:
        recording = self.recordings.get(memo.session)
        main = recording.main if recording else None
        return health.HealthSignals(
            now_ms=self.now_ms,
            last_event=memo.last_event,
            event_ms=max(memo.event_ms, memo.told.at_ms if memo.told and memo.last_event != "SessionEnd" else 0),
            changed_ms=recording.changed_ms if recording else 0,
            transcript_exists=main is not None,
            has_messages=memo.messages > 0,
            has_hooks=memo.hooks_at > 0,
            pid_alive=observe.is_alive(memo),
            secrets=sum(memo.secrets.values()),
        )

    def _build_session(
        self, memo: ObservedSession, accounts: ProfileLedger, said: Thresholds | None, *, broken: bool
    ) -> RuntimeSession:
        profile = accounts.profile_of(memo.session)
        thresholds = health.effective_thresholds(said, profile.thresholds)
        context = _context_usage(memo, thresholds)
        signs = self._read_signals(memo)
        signs.percent_used, signs.broken_file = context.percent_used, broken
        signs.cost_issues = accounts.cost_issues(profile, thresholds)
        recording = self.recordings.get(memo.session)
        payload = memo.told.payload if memo.told else None
        client = payload.cost.total_cost_usd if payload and payload.cost else None
        spent = accounts.session_usd.get(memo.session)
        return RuntimeSession(
            session_id=memo.session,
            auth_profile=profile.profile_id,
            project_path=self._project_path(memo),
            transcript_path=recording.main.path if recording and recording.main else "",
            health=health.judge_health(signs, thresholds),
            model=_model_info(memo),
            context=context,
            git=memo.git,
            transcript=_transcript_info(memo, recording, self.now_ms),
            alerts=Alerts(
                bool(memo.secrets),
                sorted(memo.secrets),
                health.is_stale(signs, thresholds),
                health.is_at_risk(signs, thresholds),
            ),
            metadata=SessionMetadata(self.now_ms, signs.activity_ms),
            cost=SessionCost(
                round_cents(spent) if spent is not None else None,
                round_cents(client) if client is not None else None,
                memo.told.at_ms if memo.told and client is not None else None,
            ),
            swaps=accounts.list_switches(memo.session),
            tmux=memo.tmux,
        )

    def _write_state(
        self, profiles: list[AuthProfile], sessions: list[RuntimeSession]
    ) -> runtime_state.StateFileUpdate:
        def change(state: RuntimeState) -> RuntimeState:
            before = {each.session_id: each for each in state.sessions}
            state.auth_profiles = _merge_profiles(state.auth_profiles, profiles)
            kept = {each.session_id: _restore_unchanged_times(before.get(each.session_id), each) for each in sessions}
            order = [name for name in before if name in kept] + [name for name in kept if name not in before]
            state.sessions = [kept[name] for name in order]
            state.thresholds = state.thresholds or health.default_thresholds()
            state.metadata = True
            return state

        done = runtime_state.update_state(self.where.folder, self.now_ms, change, durable=self.effort.durable)
        archive_removed(self.where.folder, self.journal, done.removed, self.now_ms)
        return done

    def _launch_info(self, session: RuntimeSession, accounts: ProfileLedger) -> layout.LaunchInfo:
        memo = self.memory.sessions[session.session_id]
        profile = accounts.profile_of(session.session_id)
        launch = memo.told.launch if memo.told else None
        return layout.LaunchInfo(
            auth_profile=profile.profile_id,
            label=profile.label,
            detection_method=accounts.method_of(session.session_id),
            launch_alias=launch.alias if launch else "",
            config_dir=str(self.where.config_dir),
            tmux_pane_id=launch.tmux_pane if launch else "",
            first_seen=memo.first_seen_ms,
            cli_version=(memo.told.payload.version or "") if memo.told else "",
        )

    def _draw_status_lines(self, state: RuntimeState, launches: dict[str, layout.LaunchInfo]) -> None:
        """Find out whose page is due, and draw the status line of those anew."""
        for session in state.sessions:
            memo, launched = self.memory.sessions[session.session_id], launches[session.session_id]
            mark = layout.fingerprint_session(session, launched, self.template)
            # Not all at the same moment: each session has its own.
            every_ms = PAGE_EVERY_MS + 1000 * (zlib.crc32(session.session_id.encode()) % PAGE_SPREAD_S)
            mine = session.session_id == self.effort.only
            if mine or mark != memo.page_print or self.now_ms - memo.page_ms > every_ms:
                memo.page_print, memo.page_ms = mark, self.now_ms
                self.due.add(session.session_id)
                if self.where.draw is not None:
                    memo.lines = self.where.draw(layout.session_body(session, launched, state, self.template))
            session.formatted_strings = memo.lines or None

    def _write_pages(self, live: LiveState) -> int:
        due = [
            layout.session_page(session, live.launches[session.session_id], live.state, self.template)
            for session in live.state.sessions
            if session.session_id in self.due
        ]
        shared = layout.shared_pages(live.state, self.now_ms, self.template)
        return len(write_output_files(self.where.folder, [*due, *shared], durable=False))

    def _finish_collection(self, live: LiveState, removed: int) -> None:
        if self.now_ms - self.memory.cleaned_ms > DAY_MS:
            clean_up(self.where.folder, self.where.home, self.now_ms)
            self.memory.cleaned_ms = self.now_ms
        path = self.where.folder / runtime_state.OWN / "memory.bin"
        files.replace_file(path, msgspec.msgpack.encode(self.memory), durable=False)
        log_line(self.where.folder, layout.log_entry(live.state, live.broken, (live.changed, removed), self.now_ms))


def record_manual_switch(where: LiveDirectory, session: str, profile: str, since_ms: int) -> ProfileBilled:
    """Write down that another profile pays from a time on."""
    seen = runtime_state.load_state(where.folder, where.now_ms).state
    if seen.find_profile(profile) is None:
        known = ", ".join(each.profile_id for each in seen.auth_profiles) or "none yet"
        raise NotFound(f"no such profile: {profile!r}; known are: {known}", hint="flightlog live profiles")
    event = ProfileBilled(session, profile, since_ms, "manual")
    open_journal(where).append(event, durable=True)
    return event


def _merge_profiles(before: list[AuthProfile], new: list[AuthProfile]) -> list[AuthProfile]:
    """Profiles with new figures; what a person may have written since stays theirs."""
    figures = {each.profile_id: each for each in new}
    kept = []
    for each in before:
        fresh = figures.pop(each.profile_id, None)
        if fresh is not None:
            each.billing, each.metadata = fresh.billing, fresh.metadata
            each.billing_fingerprint = each.billing_fingerprint or fresh.billing_fingerprint
        kept.append(each)
    return kept + list(figures.values())


def _restore_unchanged_times(before: RuntimeSession | None, now: RuntimeSession) -> RuntimeSession:
    """A session in which nothing happened keeps the times of its last news."""
    if before is None or before.metadata is None or now.metadata is None:
        return now
    if (before.health.status, before.health.issues) == (now.health.status, now.health.issues):
        now.health.last_update = before.health.last_update
    looked = now.metadata.gathered_at
    now.metadata.gathered_at = before.metadata.gathered_at
    if before != now:
        now.metadata.gathered_at = looked
    return now


def _model_info(memo: ObservedSession) -> ModelInfo:
    payload = memo.told.payload if memo.told else None
    if payload is not None and payload.model is not None and (payload.model.display_name or payload.model.id):
        return ModelInfo(str(payload.model.display_name or payload.model.id), "jsonInput", 80)
    return ModelInfo(memo.model, "transcript", 90) if memo.model else ModelInfo("unknown", "default", 10)


def _context_usage(memo: ObservedSession, thresholds: Thresholds) -> ContextUsage:
    window = memo.told.payload.context_window if memo.told else None
    size = (window.context_window_size if window else None) or (WINDOW_LONG if "[1m]" in memo.model else WINDOW_DEFAULT)
    used = window.current_usage.usage().total if window and window.current_usage else memo.tokens
    room = int(size * (thresholds.compaction_percent or 100) / 100)
    percent = 100 * used // room if room else 0
    near = percent >= (thresholds.context_warning_percent or 0)
    return ContextUsage(used, max(room - used, 0), percent, size, near)


def _transcript_info(memo: ObservedSession, recording: SessionFiles | None, now_ms: int) -> TranscriptInfo:
    main = recording.main if recording else None
    if recording is None or main is None:
        return TranscriptInfo()
    age = now_ms - recording.changed_ms
    return TranscriptInfo(
        exists=True,
        size_bytes=main.size,
        last_modified=recording.changed_ms,
        last_modified_ago=layout.format_age(age),
        message_count=memo.messages,
        last_message_preview=memo.said,
        is_synced=age < health.SYNCED_MS,
    )


def _load_memory(folder: Path) -> ObserverState:
    try:
        data = (folder / runtime_state.OWN / "memory.bin").read_bytes()
        return msgspec.msgpack.decode(data, type=ObserverState)
    except (OSError, msgspec.MsgspecError):
        return ObserverState()
