"""Recognise billing profiles; who paid for what.

A print of the account is a fact and wins; alias, variable, configuration directory and path are
what a person said, and decide which profile a new print belongs to. Pure.

Folds what was noted into events (a session paid by a profile from a time on) and the ledger's
usage buckets into each profile's billing. Writes nothing; the driver appends `events`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo
from fnmatch import fnmatch
from typing import NamedTuple

from flightlog.agents.claude_code.hooks import ClientStatus, StatusLimit
from flightlog.live.billing import (
    WEEK_MS,
    LimitSample,
    Payment,
    ProfileLimits,
    compute_billing,
    divide_tally,
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

SAME_WINDOW_MS = 600_000
# How pressing it is to go elsewhere: mostly the week, then the five hours, a little the rate.
WEEK_SHARE, BLOCK_SHARE, BURN_SHARE = 0.6, 0.3, 0.1
BURN_FULL_USD = 20.0
LEAVE_AT, URGENT_AT = 80.0, 95.0
SAMPLES_MAX = 400
SAMPLE_EVERY_MS = 30_000
AskRows = Callable[[str], Sequence[UsageLine]]


class ProfileMatch(NamedTuple):
    """The profile, how it was found, and whether the print was new to it."""

    profile: str
    method: str
    learn: str = ""


class ProfileHints(NamedTuple):
    """What is known of a session at one moment."""

    launch: StatusLaunch
    project: str
    week_reset_ms: int = 0
    now_ms: int = 0


def match_profile(sight: ProfileHints, profiles: Sequence[AuthProfile], current: str = "") -> ProfileMatch:
    """Say which profile pays."""
    account = sight.launch.account
    if account:
        known = next((each for each in profiles if each.billing_fingerprint == account), None)
        if known is not None:
            return ProfileMatch(known.profile_id, "fingerprint")
    claim = _match_claim(sight, profiles)
    if account:
        return _assign_account(account, claim, profiles)
    if sight.week_reset_ms:
        window = _match_by_window(sight, profiles, current)
        if window is not None:
            return window
    if claim is not None:
        return claim
    return ProfileMatch(current or DEFAULT_PROFILE, "default")


def rank_profiles(profiles: Sequence[AuthProfile]) -> list[tuple[AuthProfile, float]]:
    """Profiles by how pressing it is to leave them, the one with most room first."""
    return sorted(((each, profile_urgency(each)) for each in profiles), key=lambda pair: (pair[1], pair[0].profile_id))


def profile_urgency(profile: AuthProfile) -> float:
    """From 0, all room, to 100, none; what is unknown counts as free."""
    limits = profile.billing.limits
    week = (limits.seven_day.used_percent or 0.0) if limits and limits.seven_day else 0.0
    block = (limits.five_hour.used_percent or 0.0) if limits and limits.five_hour else 0.0
    burn = min(profile.billing.burn_rate_per_hour / BURN_FULL_USD, 1.0) * 100
    return WEEK_SHARE * min(week, 100.0) + BLOCK_SHARE * min(block, 100.0) + BURN_SHARE * burn


def _match_claim(sight: ProfileHints, profiles: Sequence[AuthProfile]) -> ProfileMatch | None:
    """What a person said: variable, alias, configuration directory, path, in this order."""
    launch = sight.launch
    if launch.profile:
        return ProfileMatch(launch.profile, "env")
    for each in profiles:
        if launch.alias and launch.alias in (each.aliases or []):
            return ProfileMatch(each.profile_id, "alias")
    for each in profiles:
        if launch.config_dir and launch.config_dir in [part.rstrip("/") for part in each.config_dirs or []]:
            return ProfileMatch(each.profile_id, "config")
    for each in profiles:
        if sight.project and any(_matches_pattern(sight.project, pattern) for pattern in each.path_patterns or []):
            return ProfileMatch(each.profile_id, "path")
    return None


def _matches_pattern(path: str, pattern: str) -> bool:
    bare = pattern.rstrip("/").removesuffix("/**").removesuffix("/*")
    return fnmatch(path, pattern) or path == bare or path.startswith(bare + "/")


def _assign_account(account: str, claim: ProfileMatch | None, profiles: Sequence[AuthProfile]) -> ProfileMatch:
    """A print nobody has: it belongs to who claims the session, unless they have another."""
    name = claim.profile if claim else DEFAULT_PROFILE
    owner = next((each for each in profiles if each.profile_id == name), None)
    free = owner is None or not owner.billing_fingerprint
    if free and (claim is not None or owner is not None or not profiles):
        return ProfileMatch(name, claim.method if claim else "fingerprint", account)
    return ProfileMatch(f"account-{account.rpartition('-')[2][:4]}", "fingerprint", account)


def _match_by_window(sight: ProfileHints, profiles: Sequence[AuthProfile], current: str) -> ProfileMatch | None:
    """Without a print, the end of the week's window tells accounts apart: it stays until it is over."""
    ends = {each.profile_id: _week_end(each) for each in profiles}
    for name, end in ends.items():
        if end and abs(end - sight.week_reset_ms) <= SAME_WINDOW_MS:
            return ProfileMatch(name, "fingerprint")
    if current and ends.get(current, 0) > sight.now_ms:
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

    def __init__(self, state: RuntimeState, book: BillingHistory, memory: ObserverState, now_ms: int) -> None:
        """Begin with what the file, the journal and the last look say."""
        self.book, self.memory, self.now_ms = book, memory, now_ms
        self.thresholds = state.thresholds
        self.profiles = {each.profile_id: each for each in state.auth_profiles}
        self.events: list[Event] = []
        self.session_usd: dict[str, float] = {}
        self._segment_usd: dict[tuple[str, int], float] = defaultdict(float)
        self._config_dir = ""

    def apply_edits(self) -> None:
        """Take what a person wrote about profiles into the journal, and back where the file lost it."""
        for name, edit in self.book.edits.items():
            if name not in self.profiles:
                self._apply_profile_edit(name, edit)
        for profile in self.profiles.values():
            said = _profile_edit(profile)
            known = self.book.edits.get(profile.profile_id) or _profile_edit(
                create_default_auth_profile(profile.profile_id)
            )
            if said != known:
                self._record_event(said)
        for fingerprint, name in self.book.prints.items():
            if name in self.profiles and not self.profiles[name].billing_fingerprint:
                self.profiles[name].billing_fingerprint = fingerprint

    def observe_session(self, session: str, fresh: Sequence[ClientStatus], project: str, config_dir: str) -> None:
        """Take new payloads of a session into account: who pays, and how full the windows are."""
        self._config_dir = config_dir
        for told in fresh:
            limits = told.payload.rate_limits
            week = limits.seven_day.resets_ms if limits and limits.seven_day else 0
            current = self.book.payer_at(session, told.at_ms)
            sight = ProfileHints(told.launch, project or told.payload.cwd or "", week, told.at_ms)
            found = match_profile(sight, list(self.profiles.values()), current)
            profile = self._ensure_profile(found.profile, found.method)
            if found.learn and not profile.billing_fingerprint:
                profile.billing_fingerprint = found.learn
                self._record_event(AccountBound(profile.profile_id, found.learn))
            if current != found.profile:
                since = told.at_ms if current else 0
                self._record_event(ProfileBilled(session, found.profile, since, found.method))
            self._record_limits(profile.profile_id, told)
        if not fresh and session not in self.book.segments and project:
            found = match_profile(
                ProfileHints(StatusLaunch(config_dir=config_dir), project), list(self.profiles.values())
            )
            self._ensure_profile(found.profile, found.method)

    def bill_profiles(self, digests: Iterable[UsageDigest], rows: AskRows, zone: tzinfo) -> list[AuthProfile]:
        """Work out each profile's billing."""
        spends: dict[str, list[Payment]] = defaultdict(list)
        sessions: dict[str, set[str]] = defaultdict(set)
        for digest in digests:
            for name, spend in self._iter_payments(digest, rows):
                spends[name].append(spend)
                if spend.last_ms >= self.now_ms - WEEK_MS:
                    sessions[name].add(digest.session)
        if not self.profiles:
            self._ensure_profile(DEFAULT_PROFILE, "auto")
        for name, profile in self.profiles.items():
            limit = self._effective_thresholds(profile).cost_block_usd
            known = ProfileLimits(self.memory.limits.get(name), self.memory.samples.get(name, ()), limit)
            profile.billing = compute_billing(spends[name], known, self.now_ms, zone)
            profile.metadata.total_sessions = len(sessions[name])
            profile.metadata.last_used = max([spend.last_ms for spend in spends[name]], default=0)
        self._round_shares()
        return list(self.profiles.values())

    def _round_shares(self) -> None:
        """Round so that the profiles' days and weeks add up to the ledger's."""
        bills = [profile.billing for profile in self.profiles.values()]
        for bill, today in zip(bills, split_cost([bill.cost_today for bill in bills]), strict=True):
            bill.cost_today = today
        for bill, week in zip(bills, split_cost([bill.week_cost or 0.0 for bill in bills]), strict=True):
            bill.week_cost = week

    def profile_of(self, session: str) -> AuthProfile:
        """Who pays for a session now."""
        return self._ensure_profile(self.book.payer_at(session, self.now_ms) or self._default_profile(""), "auto")

    def method_of(self, session: str) -> str:
        """How that was found."""
        parts = self.book.segments.get(session)
        return parts[-1][2] if parts else "default"

    def list_switches(self, session: str) -> list[ProfileSwitch] | None:
        """Who paid from when on, and how much, where that changed in the middle."""
        parts = self.book.segments.get(session, [])
        if len(parts) < 2:
            return None
        costs = split_cost([self._segment_usd[session, since] for since, _, _ in parts])
        return [ProfileSwitch(profile, since, cost) for (since, profile, _), cost in zip(parts, costs, strict=True)]

    def cost_issues(self, profile: AuthProfile, thresholds: Thresholds) -> list[str]:
        """Budgets and limits that are nearly used up."""
        warn = thresholds.budget_warning_percent or 100
        told = profile.billing
        found = []
        for name, spent, most in (
            ("today", told.cost_today, thresholds.cost_today_usd),
            ("block", told.block_cost or 0.0, thresholds.cost_block_usd),
            ("week", told.week_cost or 0.0, thresholds.cost_week_usd),
        ):
            if most and 100 * spent / most >= warn:
                found.append(f"Budget {name} {100 * spent / most:.0f}% used")
        limits = told.limits or VendorLimits()
        for name, window in (("5-hour", limits.five_hour), ("7-day", limits.seven_day)):
            if window is not None and (window.resets_at or 0) > self.now_ms and (window.used_percent or 0) >= warn:
                found.append(f"{name} limit {window.used_percent:.0f}% used")
        return found

    def _iter_payments(self, digest: UsageDigest, rows: AskRows) -> Iterable[tuple[str, Payment]]:
        parts = self.book.segments.get(digest.session, [])
        cuts = [since for since, _, _ in parts[1:]]
        # Where nothing was noted one profile pays for all of it.
        usual = None if parts or not digest.buckets else (0, self._default_profile(digest.project))
        total = 0.0
        for tally in digest.buckets:
            total += tally.usd or 0.0
            crossed = any(tally.first_ms < cut <= tally.last_ms for cut in cuts)
            whole = Payment(tally.first_ms, tally.last_ms, tally.usd or 0.0, tally.usage.total)
            for spend in divide_tally(tally, cuts, rows(digest.session)) if crossed else [whole]:
                since, name = usual or self._find_payer(parts, spend.first_ms)
                self._segment_usd[digest.session, since] += spend.usd
                yield name, spend
        self.session_usd[digest.session] = total

    def _find_payer(self, parts: Sequence[tuple[int, str, str]], at_ms: int) -> tuple[int, str]:
        for since, profile, _ in reversed(parts):
            if since <= at_ms:
                return since, self._ensure_profile(profile, "auto").profile_id
        return parts[0][0], parts[0][1]

    def _default_profile(self, project: str) -> str:
        """Who pays where nothing was noted: by directory or path, else the default."""
        launch = StatusLaunch(config_dir=self._config_dir)
        found = match_profile(ProfileHints(launch, project), list(self.profiles.values()))
        return self._ensure_profile(found.profile, "auto").profile_id

    def _effective_thresholds(self, profile: AuthProfile) -> Thresholds:
        own, all_ = profile.thresholds or Thresholds(), self.thresholds or Thresholds()
        return Thresholds(cost_block_usd=own.cost_block_usd or all_.cost_block_usd)

    def _ensure_profile(self, name: str, method: str) -> AuthProfile:
        if name not in self.profiles:
            how = "fingerprint" if method == "fingerprint" else "auto"
            self.profiles[name] = create_default_auth_profile(name, self.now_ms, method=how)
        return self.profiles[name]

    def _apply_profile_edit(self, name: str, edit: ProfileEdited) -> None:
        profile = self._ensure_profile(name, "auto")
        profile.label = edit.label
        profile.aliases = list(edit.aliases) or None
        profile.path_patterns = list(edit.path_patterns) or None
        profile.config_dirs = list(edit.config_dirs) or None

    def _record_event(self, event: Event) -> None:
        self.book.add_event(event)
        self.events.append(event)

    def _record_limits(self, name: str, told: ClientStatus) -> None:
        limits = told.payload.rate_limits
        if limits is None:
            return
        kept = self.memory.limits.setdefault(name, VendorLimits())
        kept.five_hour = _vendor_window(limits.five_hour, told.at_ms) or kept.five_hour
        kept.seven_day = _vendor_window(limits.seven_day, told.at_ms) or kept.seven_day
        five = limits.five_hour
        if five is not None and five.used_percentage is not None:
            samples = self.memory.samples.setdefault(name, [])
            if not samples or told.at_ms - samples[-1].at_ms >= SAMPLE_EVERY_MS:
                samples.append(LimitSample(told.at_ms, five.used_percentage, five.resets_ms))
                del samples[:-SAMPLES_MAX]


def _profile_edit(profile: AuthProfile) -> ProfileEdited:
    lists = (profile.aliases, profile.path_patterns, profile.config_dirs)
    return ProfileEdited(profile.profile_id, profile.label, *(tuple(each or ()) for each in lists))


def _vendor_window(limit: StatusLimit | None, at_ms: int) -> VendorWindow | None:
    if limit is None or limit.used_percentage is None:
        return None
    return VendorWindow(round(limit.used_percentage, 1), limit.resets_ms or None, "statusline", at_ms)
