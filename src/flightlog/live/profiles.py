"""Whose account pays: recognised by its print, claimed by how the session was started, else the default.

A print of the account is a fact and wins; alias, variable, configuration directory and path are
what a person said, and decide which profile a new print belongs to. Pure.
"""

from collections.abc import Sequence
from fnmatch import fnmatch
from typing import NamedTuple

from flightlog.live.state import DEFAULT_PROFILE, AuthProfile
from flightlog.sources.hook_log import StatusLaunch

SAME_WINDOW_MS = 600_000
# How pressing it is to go elsewhere: mostly the week, then the five hours, a little the rate.
WEEK_SHARE, BLOCK_SHARE, BURN_SHARE = 0.6, 0.3, 0.1
BURN_FULL_USD = 20.0
LEAVE_AT, URGENT_AT = 80.0, 95.0


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
