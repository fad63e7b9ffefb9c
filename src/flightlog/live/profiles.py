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
from itertools import chain
from os.path import expanduser  # unlike that of `Path`, it raises for no text
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from flightlog.agents.claude_code.hooks import ClientStatus
from flightlog.live import billing
from flightlog.live.events import AccountBound, BillingHistory, Event, ProfileBilled, ProfileEdited
from flightlog.live.observe import ObserverState, switch_time
from flightlog.live.state import (
    DEFAULT_LABEL,
    DEFAULT_PROFILE,
    MIGRATED,
    AuthProfile,
    ProfileSwitch,
    RuntimeState,
    Thresholds,
    VendorLimits,
    create_default_auth_profile,
    has_automatic_label,
    with_freshness,
)
from flightlog.model.text import one_line
from flightlog.model.usage import UsageLine
from flightlog.sources.hook_log import StatusLaunch
from flightlog.usage.digest import UsageDigest

LABEL_CHARS_MAX = 60  # fits in a dashboard column
LoadRows = Callable[[str], Sequence[UsageLine]]


class ProfileMatch(NamedTuple):
    """A profile, how it was detected, and the fingerprint it should learn, if any."""

    profile: str
    method: str
    learned_fingerprint: str = ""


class ProfileHints(NamedTuple):
    """Facts of a session at one time that hint at its profile.

    `now_ms` is the time of its status payload, 0 for a session without one.
    """

    launch: StatusLaunch
    project: str
    week_reset_ms: int = 0
    now_ms: int = 0


def match_profile(
    hints: ProfileHints,
    profiles: Sequence[AuthProfile],
    current: str = "",
    others: Sequence[AuthProfile] = (),
) -> ProfileMatch:
    """Return the profile that pays; `current` is the one that paid until now.

    An account has one id in all directories: `others` are the profiles of the other ones.
    """
    account = hints.launch.account
    own_ids = {profile.profile_id for profile in profiles}
    for profile in profiles:
        if account and profile.billing_fingerprint == account:
            return ProfileMatch(profile.profile_id, "fingerprint")
    for profile in others:
        is_same = account and profile.billing_fingerprint == account
        if is_same and profile.profile_id not in own_ids:
            return ProfileMatch(profile.profile_id, "fingerprint", account)
    claim = _match_claim(hints, profiles)
    # The default profile of another directory is another account, as far as is known.
    is_free = DEFAULT_PROFILE in own_ids or all(
        profile.profile_id != DEFAULT_PROFILE for profile in others
    )
    if account:
        return _assign_account(account, claim, profiles, others, is_default_free=is_free)
    by_window = _match_by_window(hints, profiles, current) if hints.week_reset_ms else None
    if by_window or claim or current:
        return by_window or claim or ProfileMatch(current, "default")
    # A payload would name the account of the default profile, if that one paid.
    named = {profile.profile_id for profile in profiles if profile.billing_fingerprint}
    is_free = is_free and not (hints.now_ms and DEFAULT_PROFILE in named)
    number = f"-{crc32(hints.launch.config_dir.encode()):08x}"[:5]
    return ProfileMatch(DEFAULT_PROFILE + ("" if is_free else number), "default")


def _match_claim(hints: ProfileHints, profiles: Sequence[AuthProfile]) -> ProfileMatch | None:
    """Match what a person set: variable, alias, configuration directory, path, in this order."""
    launch = hints.launch
    if launch.profile:
        return ProfileMatch(launch.profile, "env")
    for profile in profiles:
        if launch.alias and launch.alias in (profile.aliases or []):
            return ProfileMatch(profile.profile_id, "alias")
    for profile in profiles:
        directories = [path.rstrip("/") for path in map(expanduser, profile.config_dirs or [])]
        if launch.config_dir and launch.config_dir in directories:
            return ProfileMatch(profile.profile_id, "config")
    for profile in profiles:
        patterns = map(expanduser, profile.path_patterns or [])
        if hints.project and any(_matches_pattern(hints.project, pattern) for pattern in patterns):
            return ProfileMatch(profile.profile_id, "path")
    return None


def _matches_pattern(path: str, pattern: str) -> bool:
    bare = pattern.rstrip("/").removesuffix("/**").removesuffix("/*")
    return fnmatch(path, pattern) or path == bare or path.startswith(bare + "/")


def _assign_account(
    account: str,
    claim: ProfileMatch | None,
    profiles: Sequence[AuthProfile],
    others: Sequence[AuthProfile],
    *,
    is_default_free: bool,
) -> ProfileMatch:
    """Assign a new fingerprint to the profile that claims the session, or to a new profile."""
    name = claim.profile if claim else DEFAULT_PROFILE
    owner = next((profile for profile in profiles if profile.profile_id == name), None)
    free = owner is None or not owner.billing_fingerprint
    is_first = is_default_free and not profiles
    if free and (claim is not None or owner is not None or is_first):
        return ProfileMatch(name, claim.method if claim else "fingerprint", account)
    return ProfileMatch(_account_id(account, [*profiles, *others]), "fingerprint", account)


def _account_id(account: str, profiles: Sequence[AuthProfile]) -> str:
    """Return a short id for an account that no other account has."""
    known = {account, "", None}
    taken = {one.profile_id for one in profiles if one.billing_fingerprint not in known}
    digits = account.rpartition("-")[2]
    ids = [f"account-{digits[:size]}" for size in range(4, max(len(digits), 4) + 1)]
    return next((name for name in ids if name not in taken), f"account-{account}")


def _match_by_window(
    hints: ProfileHints, profiles: Sequence[AuthProfile], current: str
) -> ProfileMatch | None:
    """Tell accounts without a fingerprint apart by the end of their week, which does not move."""
    ends = {profile.profile_id: _week_end(profile) for profile in profiles}
    for name, end in ends.items():
        if end and abs(end - hints.week_reset_ms) <= billing.SAME_WINDOW_MS:
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
        self,
        state: RuntimeState,
        history: BillingHistory,
        observer: ObserverState,
        place: billing.LedgerPlace,
    ) -> None:
        """Start from the state file, the folded journal and the last observations."""
        self.history, self.observer, self.now_ms = history, observer, place.now_ms
        self.place, self.thresholds = place, state.thresholds
        self.profiles = {profile.profile_id: profile for profile in state.auth_profiles}
        self.events: list[Event] = []
        self.session_usd: dict[str, float] = {}
        self._segment_usd: dict[tuple[str, int], float] = defaultdict(float)

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
            if not profile.metadata.first_seen:  # a person wrote this profile
                profile.metadata.first_seen = self.now_ms
                profile.metadata.detection_method = "manual"
            edit = _profile_edit(profile)
            default = _profile_edit(create_default_auth_profile(name))
            if edit != (self.history.edits.get(name) or default):
                self._record_event(edit)
        for fingerprint, name in self.history.fingerprints.items():
            if name in self.profiles and not self.profiles[name].billing_fingerprint:
                self.profiles[name].billing_fingerprint = fingerprint

    def observe_session(
        self,
        session: str,
        statuses: Sequence[ClientStatus],
        project: str,
        before: ClientStatus | None = None,
    ) -> None:
        """Apply new payloads of a session: who pays, and how full the vendor's windows are.

        `before` is the last payload that was applied earlier.
        """
        for status in statuses:
            limits = status.payload.rate_limits
            week = limits.seven_day.resets_ms if limits and limits.seven_day else 0
            current = self.history.payer_at(session, status.at_ms)
            directory = project or status.payload.cwd or ""
            hints = ProfileHints(status.launch, directory, week, status.at_ms)
            match = self._match(hints, current)
            profile = self._ensure_profile(match.profile, match.method)
            if match.learned_fingerprint and not profile.billing_fingerprint:
                profile.billing_fingerprint = match.learned_fingerprint
                self._record_event(AccountBound(profile.profile_id, match.learned_fingerprint))
                self._move_unknown_sessions(profile.profile_id, session)
            if current != match.profile:
                since = switch_time(before, status) if current else 0
                self._record_event(ProfileBilled(session, match.profile, since, match.method))
            self._name_profile(profile, status.launch)
            profile.metadata.last_used = max(profile.metadata.last_used or 0, status.at_ms)
            self.observer.record_limits(profile.profile_id, status, before)
            before = status
        if not statuses and session not in self.history.segments and project:
            match = self._match_by_path(project)
            self._ensure_profile(match.profile, match.method)

    def bill_profiles(
        self, digests: Iterable[UsageDigest], load_rows: LoadRows, zone: tzinfo
    ) -> list[AuthProfile]:
        """Compute the billing of each profile; `load_rows` returns the responses of a session."""
        payments: dict[str, list[billing.Payment]] = defaultdict(list)
        sessions: dict[str, set[str]] = defaultdict(set)
        for digest in digests:
            for name, payment in self._iter_payments(digest, load_rows):
                payments[name].append(payment)
                if payment.last_ms >= self.now_ms - billing.WEEK_MS:
                    sessions[name].add(digest.session)
        if not self.profiles:
            self._ensure_profile(DEFAULT_PROFILE, "auto")
        everywhere = self.thresholds or Thresholds()
        for name, profile in self.profiles.items():
            own = profile.thresholds or Thresholds()
            budget = own.cost_block_usd or everywhere.cost_block_usd
            samples = self.observer.samples.get(name, ())
            limits = billing.ProfileLimits(self._newest_limits(profile), samples, budget)
            if account := profile.billing_fingerprint:
                self.observer.payments[account] = payments[name]
            # An account pays in all directories.
            elsewhere = (known.get(account or "", ()) for known in self.place.paid_elsewhere)
            paid = list(chain(payments[name], *elsewhere))
            last_ms = max((payment.last_ms for payment in paid), default=0)
            # What an older program counted stays until this profile is used again.
            if profile.billing.cost_source == MIGRATED and last_ms <= profile.billing.last_fetched:
                with_freshness(profile, self.now_ms)
            else:
                profile.billing = billing.compute_billing(paid, limits, self.now_ms, zone)
                profile.metadata.total_sessions = len(sessions[name])
            profile.metadata.last_used = max(profile.metadata.last_used or 0, last_ms) or None
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
        costs = billing.split_cost([self._segment_usd[session, since] for since, _, _ in parts])
        pairs = zip(parts, costs, strict=True)
        return [ProfileSwitch(profile, since, cost) for (since, profile, _), cost in pairs]

    def _iter_payments(
        self, digest: UsageDigest, load_rows: LoadRows
    ) -> Iterable[tuple[str, billing.Payment]]:
        parts = self.history.segments.get(digest.session, [])
        cuts = [since for since, _, _ in parts[1:]]
        # Without a recorded payer one profile pays for the whole session.
        usual = None if parts or not digest.buckets else (0, self._default_profile(digest.project))
        total = 0.0
        for bucket in digest.buckets:
            usd = bucket.cost_usd or 0.0
            total += usd
            payments = [
                billing.Payment(bucket.first_ms, bucket.last_ms, usd, bucket.usage.total_tokens)
            ]
            if any(bucket.first_ms < cut <= bucket.last_ms for cut in cuts):
                payments = billing.divide_bucket(bucket, cuts, load_rows(digest.session))
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

    def _move_unknown_sessions(self, profile: str, besides: str) -> None:
        """Bill other sessions that never named an account to a profile without one."""
        launch = StatusLaunch(config_dir=self.place.config_dir)
        match = self._match(ProfileHints(launch, "", now_ms=self.now_ms))
        for session, parts in list(self.history.segments.items()):
            if session != besides and parts == [(0, profile, "default")]:
                self._record_event(ProfileBilled(session, match.profile, 0, match.method))

    def _match_by_path(self, project: str) -> ProfileMatch:
        return self._match(ProfileHints(StatusLaunch(config_dir=self.place.config_dir), project))

    def _match(self, hints: ProfileHints, current: str = "") -> ProfileMatch:
        return match_profile(hints, list(self.profiles.values()), current, self.place.others)

    def _ensure_profile(self, name: str, method: str) -> AuthProfile:
        if name not in self.profiles:
            how = "fingerprint" if method == "fingerprint" else "auto"
            profile = create_default_auth_profile(name, self.now_ms, method=how)
            profile.metadata.last_used = None
            if name.startswith(f"{DEFAULT_PROFILE}-"):
                profile.label = f"{DEFAULT_LABEL} ({Path(self.place.config_dir).name})"
            twins = [other for other in self.place.others if other.profile_id == name]
            profile.label = twins[0].label if twins else profile.label
            self.profiles[name] = profile
        return self.profiles[name]

    def _name_profile(self, profile: AuthProfile, launch: StatusLaunch) -> None:
        """Label a profile that has an automatic label by its account or launch alias."""
        name = one_line(launch.name or launch.alias, LABEL_CHARS_MAX)
        is_ours = profile.profile_id.partition("-")[0] in {DEFAULT_PROFILE, "account"}
        if not name or not is_ours or not has_automatic_label(profile):
            return
        account, rest = profile.billing_fingerprint, (*self.profiles.values(), *self.place.others)
        taken = {other.label for other in rest if other.billing_fingerprint != account}
        suffix = f" ({launch.account[-4:]})" if name in taken else ""
        profile.label = name + suffix

    def _newest_limits(self, profile: AuthProfile) -> VendorLimits | None:
        """Return the account's limits as last reported in any directory."""
        account = profile.billing_fingerprint
        same = [other for other in self.place.others if other.billing_fingerprint == account]
        reported = [self.observer.limits.get(profile.profile_id)]
        reported += [other.billing.limits for other in same if account]
        return billing.newest_limits(reported, self.now_ms)

    def _record_event(self, event: Event) -> None:
        self.history.add_event(event)
        self.events.append(event)


def _profile_edit(profile: AuthProfile) -> ProfileEdited:
    lists = (profile.aliases, profile.path_patterns, profile.config_dirs)
    return ProfileEdited(
        profile.profile_id, profile.label, *(tuple(names or ()) for names in lists)
    )
