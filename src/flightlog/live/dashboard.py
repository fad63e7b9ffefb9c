"""The board: who runs, who pays, what is wrong, as lines of text for a terminal of any size.

Pure: what was gathered in, lines out. All text of others is inert and cut to its column; colour is
a word beside each line, so that the face decides whether to show it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import PurePosixPath
from typing import NamedTuple

from flightlog.live.collector import LiveState
from flightlog.live.layout import format_age
from flightlog.live.profiles import LEAVE_AT, URGENT_AT, profile_urgency, rank_profiles
from flightlog.live.state import AuthProfile, RuntimeSession, VendorWindow
from flightlog.model.text import one_line

WIDTH_LEAST = 40
SQUEEZE = 1.15  # a row may be this much too wide before a column goes
CELL_LEAST = 9
_ORDER = {"critical": 0, "warning": 1, "unknown": 2, "healthy": 3}
_COLOURS = {"critical": "red", "warning": "yellow", "healthy": "green"}


class DashboardLine(NamedTuple):
    """A line, and the colour it is shown in, if any."""

    text: str
    color: str = ""


class TerminalSize(NamedTuple):
    """How much room there is; a height of 0 is as much as is needed."""

    width: int
    height: int
    zone: tzinfo


class ColumnLayout(NamedTuple):
    """Which columns stand to the right, and which go first where there is too little room."""

    right: tuple[int, ...]
    dropped: tuple[int, ...]


def dashboard_lines(lives: Sequence[LiveState], screen: TerminalSize) -> list[DashboardLine]:
    """Lay out everything that runs here, the worst first."""
    profiles = [each for live in lives for each in live.state.auth_profiles]
    sessions = sorted(
        (each for live in lives for each in live.state.sessions),
        key=lambda each: (_ORDER.get(each.health.status, 2), -_last_activity(each), each.session_id),
    )
    labels = {each.profile_id: each.label for each in profiles}
    now_ms = max((live.now_ms for live in lives), default=0)
    lines = [_title_line(sessions, profiles, now_ms, screen), DashboardLine("")]
    lines += _profile_lines(profiles, now_ms, screen)
    lines += [DashboardLine(""), *_session_lines(sessions, labels, now_ms, screen)]
    foot = [DashboardLine(one_line(f"not read: {live.broken}", 200), "red") for live in lives if live.broken]
    foot += [DashboardLine(one_line(said, 200), "yellow") for said in [switch_advice(profiles)] if said]
    lines = _fit_height(lines, len(foot), screen)
    return [DashboardLine(_truncate(each.text, screen.width), each.color) for each in [*lines, *foot]]


def switch_advice(profiles: Sequence[AuthProfile]) -> str:
    """Say which profile to go to, when one that is in use is nearly used up."""
    pressed = [each for each in profiles if profile_urgency(each) >= LEAVE_AT]
    ranked = rank_profiles(profiles)
    if not pressed or ranked[0][1] >= LEAVE_AT:
        return "every profile is nearly used up" if pressed else ""
    worst = max(pressed, key=profile_urgency)
    how = "now" if profile_urgency(worst) >= URGENT_AT else "soon"
    return f"{worst.label} is nearly used up: go to {ranked[0][0].label} {how} (flightlog live swap)"


def _title_line(
    sessions: Sequence[RuntimeSession], profiles: Sequence[AuthProfile], now_ms: int, screen: TerminalSize
) -> DashboardLine:
    clock = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone(screen.zone).strftime("%H:%M:%S")
    today = sum(each.billing.cost_today for each in profiles)
    burn = sum(each.billing.burn_rate_per_hour for each in profiles)
    count = f"{len(sessions)} running" if sessions else "nothing runs"
    return DashboardLine(f"flightlog {clock}  {count}  today ${today:,.2f}  ${burn:,.2f}/h", "bold")


def _profile_lines(profiles: Sequence[AuthProfile], now_ms: int, screen: TerminalSize) -> list[DashboardLine]:
    rows: list[tuple[str, ...]] = [("PROFILE", "TODAY", "BLOCK", "WEEK", "PER HOUR", "5-HOUR LIMIT", "7-DAY LIMIT")]
    for each in profiles:
        told = each.billing
        limits = told.limits
        five = _format_limit(limits.five_hour if limits else None, now_ms, "%H:%M", screen.zone)
        if told.forecast is not None and told.forecast.exhausted_at:
            five += f" out {_format_clock(told.forecast.exhausted_at, '%H:%M', screen.zone)}"
        rows.append(
            (
                each.label,
                *(f"${usd or 0:,.2f}" for usd in (told.cost_today, told.block_cost, told.week_cost)),
                f"${told.burn_rate_per_hour:,.2f}",
                five or f"resets {_format_clock(told.block_end or 0, '%H:%M', screen.zone)} by our count",
                _format_limit(limits.seven_day if limits else None, now_ms, "%a %H:%M", screen.zone) or "-",
            )
        )
    return _table_lines(rows, ColumnLayout(right=(1, 2, 3, 4), dropped=(2, 3, 4, 6)), screen, {})


def _session_lines(
    sessions: Sequence[RuntimeSession], labels: dict[str, str], now_ms: int, screen: TerminalSize
) -> list[DashboardLine]:
    rows = [("SESSION", "PROJECT", "PROFILE", "MODEL", "CONTEXT", "COST", "LIFE", "SEEN", "HEALTH")]
    colours = {}
    for each in sessions:
        cost = each.cost.ledger_usd if each.cost and each.cost.ledger_usd is not None else None
        if cost is None and each.cost is not None:
            cost = each.cost.client_usd
        near = "!" if each.context.near_compaction else ""
        swapped = f" (swapped {len(each.swaps) - 1}x)" if each.swaps else ""
        colours[len(rows)] = _COLOURS.get(each.health.status, "")
        rows.append(
            (
                each.session_id[:8],
                PurePosixPath(each.project_path).name or "-",
                labels.get(each.auth_profile, each.auth_profile) + swapped,
                each.model.value,
                f"{each.context.percent_used}%{near}",
                "-" if cost is None else f"${cost:,.2f}",
                each.health.lifecycle or "-",
                format_age(now_ms - _last_activity(each)),
                ", ".join(each.health.issues) or each.health.status,
            )
        )
    shape = ColumnLayout(right=(4, 5, 7), dropped=(7, 3, 6, 2, 5))
    return (
        _table_lines(rows, shape, screen, colours)
        if sessions
        else [DashboardLine("Start an agent and it appears here.")]
    )


def _table_lines(
    rows: Sequence[tuple[str, ...]], shape: ColumnLayout, screen: TerminalSize, colours: dict[int, str]
) -> list[DashboardLine]:
    """Columns as wide as they need; where there is too little room some go, then the widest are narrowed."""
    clean = [[one_line(cell, 60) for cell in row] for row in rows]
    widths = {at: max(len(row[at]) for row in clean) for at in range(len(rows[0]))}
    limit = max(screen.width, WIDTH_LEAST)
    last = max(widths)
    for column in shape.dropped:
        if sum(widths.values()) + len(widths) - 1 > limit * SQUEEZE:
            del widths[column]
    while sum(widths.values()) + len(widths) - 1 > limit:
        narrow = max((at for at in widths if at != last), key=lambda at: widths[at])
        # What is wrong stands last and is narrowed last.
        widths[narrow if widths[narrow] > CELL_LEAST or widths[last] <= CELL_LEAST else last] -= 1
    lines = []
    for number, row in enumerate(clean):
        cells = [
            one_line(row[at], width).rjust(width) if at in shape.right else one_line(row[at], width).ljust(width)
            for at, width in widths.items()
        ]
        lines.append(DashboardLine(" ".join(cells).rstrip(), colours.get(number, "dim" if number == 0 else "")))
    return lines


def _fit_height(lines: list[DashboardLine], foot: int, screen: TerminalSize) -> list[DashboardLine]:
    most = screen.height - foot
    if not screen.height or len(lines) <= most:
        return lines
    hidden = len(lines) - most + 1
    return [*lines[: most - 1], DashboardLine(f"… {hidden} more; flightlog status shows them all", "dim")]


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _format_limit(window: VendorWindow | None, now_ms: int, form: str, zone: tzinfo) -> str:
    if window is None or window.used_percent is None or (window.resets_at or 0) <= now_ms:
        return ""
    aged = f" ({format_age(now_ms - window.as_of)} old)" if window.as_of and now_ms - window.as_of > 300_000 else ""
    return f"{window.used_percent:.0f}% until {_format_clock(window.resets_at or 0, form, zone)}{aged}"


def _format_clock(at_ms: int, form: str, zone: tzinfo) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone(zone).strftime(form)


def _last_activity(session: RuntimeSession) -> int:
    return session.metadata.last_activity if session.metadata else 0
