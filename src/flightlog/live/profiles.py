"""Detect which billing profile pays for a session, and compute the billing of each profile.

The fingerprint of the account is a fact and wins. Environment variable, alias, configuration
directory and path are claims of a person; they decide which profile a new fingerprint gets.

`ProfileLedger` turns status payloads into events (a profile pays from a time on) and usage
buckets into billing. It writes nothing; the collector appends its `events`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo
from fnmatch import fnmatch
from typing import NamedTuple

from flightlog.agents.claude_code.hooks import ClientStatus, StatusLimit
from flightlog.live.billing import (
    SAME_WINDOW_MS,
    WEEK_MS,
    LimitSample,
    Payment,
    ProfileLimits,
    compute_billing,
    divide_bucket,
    split_cost,
)
from flightlog.live.events import AccountBound, BillingHistory, Event, ProfileBilled, ProfileEdited
from flightlog.live.observe import ObserverState
from flightlog.live.state import (
    DEFAULT_PROFILE,
    AuthProfile,
    ProfileSwitch,
    RuntimeState,
    Thresholds,
    VendorLimits,
    VendorWindow,
    create_default_auth_profile,
)
from flightlog.model.usage import UsageLine
from flightlog.sources.hook_log import StatusLaunch
from flightlog.usage.digest import UsageDigest

# Weights of a profile's urgency: an exhausted week blocks for days, a block for hours, and the
# burn rate only says how soon.
WEEK_SHARE, BLOCK_SHARE, BURN_SHARE = 0.6, 0.3, 0.1
BURN_FULL_USD = 20.0  # cost per hour that counts as the full burn rate
LEAVE_AT, URGENT_AT = 80.0, 95.0  # urgency from which to switch soon, and at once
SAMPLES_MAX = 400  # more than three hours of samples; the forecast uses 90 minutes
SAMPLE_EVERY_MS = 30_000
LoadRows = Callable[[str], Sequence[UsageLine]]


class ProfileMatch(NamedTuple):
    """A profile, how it was detected, and the fingerprint it should learn, if any."""

    profile: str
    method: str
    learned_fingerprint: str = ""


class ProfileHints(NamedTuple):
    """Facts of a session at one time that hint at its profile."""

    launch: StatusLaunch
    project: str
    week_reset_ms: int = 0
    now_ms: int = 0


def match_profile(
    hints: ProfileHints, profiles: Sequence[AuthProfile], current: str = ""
) -> ProfileMatch:
    """Return the profile that pays; `current` is the one that paid until now."""
    account = hints.launch.account
    for profile in profiles:
        if account and profile.billing_fingerprint == account:
            return ProfileMatch(profile.profile_id, "fingerprint")
    claim = _match_claim(hints, profiles)
    if account:
        return _assign_account(account, claim, profiles)
    by_window = _match_by_window(hints, profiles, current) if hints.week_reset_ms else None
    return by_window or claim or ProfileMatch(current or DEFAULT_PROFILE, "default")


def rank_profiles(profiles: Sequence[AuthProfile]) -> list[tuple[AuthProfile, float]]:
    """Return profiles with their urgency, the one with the most budget left first."""
    pairs = [(profile, profile_urgency(profile)) for profile in profiles]
    return sorted(pairs, key=lambda pair: (pair[1], pair[0].profile_id))


def profile_urgency(profile: AuthProfile) -> float:
    """Return how urgent it is to leave a profile, 0 to 100; unknown limits count as unused."""
    limits = profile.billing.limits or VendorLimits()
    week, block = (
        min((window.used_percent or 0.0) if window else 0.0, 100.0)
        for window in (limits.seven_day, limits.five_hour)
    )
    burn = min(profile.billing.burn_rate_per_hour / BURN_FULL_USD, 1.0) * 100
    return WEEK_SHARE * week + BLOCK_SHARE * block + BURN_SHARE * burn


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


def _match_claim(hints: ProfileHints, profiles: Sequence[AuthProfile]) -> ProfileMatch | None:
    """Match what a person set: variable, alias, configuration directory, path, in this order."""
    launch = hints.launch
    if launch.profile:
        return ProfileMatch(launch.profile, "env")
    for profile in profiles:
        if launch.alias and launch.alias in (profile.aliases or []):
            return ProfileMatch(profile.profile_id, "alias")
    for profile in profiles:
        directories = [path.rstrip("/") for path in profile.config_dirs or []]
        if launch.config_dir and launch.config_dir in directories:
            return ProfileMatch(profile.profile_id, "config")
    for profile in profiles:
        patterns = profile.path_patterns or []
        if hints.project and any(_matches_pattern(hints.project, pattern) for pattern in patterns):
            return ProfileMatch(profile.profile_id, "path")
    return None


def _matches_pattern(path: str, pattern: str) -> bool:
    bare = pattern.rstrip("/").removesuffix("/**").removesuffix("/*")
    return fnmatch(path, pattern) or path == bare or path.startswith(bare + "/")


def _assign_account(
    account: str, claim: ProfileMatch | None, profiles: Sequence[AuthProfile]
) -> ProfileMatch:
    """Assign a new fingerprint to the profile that claims the session, or to a new profile."""
    name = claim.profile if claim else DEFAULT_PROFILE
    owner = next((profile for profile in profiles if profile.profile_id == name), None)
    free = owner is None or not owner.billing_fingerprint
    if free and (claim is not None or owner is not None or not profiles):
        return ProfileMatch(name, claim.method if claim else "fingerprint", account)
    return ProfileMatch(f"account-{account.rpartition('-')[2][:4]}", "fingerprint", account)


def _match_by_window(
    hints: ProfileHints, profiles: Sequence[AuthProfile], current: str
) -> ProfileMatch | None:
    """Tell accounts without a fingerprint apart by the end of their week, which does not move."""
    ends = {profile.profile_id: _week_end(profile) for profile in profiles}
    for name, end in ends.items():
        if end and abs(end - hints.week_reset_ms) <= SAME_WINDOW_MS:
            return ProfileMatch(name, "fingerprint")
    if current and ends.get(current, 0) > hints.now_ms:
        number = 2
        while f"account-{number}" in ends:
            number += 1
        return ProfileMatch(f"account-{number}", "fingerprint")
    return None


def _week_end(profile: AuthProfile) -> int:
    limits = profile.billing.limits
    return (limits.seven_day.resets_at or 0) if limits and limits.seven_day else 0


class ProfileLedger:
    """The profiles of one configuration directory."""

    def __init__(
        self, state: RuntimeState, history: BillingHistory, observer: ObserverState, now_ms: int
    ) -> None:
        """Start from the state file, the folded journal and the last observations."""
        self.history, self.observer, self.now_ms = history, observer, now_ms
        self.thresholds = state.thresholds
        self.profiles = {profile.profile_id: profile for profile in state.auth_profiles}
        self.events: list[Event] = []
        self.session_usd: dict[str, float] = {}
        self._segment_usd: dict[tuple[str, int], float] = defaultdict(float)
        self._config_dir = ""

    def apply_edits(self) -> None:
        """Record a person's edits of profiles, and restore those that the file lost."""
        for name, edit in self.history.edits.items():
            if name not in self.profiles:
                profile = self._ensure_profile(name, "auto")
                profile.label = edit.label
                profile.aliases = list(edit.aliases) or None
                profile.path_patterns = list(edit.path_patterns) or None
                profile.config_dirs = list(edit.config_dirs) or None
        for name, profile in self.profiles.items():
            edit = _profile_edit(profile)
            default = _profile_edit(create_default_auth_profile(name))
            if edit != (self.history.edits.get(name) or default):
                self._record_event(edit)
        for fingerprint, name in self.history.fingerprints.items():
            if name in self.profiles and not self.profiles[name].billing_fingerprint:
                self.profiles[name].billing_fingerprint = fingerprint

    def observe_session(
        self, session: str, statuses: Sequence[ClientStatus], project: str, config_dir: str
    ) -> None:
        """Apply new payloads of a session: who pays, and how full the vendor's windows are."""
        self._config_dir = config_dir
        for status in statuses:
            limits = status.payload.rate_limits
            week = limits.seven_day.resets_ms if limits and limits.seven_day else 0
            current = self.history.payer_at(session, status.at_ms)
            directory = project or status.payload.cwd or ""
            hints = ProfileHints(status.launch, directory, week, status.at_ms)
            match = match_profile(hints, list(self.profiles.values()), current)
            profile = self._ensure_profile(match.profile, match.method)
            if match.learned_fingerprint and not profile.billing_fingerprint:
                profile.billing_fingerprint = match.learned_fingerprint
                self._record_event(AccountBound(profile.profile_id, match.learned_fingerprint))
            if current != match.profile:
                since = status.at_ms if current else 0
                self._record_event(ProfileBilled(session, match.profile, since, match.method))
            self._record_limits(profile.profile_id, status)
        if not statuses and session not in self.history.segments and project:
            match = self._match_by_path(project)
            self._ensure_profile(match.profile, match.method)

    def bill_profiles(
        self, digests: Iterable[UsageDigest], load_rows: LoadRows, zone: tzinfo
    ) -> list[AuthProfile]:
        """Compute the billing of each profile; `load_rows` returns the responses of a session."""
        payments: dict[str, list[Payment]] = defaultdict(list)
        sessions: dict[str, set[str]] = defaultdict(set)
        for digest in digests:
            for name, payment in self._iter_payments(digest, load_rows):
                payments[name].append(payment)
                if payment.last_ms >= self.now_ms - WEEK_MS:
                    sessions[name].add(digest.session)
        if not self.profiles:
            self._ensure_profile(DEFAULT_PROFILE, "auto")
        everywhere = self.thresholds or Thresholds()
        for name, profile in self.profiles.items():
            own = profile.thresholds or Thresholds()
            budget = own.cost_block_usd or everywhere.cost_block_usd
            samples = self.observer.samples.get(name, ())
            limits = ProfileLimits(self.observer.limits.get(name), samples, budget)
            profile.billing = compute_billing(payments[name], limits, self.now_ms, zone)
            profile.metadata.total_sessions = len(sessions[name])
            last_times = [payment.last_ms for payment in payments[name]]
            profile.metadata.last_used = max(last_times, default=0)
        # Rounded together, so that days and weeks of the profiles add up to the total.
        bills = [profile.billing for profile in self.profiles.values()]
        days = split_cost([bill.cost_today for bill in bills])
        weeks = split_cost([bill.week_cost_usd or 0.0 for bill in bills])
        for bill, day, week in zip(bills, days, weeks, strict=True):
            bill.cost_today, bill.week_cost_usd = day, week
        return list(self.profiles.values())

    def profile_of(self, session: str) -> AuthProfile:
        """Return the profile that pays for a session now."""
        name = self.history.payer_at(session, self.now_ms) or self._default_profile("")
        return self._ensure_profile(name, "auto")

    def method_of(self, session: str) -> str:
        """Return how the profile of a session was detected."""
        parts = self.history.segments.get(session)
        return parts[-1][2] if parts else "default"

    def list_switches(self, session: str) -> list[ProfileSwitch] | None:
        """Return who paid from when on and how much; None if one profile paid for all."""
        parts = self.history.segments.get(session, [])
        if len(parts) < 2:
            return None
        costs = split_cost([self._segment_usd[session, since] for since, _, _ in parts])
        return [
            ProfileSwitch(profile, since, cost)
            for (since, profile, _), cost in zip(parts, costs, strict=True)
        ]

    def cost_issues(self, profile: AuthProfile, thresholds: Thresholds) -> list[str]:
        """Return budgets and vendor limits that are nearly used up."""
        warn = thresholds.budget_warning_percent or 100
        bill = profile.billing
        issues = []
        for name, spent, budget in (
            ("today", bill.cost_today, thresholds.cost_today_usd),
            ("block", bill.block_cost_usd or 0.0, thresholds.cost_block_usd),
            ("week", bill.week_cost_usd or 0.0, thresholds.cost_week_usd),
        ):
            if budget and 100 * spent / budget >= warn:
                issues.append(f"Budget {name} {100 * spent / budget:.0f}% used")
        limits = bill.limits or VendorLimits()
        for name, window in (("5-hour", limits.five_hour), ("7-day", limits.seven_day)):
            running = window is not None and (window.resets_at or 0) > self.now_ms
            if window is not None and running and (window.used_percent or 0) >= warn:
                issues.append(f"{name} limit {window.used_percent:.0f}% used")
        return issues

    def _iter_payments(
        self, digest: UsageDigest, load_rows: LoadRows
    ) -> Iterable[tuple[str, Payment]]:
        parts = self.history.segments.get(digest.session, [])
        cuts = [since for since, _, _ in parts[1:]]
        # Without a recorded payer one profile pays for the whole session.
        usual = None if parts or not digest.buckets else (0, self._default_profile(digest.project))
        total = 0.0
        for bucket in digest.buckets:
            usd = bucket.cost_usd or 0.0
            total += usd
            payments = [Payment(bucket.first_ms, bucket.last_ms, usd, bucket.usage.total_tokens)]
            if any(bucket.first_ms < cut <= bucket.last_ms for cut in cuts):
                payments = divide_bucket(bucket, cuts, load_rows(digest.session))
            for payment in payments:
                since, name = usual or self._find_payer(parts, payment.first_ms)
                self._segment_usd[digest.session, since] += payment.cost_usd
                yield name, payment
        self.session_usd[digest.session] = total

    def _find_payer(self, parts: Sequence[tuple[int, str, str]], at_ms: int) -> tuple[int, str]:
        for since, profile, _ in reversed(parts):
            if since <= at_ms:
                return since, self._ensure_profile(profile, "auto").profile_id
        return parts[0][0], parts[0][1]

    def _default_profile(self, project: str) -> str:
        """Return the profile of a session without a recorded payer."""
        return self._ensure_profile(self._match_by_path(project).profile, "auto").profile_id

    def _match_by_path(self, project: str) -> ProfileMatch:
        hints = ProfileHints(StatusLaunch(config_dir=self._config_dir), project)
        return match_profile(hints, list(self.profiles.values()))

    def _ensure_profile(self, name: str, method: str) -> AuthProfile:
        if name not in self.profiles:
            how = "fingerprint" if method == "fingerprint" else "auto"
            self.profiles[name] = create_default_auth_profile(name, self.now_ms, method=how)
        return self.profiles[name]

    def _record_event(self, event: Event) -> None:
        self.history.add_event(event)
        self.events.append(event)

    def _record_limits(self, name: str, status: ClientStatus) -> None:
        limits, at_ms = status.payload.rate_limits, status.at_ms
        if limits is None:
            return
        stored = self.observer.limits.setdefault(name, VendorLimits())
        stored.five_hour = _vendor_window(limits.five_hour, at_ms) or stored.five_hour
        stored.seven_day = _vendor_window(limits.seven_day, at_ms) or stored.seven_day
        block = limits.five_hour
        if block is not None and block.used_percentage is not None:
            samples = self.observer.samples.setdefault(name, [])
            if not samples or at_ms - samples[-1].at_ms >= SAMPLE_EVERY_MS:
                samples.append(LimitSample(at_ms, block.used_percentage, block.resets_ms))
                del samples[:-SAMPLES_MAX]


def _profile_edit(profile: AuthProfile) -> ProfileEdited:
    lists = (profile.aliases, profile.path_patterns, profile.config_dirs)
    return ProfileEdited(
        profile.profile_id, profile.label, *(tuple(names or ()) for names in lists)
    )


def _vendor_window(limit: StatusLimit | None, at_ms: int) -> VendorWindow | None:
    if limit is None or limit.used_percentage is None:
        return None
    return VendorWindow(
        round(limit.used_percentage, 1), limit.resets_ms or None, "statusline", at_ms
    )
