"""The dashboard: what runs, who needs the person, what each account has left.

Pure: collected states in, rows out. `watch`, `status` and the Live page show the same rows; the
text in them is as recorded, so each of them makes it inert.
"""

from collections.abc import Sequence

from msgspec import Struct

from flightlog.agents.claude_code.hooks import QUESTION_TOOLS
from flightlog.live.billing import LIMIT_NAMES, merge_accounts, rank_profiles, switch_advice
from flightlog.live.collector import FOLDER, LiveState
from flightlog.live.health import ORPHANED, RESTING, STARTING, WAITING, WORKING
from flightlog.live.layout import format_age
from flightlog.live.observe import RecentSession
from flightlog.live.state import (
    AuthProfile,
    Billing,
    RuntimeSession,
    SessionActivity,
    SessionCost,
    VendorLimits,
)
from flightlog.live.state_file.runtime_state import NAME
from flightlog.model.addresses import unique_prefixes
from flightlog.model.text import pluralize

HOOKS_MISSING = "Hooks missing"
_ORDER = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}
# Issues of the machine or of an account, which are shown once instead of in each row.
_SHARED_ISSUES = (HOOKS_MISSING, *(f"{name} limit" for name in LIMIT_NAMES.values()))
_STATES = {RESTING: "idle", ORPHANED: "crashed", STARTING: "starting"}


class LimitBar(Struct, frozen=True):
    """How much of one limit is used, when it resets, and when it is used up at this pace."""

    name: str
    used_percent: float
    resets_ms: int
    exhausted_ms: int | None
    age_ms: int


class AccountRow(Struct, frozen=True):
    """An account and its running limits."""

    profile: AuthProfile
    bars: tuple[LimitBar, ...]


class DashboardRow(Struct, frozen=True):
    """A running session; `needs` says what the person has to do, if anything."""

    session: RuntimeSession
    name: str
    account: str
    needs: str
    state: str
    cost_usd: float | None
    problems: tuple[str, ...]

    @property
    def last_activity_ms(self) -> int:
        """The time of the last event or write."""
        return self.session.metadata.last_activity if self.session.metadata else 0


class Dashboard(Struct, frozen=True):
    """Everything that a dashboard shows at one time."""

    now_ms: int
    rows: tuple[DashboardRow, ...]
    accounts: tuple[AccountRow, ...]
    hourly_costs: tuple[float, ...]
    recent: tuple[RecentSession, ...]
    broken: tuple[str, ...]
    advice: str

    @property
    def today_usd(self) -> float:
        """The cost of today, over all accounts."""
        return sum(bill.cost_today for bill in self._current_bills)

    @property
    def burn_usd(self) -> float:
        """The cost per hour now, over all accounts."""
        return sum(bill.burn_rate_per_hour for bill in self._current_bills)

    @property
    def _current_bills(self) -> list[Billing]:
        bills = [account.profile.billing for account in self.accounts]
        return [bill for bill in bills if bill.is_current]

    @property
    def notices(self) -> tuple[str, ...]:
        """What concerns the machine instead of one session."""
        blind = sum(HOOKS_MISSING in row.session.health.issues for row in self.rows)
        hooks = f"{HOOKS_MISSING} in {pluralize(blind, 'session')}, whose state is a guess: "
        return (self.advice,) * bool(self.advice) + (f"{hooks}flightlog init",) * bool(blind)


def build_dashboard(
    lives: Sequence[LiveState], recent: Sequence[RecentSession], now_ms: int
) -> Dashboard:
    """Return the dashboard: sessions that need the person first, then by health and activity."""
    now_ms = max([now_ms, *(live.now_ms for live in lives)])
    profiles = merge_accounts(live.state for live in lives)
    pairs = [(live, session) for live in lives for session in live.state.sessions]
    names = unique_prefixes(session.session_id for _, session in pairs)
    rows = [_build_row(live, session, names, now_ms) for live, session in pairs]
    rows.sort(key=lambda row: (-row.last_activity_ms, row.session.session_id))
    rows.sort(key=lambda row: (not row.needs, _ORDER.get(row.session.health.status, 2)))
    hourly = [live.hourly_costs for live in lives if live.hourly_costs]
    return Dashboard(
        now_ms,
        tuple(rows),
        tuple(AccountRow(item, _limit_bars(item, now_ms)) for item, _ in rank_profiles(profiles)),
        tuple(map(sum, zip(*hourly, strict=True))),
        tuple(recent),
        tuple(f"{live.config_dir}/{FOLDER}/{NAME}: {live.error}" for live in lives if live.error),
        switch_advice(profiles),
    )


def format_elapsed(ms: int) -> str:
    """Return an age with seconds below a minute: `12s`, `3m`."""
    return f"{max(ms, 0) // 1000}s" if ms < 60_000 else format_age(ms)


def format_countdown(ms: int) -> str:
    """Return the time that is left in its two largest units: `1h 56m`, `2d 3h`."""
    minutes = max(ms, 0) // 60_000
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes % 60:02}m" if hours else f"{minutes}m"


def _build_row(
    live: LiveState, session: RuntimeSession, names: dict[str, str], now_ms: int
) -> DashboardRow:
    # An id of a profile may mean another account in another directory.
    profile = live.state.find_profile(session.auth_profile)
    cost = session.cost or SessionCost()
    needs, state = _describe_state(session, now_ms)
    return DashboardRow(
        session,
        names[session.session_id],
        profile.label if profile else session.auth_profile,
        needs,
        state,
        cost.client_cost_usd if cost.recorded_cost_usd is None else cost.recorded_cost_usd,
        tuple(issue for issue in session.health.issues if not issue.startswith(_SHARED_ISSUES)),
    )


def _describe_state(session: RuntimeSession, now_ms: int) -> tuple[str, str]:
    """Return what the person has to do, and what the session does and since when."""
    life, activity = session.health.lifecycle, session.activity or SessionActivity()
    since = f" {format_elapsed(now_ms - activity.since)}" if activity.since else ""
    tool = activity.tool or ""
    if life == WAITING:
        asks = activity.event == "Elicitation" or tool in QUESTION_TOOLS
        needs = "answer" if asks else f"permission: {tool}" if tool else "permission"
        return needs, f"needs {needs}{since}"
    if life == WORKING and activity.event == "PreToolUse":
        return "", f"{tool or 'tool'}{since}"
    if life == WORKING and activity.event == "PreCompact":
        return "", f"compacting{since}"
    if life == WORKING:
        return "", f"responding{since}" if since else "working"
    if life == RESTING and session.metadata is not None:
        return "", f"idle {format_elapsed(now_ms - session.metadata.last_activity)}"
    return "", _STATES.get(life or "", life or "-")


def _limit_bars(profile: AuthProfile, now_ms: int) -> tuple[LimitBar, ...]:
    bill = profile.billing
    limits, bars = bill.limits or VendorLimits(), []
    for field, name in LIMIT_NAMES.items():
        window = getattr(limits, field)
        if window is None or window.used_percent is None or (window.resets_at or 0) <= now_ms:
            continue
        # Only the five-hour window has a forecast.
        exhausted = bill.forecast.exhausted_at if bill.forecast and field == "five_hour" else None
        age_ms = now_ms - window.as_of if window.as_of else 0
        bars.append(LimitBar(name, window.used_percent, window.resets_at or 0, exhausted, age_ms))
    return tuple(bars)
