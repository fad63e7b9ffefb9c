"""The dashboard as lines of text for a terminal of any width.

Foreign text is made inert and cut to its column. The color is a word beside each line; the
interface decides whether to show it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from flightlog.live.dashboard import (
    AccountRow,
    Dashboard,
    DashboardRow,
    LimitBar,
    format_countdown,
    format_elapsed,
)
from flightlog.live.health import ORPHANED
from flightlog.model.addresses import unique_prefixes
from flightlog.model.text import cell_width, fit_cells, folder_name, one_line
from flightlog.views.table_text import TableLayout, lay_out_table

BAR_CELLS = 10
SPARKS = "▁▂▃▄▅▆▇█"
_OLD_LIMIT_MS = 300_000  # the vendor's percentage is shown with its age from here on
_COLORS = {"critical": "red", "warning": "yellow"}
# A state is as long as "needs permission: WebFetch 5m", a problem is known by 12 letters.
_SESSION_LAYOUT = TableLayout(
    right=(4, 5), dropped=(7, 6, 2, 5), least={1: 9, 2: 12, 3: 28, 6: 9, 7: 8, 8: 12}, gap=" "
)
_RED_PERCENT, _YELLOW_PERCENT = 90, 70  # as in the status line


class DashboardLine(NamedTuple):
    """A line and its color, if any."""

    text: str
    color: str = ""


class TextStyle(NamedTuple):
    """The width of the terminal and its time zone."""

    width: int
    zone: tzinfo


def dashboard_lines(board: Dashboard, style: TextStyle) -> list[DashboardLine]:
    """Return the whole dashboard."""
    lines = [*head_lines(board, style), DashboardLine("")]
    if board.rows:
        lines += session_lines(board.rows, style)
    else:
        lines.append(DashboardLine("Start an agent and it appears here."))
    lines += [*recent_lines(board, style), *foot_lines(board)]
    return [DashboardLine(_cut(line.text, style.width), line.color) for line in lines]


def head_lines(board: Dashboard, style: TextStyle) -> list[DashboardLine]:
    """Return the title and, of each account, costs and limits."""
    waiting = sum(bool(row.needs) for row in board.rows)
    crashed = sum(row.session.health.lifecycle == ORPHANED for row in board.rows)
    running = len(board.rows) - crashed
    count = f"{running} running" if running else "nothing runs"
    count += f", {crashed} crashed" if crashed else ""
    count += f", {waiting} {'needs' if waiting == 1 else 'need'} you" if waiting else ""
    clock = _format_clock(board.now_ms, "%H:%M:%S", style.zone)
    money = f"today ${board.today_usd:,.2f}  ${board.burn_usd:,.2f}/h"
    title = f"flightlog {clock}  {count}  {money}"
    lines = [DashboardLine(title, "bold")]
    if board.hourly_costs:
        spark = f"24 h {sparkline(board.hourly_costs)} ${sum(board.hourly_costs):,.2f}"
        if cell_width(f"{title}  {spark}") <= style.width:
            lines = [DashboardLine(f"{title}  {spark}", "bold")]
        else:
            lines.append(DashboardLine(spark))
    for account in board.accounts:
        lines += _account_lines(account, board.now_ms, style)
    return lines


def session_lines(
    rows: Sequence[DashboardRow], style: TextStyle, titles: Mapping[str, str] | None = None
) -> list[DashboardLine]:
    """Return the table of sessions, its head first."""
    cells = [
        ("SESSION", "PROJECT", "TITLE", "STATE", "CONTEXT", "COST", "ACCOUNT", "MODEL", "HEALTH")
    ]
    colors = ["dim"]
    for row in rows:
        session = row.session
        near = "!" if session.context.near_compaction else ""
        switches = len(session.profile_switches or ()) - 1
        switched = f" (switched {switches}x)" if switches > 0 else ""
        level = _COLORS.get(session.health.status, "") if row.problems else ""
        colors.append("alert" if row.needs else level)
        project = folder_name(session.project_path) or "-"
        title = (titles or {}).get(session.session_id, "")
        percent = f"{session.context.percent_used}%{near}"
        cost = "-" if row.cost_usd is None else f"${row.cost_usd:,.2f}"
        account, problems = row.account + switched, ", ".join(row.problems) or "ok"
        facts = (percent, cost, account, session.model.value, problems)
        cells.append((row.name, project, title, row.state, *facts))
    lines = lay_out_table(cells, _SESSION_LAYOUT, style.width)
    return [DashboardLine(line, color) for line, color in zip(lines, colors, strict=True)]


def recent_lines(board: Dashboard, style: TextStyle) -> list[DashboardLine]:
    """Return the sessions of agents whose processes are not known."""
    if not board.recent:
        return []
    names = unique_prefixes(session.session for session in board.recent)
    rows = [("SESSION", "PROJECT", "AGENT", "LAST RECORD")]
    for session in board.recent:
        project = folder_name(session.project) or "-"
        age = f"{format_elapsed(board.now_ms - session.last_record_ms)} ago"
        rows.append((names[session.session], project, session.agent, age))
    head = "Active in the last hour; whether they run is not recorded:"
    table = lay_out_table(rows, TableLayout(least={1: 10}, gap=" "), style.width)
    return [DashboardLine(""), *map(DashboardLine, [head, *table])]


def foot_lines(board: Dashboard) -> list[DashboardLine]:
    """Return what could not be read, and what concerns the whole machine."""
    broken = [DashboardLine(one_line(f"not read: {error}", 200), "red") for error in board.broken]
    return broken + [DashboardLine(one_line(text, 200), "yellow") for text in board.notices]


def sparkline(values: Sequence[float]) -> str:
    """Return one block per value, as high as its share of the greatest; zero is the lowest."""
    top = max(values, default=0.0)
    steps = len(SPARKS) - 1
    return "".join(
        SPARKS[min(steps, -int(-value * steps // top))] if top else "▁" for value in values
    )


def percent_bar(percent: float) -> str:
    """Return a bar of ten blocks, filled by `percent`; something is never shown as nothing."""
    filled = min(max(round(percent * BAR_CELLS / 100), int(percent > 0)), BAR_CELLS)
    return "█" * filled + "░" * (BAR_CELLS - filled)


def _account_lines(account: AccountRow, now_ms: int, style: TextStyle) -> list[DashboardLine]:
    """Return one line if all of the account fits in it, else one more for each limit."""
    bill = account.profile.billing
    label = one_line(account.profile.label, 24)
    week = "-" if bill.week_cost_usd is None else f"${bill.week_cost_usd:,.2f}"
    day = _format_clock(bill.last_fetched, "%Y-%m-%d", style.zone)
    costs = f"{'today' if bill.is_current else day} ${bill.cost_today:,.2f}  week {week}"
    if (bill.block_end or 0) > now_ms:
        costs += f"  block ${bill.block_cost_usd or 0:,.2f}  ${bill.burn_rate_per_hour:,.2f}/h"
        if not account.bars:
            reset = _format_clock(bill.block_end or 0, "%H:%M", style.zone)
            costs += f"  resets {reset} by our count"
    bars = [_limit_text(bar, now_ms, style) for bar in account.bars]
    worst = max((bar.used_percent for bar in account.bars), default=0.0)
    whole = "   ".join([f"{label}  {costs}", *bars])
    if cell_width(whole) <= style.width:
        return [DashboardLine(whole, _percent_color(worst))]
    lines = [DashboardLine(f"{label}  {costs}")]
    for bar, text in zip(account.bars, bars, strict=True):
        lines.append(DashboardLine(f"  {text}", _percent_color(bar.used_percent)))
    return lines


def _limit_text(bar: LimitBar, now_ms: int, style: TextStyle) -> str:
    left_ms = bar.resets_ms - now_ms
    form = "%H:%M" if left_ms < 86_400_000 else "%a %H:%M"
    clock = _format_clock(bar.resets_ms, form, style.zone)
    text = f"{bar.name} {percent_bar(bar.used_percent)} {bar.used_percent:.0f}%"
    text += f" resets in {format_countdown(left_ms)} ({clock})"
    if bar.exhausted_ms:
        text += f", used up at {_format_clock(bar.exhausted_ms, '%H:%M', style.zone)}"
    return text + (f", {format_elapsed(bar.age_ms)} old" if bar.age_ms > _OLD_LIMIT_MS else "")


def _percent_color(percent: float) -> str:
    return "red" if percent >= _RED_PERCENT else "yellow" if percent >= _YELLOW_PERCENT else ""


def _cut(text: str, width: int) -> str:
    return text if cell_width(text) <= width else fit_cells(text, width).rstrip()


def _format_clock(at_ms: int, form: str, zone: tzinfo) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone(zone).strftime(form)
