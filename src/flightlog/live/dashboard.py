"""The dashboard: profiles and running sessions as lines of text for a terminal of any size.

Pure: collected states in, lines out. Foreign text is made inert and cut to its column. The color
is a word beside each line; the interface decides whether to show it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import PurePosixPath
from typing import NamedTuple

from flightlog.live.billing import merge_accounts, switch_advice
from flightlog.live.collector import LiveState
from flightlog.live.health import RESTING, WAITING
from flightlog.live.layout import format_age
from flightlog.live.observe import RecentSession
from flightlog.live.state import (
    AuthProfile,
    RuntimeSession,
    SessionCost,
    VendorLimits,
    VendorWindow,
)
from flightlog.model.addresses import unique_prefixes
from flightlog.model.text import one_line

WIDTH_LEAST = 40  # below this width the tables are cut instead of narrowed
SQUEEZE = 1.15  # a row may be this much too wide before a column is dropped
LAST_LEAST = 24  # the last column shows the worst problem in this width
CELL_LEAST = 9  # still shows a session id and the beginning of a label
_OLD_LIMIT_MS = 300_000  # the vendor's percentage is shown with its age from here on
_ORDER = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}
# "waiting" is a question to the person; a session that is done for now is idle.
LIFE_WORDS = {WAITING: "waiting for you", RESTING: "idle"}
_COLORS = {"critical": "red", "warning": "yellow", "healthy": "green"}


class DashboardLine(NamedTuple):
    """A line and its color, if any."""

    text: str
    color: str = ""


class TerminalSize(NamedTuple):
    """Size of the terminal (a height of 0 means no limit), its time zone and time."""

    width: int
    height: int
    zone: tzinfo
    now_ms: int = 0


class ColumnLayout(NamedTuple):
    """Columns aligned right, and columns to drop, in this order, if the terminal is too narrow."""

    right: tuple[int, ...]
    dropped: tuple[int, ...]


def dashboard_lines(
    lives: Sequence[LiveState], screen: TerminalSize, recent: Sequence[RecentSession] = ()
) -> list[DashboardLine]:
    """Return the lines of the dashboard: sessions that wait for the person, then by health."""
    profiles = merge_accounts(live.state for live in lives)
    sessions = [session for live in lives for session in live.state.sessions]
    sessions.sort(
        key=lambda item: (
            item.health.lifecycle != WAITING,
            _ORDER.get(item.health.status, 2),
            -_last_activity(item),
            item.session_id,
        )
    )
    labels = label_sessions(lives)
    now_ms = max((live.now_ms for live in lives), default=screen.now_ms)
    lines = [_title_line(sessions, profiles, now_ms, screen), DashboardLine("")]
    lines += _profile_lines(profiles, now_ms, screen)
    lines += [DashboardLine(""), *_session_lines(sessions, labels, now_ms, screen)]
    lines += _recent_lines(recent, max(now_ms, screen.now_ms), screen) if recent else []
    broken = [one_line(f"not read: {live.error}", 200) for live in lives if live.error]
    foot = [DashboardLine(text, "red") for text in broken]
    if advice := switch_advice(profiles):
        foot.append(DashboardLine(one_line(advice, 200), "yellow"))
    lines = [*_fit_height(lines, len(foot), screen), *foot]
    return [DashboardLine(_truncate(line.text, screen.width), line.color) for line in lines]


def label_sessions(lives: Sequence[LiveState]) -> dict[str, str]:
    """Return the label of each session's account; an id alone may differ between directories."""
    return {
        session.session_id: profile.label
        if (profile := live.state.find_profile(session.auth_profile))
        else session.auth_profile
        for live in lives
        for session in live.state.sessions
    }


def _title_line(
    sessions: Sequence[RuntimeSession],
    profiles: Sequence[AuthProfile],
    now_ms: int,
    screen: TerminalSize,
) -> DashboardLine:
    clock = f" {_format_clock(now_ms, '%H:%M:%S', screen.zone)}" if now_ms else ""
    today = sum(profile.billing.cost_today for profile in profiles)
    burn = sum(profile.billing.burn_rate_per_hour for profile in profiles)
    count = f"{len(sessions)} running" if sessions else "nothing runs"
    return DashboardLine(f"flightlog{clock}  {count}  today ${today:,.2f}  ${burn:,.2f}/h", "bold")


def _profile_lines(
    profiles: Sequence[AuthProfile], now_ms: int, screen: TerminalSize
) -> list[DashboardLine]:
    zone = screen.zone
    head = ("PROFILE", "TODAY", "BLOCK", "WEEK", "PER HOUR", "5-HOUR LIMIT", "7-DAY LIMIT")
    rows: list[tuple[str, ...]] = [head]
    for profile in profiles:
        bill = profile.billing
        limits = bill.limits or VendorLimits()
        five_hour = _format_limit(limits.five_hour, now_ms, "%H:%M", zone)
        if bill.forecast is not None and bill.forecast.exhausted_at:
            five_hour += f" out {_format_clock(bill.forecast.exhausted_at, '%H:%M', zone)}"
        reset = "-"
        if (bill.block_end or 0) > now_ms:
            reset = f"resets {_format_clock(bill.block_end or 0, '%H:%M', zone)} by our count"
        seven_day = _format_limit(limits.seven_day, now_ms, "%a %H:%M", zone)
        amounts = (
            bill.cost_today,
            bill.block_cost_usd,
            bill.week_cost_usd,
            bill.burn_rate_per_hour,
        )
        costs = (f"${usd or 0:,.2f}" for usd in amounts)
        rows.append((profile.label, *costs, five_hour or reset, seven_day or "-"))
    return _table_lines(rows, ColumnLayout(right=(1, 2, 3, 4), dropped=(2, 3, 4, 6)), screen, {})


def _session_lines(
    sessions: Sequence[RuntimeSession], labels: dict[str, str], now_ms: int, screen: TerminalSize
) -> list[DashboardLine]:
    if not sessions:
        return [DashboardLine("Start an agent and it appears here.")]
    rows = [("SESSION", "PROJECT", "PROFILE", "MODEL", "CONTEXT", "COST", "LIFE", "SEEN", "HEALTH")]
    colors = {}
    for session in sessions:
        cost = session.cost or SessionCost()
        usd = cost.client_cost_usd if cost.recorded_cost_usd is None else cost.recorded_cost_usd
        near = "!" if session.context.near_compaction else ""
        swapped = (
            f" (swapped {len(session.profile_switches) - 1}x)" if session.profile_switches else ""
        )
        life = session.health.lifecycle or "-"
        colors[len(rows)] = _COLORS.get(session.health.status, "")
        if life == WAITING and colors[len(rows)] != "red":
            colors[len(rows)] = "yellow"
        rows.append(
            (
                session.session_id[:8],
                PurePosixPath(session.project_path).name or "-",
                labels[session.session_id] + swapped,
                session.model.value,
                f"{session.context.percent_used}%{near}",
                "-" if usd is None else f"${usd:,.2f}",
                LIFE_WORDS.get(life, life),
                format_age(now_ms - _last_activity(session)),
                ", ".join(session.health.issues) or session.health.status,
            )
        )
    return _table_lines(
        rows, ColumnLayout(right=(4, 5, 7), dropped=(7, 3, 5, 2, 6)), screen, colors
    )


def _recent_lines(
    recent: Sequence[RecentSession], now_ms: int, screen: TerminalSize
) -> list[DashboardLine]:
    names = unique_prefixes(session.session for session in recent)
    rows = [("SESSION", "PROJECT", "AGENT", "LAST RECORD")]
    for session in recent:
        project = PurePosixPath(session.project).name or "-"
        age = f"{format_age(now_ms - session.last_record_ms)} ago"
        rows.append((names[session.session], project, session.agent, age))
    head = DashboardLine("Active in the last hour; whether they run is not recorded:")
    return [DashboardLine(""), head, *_table_lines(rows, ColumnLayout((), ()), screen, {})]


def _table_lines(
    rows: Sequence[tuple[str, ...]],
    columns: ColumnLayout,
    screen: TerminalSize,
    colors: dict[int, str],
) -> list[DashboardLine]:
    """Lay out a table; if it is too wide, drop columns first, then narrow the widest ones."""
    clean = [[one_line(cell, 60) for cell in row] for row in rows]
    widths = {column: max(len(row[column]) for row in clean) for column in range(len(rows[0]))}
    limit = max(screen.width, WIDTH_LEAST)
    last = max(widths)
    # A long list of problems is cut before it displaces a column.
    excess = max(widths[last] - LAST_LEAST, 0)
    for column in columns.dropped:
        if sum(widths.values()) - excess + len(widths) - 1 > limit * SQUEEZE:
            del widths[column]
    while sum(widths.values()) + len(widths) - 1 > limit:
        widest = max((column for column in widths if column != last), key=lambda at: widths[at])
        # The last column says what is wrong, so it is narrowed last.
        widths[widest if widths[widest] > CELL_LEAST or widths[last] <= CELL_LEAST else last] -= 1
    lines = []
    for number, row in enumerate(clean):
        cells = [
            f"{one_line(row[column], width):{'>' if column in columns.right else '<'}{width}}"
            for column, width in widths.items()
        ]
        color = colors.get(number, "dim" if number == 0 else "")
        lines.append(DashboardLine(" ".join(cells).rstrip(), color))
    return lines


def _fit_height(lines: list[DashboardLine], foot: int, screen: TerminalSize) -> list[DashboardLine]:
    most = screen.height - foot
    if not screen.height or len(lines) <= most:
        return lines
    hidden = len(lines) - most + 1
    more = DashboardLine(f"… {hidden} more; flightlog status shows them all", "dim")
    return [*lines[: most - 1], more]


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _format_limit(window: VendorWindow | None, now_ms: int, form: str, zone: tzinfo) -> str:
    if window is None or window.used_percent is None or (window.resets_at or 0) <= now_ms:
        return ""
    age = now_ms - window.as_of if window.as_of else 0
    aged = f" ({format_age(age)} old)" if age > _OLD_LIMIT_MS else ""
    return (
        f"{window.used_percent:.0f}% until {_format_clock(window.resets_at or 0, form, zone)}{aged}"
    )


def _format_clock(at_ms: int, form: str, zone: tzinfo) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone(zone).strftime(form)


def _last_activity(session: RuntimeSession) -> int:
    return session.metadata.last_activity if session.metadata else 0
