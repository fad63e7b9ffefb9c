"""Cost, burn rate, forecast and rank of billing profiles: today, this five-hour block, this week.

Input are usage buckets and the profile switches. A bucket that spans a switch is divided by its
responses, so that the profiles add up to the total. Pure functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from flightlog.live.state import (
    AuthProfile,
    Billing,
    Forecast,
    RuntimeState,
    Thresholds,
    VendorLimits,
)
from flightlog.model.usage import BLOCK_MS, HOUR_MS, UsageLine, row_to_response
from flightlog.usage.digest import UsageBucket, UsageDigest
from flightlog.usage.prices import price
from flightlog.usage.report import PACE_LEAST_MS

LEAVE_AT, URGENT_AT = 80.0, 95.0  # urgency from which to switch soon, and at once
# Cents are rounded where they are shown, so that sums are those of the usage report.
COST_DIGITS = 4
WEEK_MS = 7 * 24 * HOUR_MS
MINUTE_MS = 60_000
HOURS_SHOWN = 24
LIMIT_NAMES = {
    "five_hour": "5-hour",
    "seven_day": "7-day",
    "seven_day_opus": "7-day Opus",
    "seven_day_sonnet": "7-day Sonnet",
    "spend_limit": "spend",
}
SLOPE_MS = 90 * MINUTE_MS  # the forecast follows the current pace, not that of the whole block
SLOPE_LEAST_MS = 5 * MINUTE_MS  # the vendor's percentages are too coarse for a shorter span
SAME_WINDOW_MS = 600_000  # reset times of one window differ by some minutes between payloads


class Payment(NamedTuple):
    """What one profile paid for one stretch of responses."""

    first_ms: int
    last_ms: int
    cost_usd: float
    total_tokens: int


class LimitSample(NamedTuple):
    """The vendor's percentage of the five-hour window at one time."""

    at_ms: int
    percent: float
    resets_ms: int


class ProfileLimits(NamedTuple):
    """The limits of a profile: the vendor's, with samples over time, and the person's budget."""

    limits: VendorLimits | None
    samples: Sequence[LimitSample]
    budget_usd: float | None = None


class LedgerPlace(NamedTuple):
    """The directory of a ledger, the time, and the profiles of all other directories.

    `paid_elsewhere` are the payments of each account in each of those directories.
    """

    config_dir: str
    now_ms: int
    others: Sequence[AuthProfile] = ()
    paid_elsewhere: Sequence[Mapping[str, Sequence[Payment]]] = ()


def divide_bucket(
    bucket: UsageBucket, cuts: Sequence[int], rows: Iterable[UsageLine]
) -> list[Payment]:
    """Divide a bucket at `cuts`; the parts add up to the bucket even if `rows` are incomplete."""
    first, last = bucket.first_ms, bucket.last_ms
    edges = [0, *(cut for cut in sorted(cuts) if first < cut <= last), 1 << 62]
    own_rows = [row for row in rows if row.model == bucket.model and first <= row.at_ms <= last]
    parts: list[Payment] = []
    usd_left, tokens_left = bucket.cost_usd or 0.0, bucket.usage.total_tokens
    for begin, end in pairwise(edges):
        inside = [row_to_response(row) for row in own_rows if begin <= row.at_ms < end]
        usd, tokens = usd_left, tokens_left
        if end != edges[-1]:
            costs = (price(row.model, row.usage, row.at_ms).usd or 0.0 for row in inside)
            usd = min(sum(costs), usd_left)
            tokens = min(sum(row.usage.total_tokens for row in inside), tokens_left)
        times = [row.at_ms for row in inside] or [max(begin, first)]
        parts.append(Payment(min(times), max(times), usd, tokens))
        usd_left, tokens_left = usd_left - usd, tokens_left - tokens
    return parts


def compute_billing(
    payments: Sequence[Payment], profile: ProfileLimits, now_ms: int, zone: tzinfo
) -> Billing:
    """Return the billing of one profile; without a running window its fields are unknown."""
    start, end, official = _running_block(payments, profile.limits, now_ms)
    runs = end > now_ms
    block = [payment for payment in payments if runs and start <= payment.last_ms < end]
    cost = sum(payment.cost_usd for payment in block)
    tokens = sum(payment.total_tokens for payment in block)
    began = min((max(payment.first_ms, start) for payment in block), default=now_ms)
    elapsed_ms = max(now_ms - began, PACE_LEAST_MS)
    window = profile.limits.five_hour if profile.limits and official else None
    week, midnight = now_ms - WEEK_MS, _midnight_ms(now_ms, zone)
    burn = cost / elapsed_ms * HOUR_MS if block else 0.0
    percent = window.used_percent if window else None
    percent_elapsed = min(100 * (now_ms - start) / max(end - start, 1), 100)
    today = sum(payment.cost_usd for payment in payments if payment.last_ms >= midnight)
    total = sum(payment.cost_usd for payment in payments if payment.last_ms >= week)
    budget_percent_used = int(percent if percent is not None else percent_elapsed) if runs else None
    budget_source = ("statusline" if percent is not None else "time of the block") if runs else None
    return Billing(
        cost_today=round(today + 0.0, COST_DIGITS),
        burn_rate_per_hour=round(burn + 0.0, 2),
        budget_remaining=(end - now_ms) // MINUTE_MS if runs else None,
        budget_percent_used=budget_percent_used,
        reset_time=datetime.fromtimestamp(end / 1000, tz=UTC).strftime("%H:%M") if runs else None,
        total_tokens=tokens,
        tokens_per_minute=int(tokens / elapsed_ms * MINUTE_MS) if block else None,
        is_fresh=True,
        last_fetched=now_ms,
        block_start=start if runs else None,
        block_end=end if runs else None,
        block_cost_usd=round(cost + 0.0, COST_DIGITS) if runs else None,
        week_cost_usd=round(total + 0.0, COST_DIGITS),
        week_start=week,
        cost_source="ledger",
        budget_source=budget_source,
        limits=profile.limits,
        forecast=forecast_exhaustion(profile, (start, end), (cost, burn), now_ms) if runs else None,
    )


def forecast_exhaustion(
    profile: ProfileLimits, span: tuple[int, int], spent: tuple[float, float], now_ms: int
) -> Forecast | None:
    """Forecast from the vendor's percentage, otherwise from the budget, when the block is used up.

    `span` is the start and end of the block, `spent` its cost and its cost per hour.
    """
    (_, end), (cost, burn) = span, spent
    line = _fit_line(
        [sample for sample in profile.samples if abs(sample.resets_ms - end) <= SAME_WINDOW_MS]
    )
    if line is not None:
        level, slope = line[0] + line[1] * now_ms, line[1]
        source = "statusline"
    elif profile.budget_usd and burn > 0:
        level = 100 * cost / profile.budget_usd
        slope = 100 * burn / profile.budget_usd / HOUR_MS
        source = "budget"
    else:
        return None
    at = int(now_ms + max(100 - level, 0) / slope)
    exhausted_at = at if at < end else None
    return Forecast(exhausted_at, round(level + slope * max(end - now_ms, 0), 1), source)


def newest_limits(reported: Iterable[VendorLimits | None], now_ms: int) -> VendorLimits | None:
    """Return each window that is not over as it was reported last."""
    known = [limits for limits in reported if limits is not None]
    newest = VendorLimits()
    for name in VendorLimits.__struct_fields__:
        windows = [window for limits in known if (window := getattr(limits, name)) is not None]
        last = max(windows, key=lambda window: window.as_of or 0, default=None)
        is_over = last is not None and last.resets_at is not None and last.resets_at <= now_ms
        setattr(newest, name, None if is_over else last)
    return newest if newest != VendorLimits() else None


def merge_accounts(states: Iterable[RuntimeState]) -> list[AuthProfile]:
    """Return one profile per account: of its directories' figures, the newest count.

    Without a fingerprint the profiles of two directories stay two.
    """
    merged: dict[tuple[int, str], AuthProfile] = {}
    for number, state in enumerate(states):
        for profile in state.auth_profiles:
            account = profile.billing_fingerprint
            key = (-1, account) if account else (number, profile.profile_id)
            first = merged.setdefault(key, replace(profile))
            bill, newer = first.billing, profile.billing
            # Of two that were collected together, the later one knows the payments of the other.
            if newer.last_fetched >= bill.last_fetched:
                first.billing = replace(newer)
            limits = [bill.limits, newer.limits]
            first.billing.limits = newest_limits(limits, first.billing.last_fetched)
    return list(merged.values())


def rank_profiles(profiles: Sequence[AuthProfile]) -> list[tuple[AuthProfile, float]]:
    """Return profiles with their urgency, the one with the most budget left first."""
    pairs = [(profile, profile_urgency(profile)) for profile in profiles]
    return sorted(
        pairs, key=lambda pair: (pair[1], pair[0].billing.burn_rate_per_hour, pair[0].profile_id)
    )


def profile_urgency(profile: AuthProfile) -> float:
    """Return how full the tightest running window is, 0 to 100; unknown limits count as unused."""
    limits, now_ms = profile.billing.limits or VendorLimits(), profile.billing.last_fetched
    # A limit of one model leaves the others.
    windows = filter(None, (limits.seven_day, limits.five_hour, limits.spend_limit))
    current = [item for item in windows if item.resets_at is None or item.resets_at > now_ms]
    return max((min(item.used_percent or 0.0, 100.0) for item in current), default=0.0)


def switch_advice(profiles: Sequence[AuthProfile]) -> str:
    """Say which profile to switch to if one is nearly used up; otherwise return ""."""
    pressed = [profile for profile in profiles if profile_urgency(profile) >= LEAVE_AT]
    ranked = rank_profiles(profiles)
    if not pressed or ranked[0][1] >= LEAVE_AT:
        return "every profile is nearly used up" if pressed else ""
    worst = max(pressed, key=profile_urgency)
    when = "now" if profile_urgency(worst) >= URGENT_AT else "soon"
    best = ranked[0][0].label
    return f"{worst.label} is nearly used up: go to {best} {when} (flightlog live swap)"


def find_cost_issues(bill: Billing, thresholds: Thresholds, now_ms: int) -> list[str]:
    """Return budgets and vendor limits that are nearly used up."""
    warn = thresholds.budget_warning_percent or 100
    issues = []
    for name, spent, budget in (
        ("today", bill.cost_today, thresholds.cost_today_usd),
        ("block", bill.block_cost_usd or 0.0, thresholds.cost_block_usd),
        ("week", bill.week_cost_usd or 0.0, thresholds.cost_week_usd),
    ):
        if budget and 100 * spent / budget >= warn:
            issues.append(f"Budget {name} {100 * spent / budget:.0f}% used")
    limits = bill.limits or VendorLimits()
    for field, name in LIMIT_NAMES.items():
        window = getattr(limits, field)
        running = window is not None and (window.resets_at or 0) > now_ms
        if window is not None and running and (window.used_percent or 0) >= warn:
            issues.append(f"{name} limit {window.used_percent:.0f}% used")
    return issues


def sum_hourly_costs(digests: Iterable[UsageDigest], now_ms: int) -> tuple[float, ...]:
    """Return the cost in USD of each of the last 24 hours, oldest first."""
    hours = [0.0] * HOURS_SHOWN
    for bucket in chain.from_iterable(digest.buckets for digest in digests):
        age_hours = (now_ms - bucket.last_ms) // HOUR_MS
        if 0 <= age_hours < HOURS_SHOWN:
            hours[HOURS_SHOWN - 1 - age_hours] += bucket.cost_usd or 0.0
    return tuple(hours)


def split_cost(amounts: Sequence[float]) -> list[float]:
    """Round amounts so that they add up to their rounded sum (largest remainder)."""
    scale = 10**COST_DIGITS
    exact = [scale * amount for amount in amounts]
    units = [int(amount) for amount in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: units[index] - exact[index])
    for index in by_remainder[: round(sum(exact)) - sum(units)]:
        units[index] += 1
    return [amount / scale for amount in units]


def _running_block(
    payments: Sequence[Payment], limits: VendorLimits | None, now_ms: int
) -> tuple[int, int, bool]:
    """Return start and end of the running block, and whether the vendor stated them.

    Without the vendor's window a block begins at the full hour of its first response, as in the
    usage report. If none is running, the end is in the past.
    """
    window = limits.five_hour if limits else None
    if window is not None and window.resets_at and window.resets_at > now_ms:
        return window.resets_at - BLOCK_MS, window.resets_at, True
    start = end = 0
    for payment in sorted(payments, key=lambda payment: payment.first_ms):
        if payment.first_ms >= end:
            start = payment.first_ms - payment.first_ms % HOUR_MS
            end = start + BLOCK_MS
    return start, end, False


def _fit_line(samples: Sequence[LimitSample]) -> tuple[float, float] | None:
    """Fit percent over time; return intercept and slope, or None if it does not rise."""
    if not samples:
        return None
    last = max(sample.at_ms for sample in samples)
    recent = [sample for sample in samples if last - sample.at_ms <= SLOPE_MS]
    points = [(sample.at_ms - last, sample.percent) for sample in recent]
    if len(points) < 2 or -min(at for at, _ in points) < SLOPE_LEAST_MS:
        return None
    mean_at, mean = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    slope = sum((at - mean_at) * (percent - mean) for at, percent in points) / spread
    return (mean - slope * (mean_at + last), slope) if slope > 0 else None


def _midnight_ms(now_ms: int, zone: tzinfo) -> int:
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone(zone)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    # Adding zero makes the zone look the offset up again: it may differ from that of `now`.
    return int((midnight + timedelta(0)).timestamp() * 1000)
