"""What each profile used: today, in the running five hours, this week; how fast, and until when it lasts.

Takes the ledger's tallies and who paid when. A tally that lies across a swap is divided by its
responses, so that profiles add up to the ledger and each to its own. Pure.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple

from flightlog.live.state import Billing, Forecast, VendorLimits, VendorWindow
from flightlog.model.usage import BLOCK_MS, HOUR_MS, UsageLine, row_to_response
from flightlog.usage.digest import UsageBucket
from flightlog.usage.prices import price

WEEK_MS = 7 * 24 * HOUR_MS
MINUTE_MS = 60_000
BURN_LEAST_MS = 5 * MINUTE_MS  # a first response says nothing about an hour
SLOPE_MS = 90 * MINUTE_MS
SLOPE_LEAST_MS = 5 * MINUTE_MS
SAME_WINDOW_MS = 600_000


class Payment(NamedTuple):
    """An amount somebody pays, and when."""

    first_ms: int
    last_ms: int
    usd: float
    tokens: int


class LimitSample(NamedTuple):
    """How full the five-hour window was at a moment."""

    at_ms: int
    percent: float
    resets_ms: int


class ProfileLimits(NamedTuple):
    """What is known of a profile besides what it spent."""

    limits: VendorLimits | None
    samples: Sequence[LimitSample]
    budget_usd: float | None = None


def divide_tally(tally: UsageBucket, cuts: Sequence[int], rows: Iterable[UsageLine]) -> list[Payment]:
    """Divide a tally at times; the parts add up to it whatever the rows say."""
    edges = [0, *(cut for cut in sorted(cuts) if tally.first_ms < cut <= tally.last_ms), 1 << 62]
    mine = [row for row in rows if row.model == tally.model and tally.first_ms <= row.at_ms <= tally.last_ms]
    parts: list[Payment] = []
    usd_left, tokens_left = tally.usd or 0.0, tally.usage.total
    for begin, end in pairwise(edges):
        inside = [row for row in mine if begin <= row.at_ms < end]
        usd, tokens = usd_left, tokens_left
        if end != edges[-1]:
            usd = min(sum(_row_cost(row) for row in inside), usd_left)
            tokens = min(sum(sum(row[3:8]) for row in inside), tokens_left)
        times = [row.at_ms for row in inside] or [max(begin, tally.first_ms)]
        parts.append(Payment(min(times), max(times), usd, tokens))
        usd_left, tokens_left = usd_left - usd, tokens_left - tokens
    return parts


def compute_billing(spends: Sequence[Payment], known: ProfileLimits, now_ms: int, zone: tzinfo) -> Billing:
    """Sum up for one profile; the day and the week are rounded with those of the others, by `shared_out`."""
    start, end, official = _running_block(spends, known.limits, now_ms)
    block = [each for each in spends if start <= each.last_ms < end]
    cost = sum(each.usd for each in block)
    tokens = sum(each.tokens for each in block)
    elapsed_ms = max(now_ms - min((max(each.first_ms, start) for each in block), default=now_ms), BURN_LEAST_MS)
    window = known.limits.five_hour if known.limits and official else None
    week, midnight = now_ms - WEEK_MS, _midnight_ms(now_ms, zone)
    burn = cost / elapsed_ms * HOUR_MS if block else 0.0
    percent = window.used_percent if window else None
    return Billing(
        cost_today=sum(each.usd for each in spends if each.last_ms >= midnight),
        burn_rate_per_hour=round_cents(burn),
        budget_remaining=max(end - now_ms, 0) // MINUTE_MS if block or official else 0,
        budget_percent_used=int(percent if percent is not None else min(_percent_elapsed(now_ms, start, end), 100)),
        reset_time=datetime.fromtimestamp(end / 1000, tz=UTC).strftime("%H:%M"),
        total_tokens=tokens,
        tokens_per_minute=int(tokens / elapsed_ms * MINUTE_MS) if block else None,
        is_fresh=True,
        last_fetched=now_ms,
        block_start=start,
        block_end=end,
        block_cost=round_cents(cost),
        week_cost=sum(each.usd for each in spends if each.last_ms >= week),
        week_start=week,
        cost_source="ledger",
        budget_source="statusline" if percent is not None else "time of the block",
        limits=known.limits,
        forecast=forecast_exhaustion(known, (start, end), (cost, burn), now_ms),
    )


def forecast_exhaustion(
    known: ProfileLimits, span: tuple[int, int], spent: tuple[float, float], now_ms: int
) -> Forecast | None:
    """When the window is used up at this rate: by the vendor's own percentage, else by the person's budget."""
    (_, end), (cost, burn) = span, spent
    line = _fit_line([each for each in known.samples if abs(each.resets_ms - end) <= SAME_WINDOW_MS])
    if line is not None:
        level, slope = line[0] + line[1] * now_ms, line[1]
        source = "statusline"
    elif known.budget_usd and burn > 0:
        level, slope = 100 * cost / known.budget_usd, 100 * burn / known.budget_usd / HOUR_MS
        source = "budget"
    else:
        return None
    at = int(now_ms + max(100 - level, 0) / slope)
    return Forecast(at if at < end else None, round(level + slope * max(end - now_ms, 0), 1), source)


def running_window(window: VendorWindow | None, now_ms: int) -> VendorWindow | None:
    """A window of the vendor's, while it runs."""
    return window if window is not None and (window.resets_at or 0) > now_ms else None


def round_cents(usd: float) -> float:
    """An amount as money is written."""
    return round(usd + 0.0, 2)


def split_cost(amounts: Sequence[float]) -> list[float]:
    """Amounts as money is written, each to the cent and all together to the cent of their sum."""
    exact = [100 * each for each in amounts]
    whole = [int(each) for each in exact]
    by_rest = sorted(range(len(exact)), key=lambda at: whole[at] - exact[at])
    for at in by_rest[: round(sum(exact)) - sum(whole)]:
        whole[at] += 1
    return [each / 100 for each in whole]


def _row_cost(row: UsageLine) -> float:
    told = row_to_response(row)
    return price(told.model, told.usage, told.at_ms).usd or 0.0


def _running_block(spends: Sequence[Payment], limits: VendorLimits | None, now_ms: int) -> tuple[int, int, bool]:
    """The running window: the vendor's, else the ledger's rule, else the one that would begin now."""
    window = running_window(limits.five_hour if limits else None, now_ms)
    if window is not None and window.resets_at:
        return window.resets_at - BLOCK_MS, window.resets_at, True
    start = end = 0
    for each in sorted(spends, key=lambda spend: spend.first_ms):
        if each.first_ms >= end:
            start = each.first_ms - each.first_ms % HOUR_MS
            end = start + BLOCK_MS
    if end <= now_ms:
        start = now_ms - now_ms % HOUR_MS
        end = start + BLOCK_MS
    return start, end, False


def _fit_line(samples: Sequence[LimitSample]) -> tuple[float, float] | None:
    """Percent over time as a straight line, by least squares over the last while; None while it does not rise."""
    if not samples:
        return None
    last = max(each.at_ms for each in samples)
    points = [(each.at_ms - last, each.percent) for each in samples if last - each.at_ms <= SLOPE_MS]
    if len(points) < 2 or -min(at for at, _ in points) < SLOPE_LEAST_MS:
        return None
    mean_at, mean = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    slope = sum((at - mean_at) * (percent - mean) for at, percent in points) / spread
    return (mean - slope * (mean_at + last), slope) if slope > 0 else None


def _percent_elapsed(now_ms: int, start: int, end: int) -> float:
    return 100 * (now_ms - start) / (end - start)


def _midnight_ms(now_ms: int, zone: tzinfo) -> int:
    here = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone(zone)
    day = here.replace(hour=0, minute=0, second=0, microsecond=0)
    # A zone that follows the machine's rules knows the offset of that hour, not of this one.
    return int((day + timedelta(0)).timestamp() * 1000)
