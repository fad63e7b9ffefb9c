"""Who paid what: profiles as a person named them, accounts as they were seen, and the ledger between them.

Folds what was noted into events (a session paid by a profile from a time on) and the ledger's
usage buckets into each profile's billing. Writes nothing; the driver appends `events`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo

from flightlog.agents.claude_code.hooks import ClientStatus, StatusLimit
from flightlog.live.billing import WEEK_MS, Known, Sample, Spend, billing, divided, shared_out
from flightlog.live.events import Billed, Book, Bound, Edited, Event
from flightlog.live.observe import Memory
from flightlog.live.profiles import Sight, recognise
from flightlog.live.state import (
    DEFAULT_PROFILE,
    AuthProfile,
    Limits,
    RuntimeState,
    Swap,
    Thresholds,
    Window,
    create_default_auth_profile,
)
from flightlog.model.usage import Row
from flightlog.sources.hook_log import StatusLaunch
from flightlog.usage.digest import UsageDigest

SAMPLES_MAX = 400
SAMPLE_EVERY_MS = 30_000
AskRows = Callable[[str], Sequence[Row]]


class Accounts:
    """The profiles of one configuration directory."""

    def __init__(self, state: RuntimeState, book: Book, memory: Memory, now_ms: int) -> None:
        """Begin with what the file, the journal and the last look say."""
        self.book, self.memory, self.now_ms = book, memory, now_ms
        self.thresholds = state.thresholds
        self.profiles = {each.profile_id: each for each in state.auth_profiles}
        self.events: list[Event] = []
        self.session_usd: dict[str, float] = {}
        self._segment_usd: dict[tuple[str, int], float] = defaultdict(float)
        self._config_dir = ""

    def absorb(self) -> None:
        """Take what a person wrote about profiles into the journal, and back where the file lost it."""
        for name, edit in self.book.edits.items():
            if name not in self.profiles:
                self._named(name, edit)
        for profile in self.profiles.values():
            said = _edit(profile)
            known = self.book.edits.get(profile.profile_id) or _edit(create_default_auth_profile(profile.profile_id))
            if said != known:
                self._happened(said)
        for fingerprint, name in self.book.prints.items():
            if name in self.profiles and not self.profiles[name].billing_fingerprint:
                self.profiles[name].billing_fingerprint = fingerprint

    def saw(self, session: str, fresh: Sequence[ClientStatus], project: str, config_dir: str) -> None:
        """Take new payloads of a session into account: who pays, and how full the windows are."""
        self._config_dir = config_dir
        for told in fresh:
            limits = told.payload.rate_limits
            week = limits.seven_day.resets_ms if limits and limits.seven_day else 0
            current = self.book.paid_by(session, told.at_ms)
            sight = Sight(told.launch, project or told.payload.cwd or "", week, told.at_ms)
            found = recognise(sight, list(self.profiles.values()), current)
            profile = self._ensure(found.profile, found.method)
            if found.learn and not profile.billing_fingerprint:
                profile.billing_fingerprint = found.learn
                self._happened(Bound(profile.profile_id, found.learn))
            if current != found.profile:
                since = told.at_ms if current else 0
                self._happened(Billed(session, found.profile, since, found.method))
            self._note_limits(profile.profile_id, told)
        if not fresh and session not in self.book.segments and project:
            found = recognise(Sight(StatusLaunch(config_dir=config_dir), project), list(self.profiles.values()))
            self._ensure(found.profile, found.method)

    def billed(self, digests: Iterable[UsageDigest], rows: AskRows, zone: tzinfo) -> list[AuthProfile]:
        """Work out each profile's billing."""
        spends: dict[str, list[Spend]] = defaultdict(list)
        sessions: dict[str, set[str]] = defaultdict(set)
        for digest in digests:
            for name, spend in self._shared(digest, rows):
                spends[name].append(spend)
                if spend.last_ms >= self.now_ms - WEEK_MS:
                    sessions[name].add(digest.session)
        if not self.profiles:
            self._ensure(DEFAULT_PROFILE, "auto")
        for name, profile in self.profiles.items():
            limit = self._set(profile).cost_block_usd
            known = Known(self.memory.limits.get(name), self.memory.samples.get(name, ()), limit)
            profile.billing = billing(spends[name], known, self.now_ms, zone)
            profile.metadata.total_sessions = len(sessions[name])
            profile.metadata.last_used = max([spend.last_ms for spend in spends[name]], default=0)
        self._share_out()
        return list(self.profiles.values())

    def _share_out(self) -> None:
        """Round so that the profiles' days and weeks add up to the ledger's."""
        bills = [profile.billing for profile in self.profiles.values()]
        for bill, today in zip(bills, shared_out([bill.cost_today for bill in bills]), strict=True):
            bill.cost_today = today
        for bill, week in zip(bills, shared_out([bill.week_cost or 0.0 for bill in bills]), strict=True):
            bill.week_cost = week

    def profile_of(self, session: str) -> AuthProfile:
        """Who pays for a session now."""
        return self._ensure(self.book.paid_by(session, self.now_ms) or self._usual(""), "auto")

    def method_of(self, session: str) -> str:
        """How that was found."""
        parts = self.book.segments.get(session)
        return parts[-1][2] if parts else "default"

    def swaps(self, session: str) -> list[Swap] | None:
        """Who paid from when on, and how much, where that changed in the middle."""
        parts = self.book.segments.get(session, [])
        if len(parts) < 2:
            return None
        costs = shared_out([self._segment_usd[session, since] for since, _, _ in parts])
        return [Swap(profile, since, cost) for (since, profile, _), cost in zip(parts, costs, strict=True)]

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
        limits = told.limits or Limits()
        for name, window in (("5-hour", limits.five_hour), ("7-day", limits.seven_day)):
            if window is not None and (window.resets_at or 0) > self.now_ms and (window.used_percent or 0) >= warn:
                found.append(f"{name} limit {window.used_percent:.0f}% used")
        return found

    def _shared(self, digest: UsageDigest, rows: AskRows) -> Iterable[tuple[str, Spend]]:
        parts = self.book.segments.get(digest.session, [])
        cuts = [since for since, _, _ in parts[1:]]
        # Where nothing was noted one profile pays for all of it.
        usual = None if parts or not digest.buckets else (0, self._usual(digest.project))
        total = 0.0
        for tally in digest.buckets:
            total += tally.usd or 0.0
            crossed = any(tally.first_ms < cut <= tally.last_ms for cut in cuts)
            whole = Spend(tally.first_ms, tally.last_ms, tally.usd or 0.0, tally.usage.total)
            for spend in divided(tally, cuts, rows(digest.session)) if crossed else [whole]:
                since, name = usual or self._payer(parts, spend.first_ms)
                self._segment_usd[digest.session, since] += spend.usd
                yield name, spend
        self.session_usd[digest.session] = total

    def _payer(self, parts: Sequence[tuple[int, str, str]], at_ms: int) -> tuple[int, str]:
        for since, profile, _ in reversed(parts):
            if since <= at_ms:
                return since, self._ensure(profile, "auto").profile_id
        return parts[0][0], parts[0][1]

    def _usual(self, project: str) -> str:
        """Who pays where nothing was noted: by directory or path, else the default."""
        launch = StatusLaunch(config_dir=self._config_dir)
        found = recognise(Sight(launch, project), list(self.profiles.values()))
        return self._ensure(found.profile, "auto").profile_id

    def _set(self, profile: AuthProfile) -> Thresholds:
        own, all_ = profile.thresholds or Thresholds(), self.thresholds or Thresholds()
        return Thresholds(cost_block_usd=own.cost_block_usd or all_.cost_block_usd)

    def _ensure(self, name: str, method: str) -> AuthProfile:
        if name not in self.profiles:
            how = "fingerprint" if method == "fingerprint" else "auto"
            self.profiles[name] = create_default_auth_profile(name, self.now_ms, method=how)
        return self.profiles[name]

    def _named(self, name: str, edit: Edited) -> None:
        profile = self._ensure(name, "auto")
        profile.label = edit.label
        profile.aliases = list(edit.aliases) or None
        profile.path_patterns = list(edit.path_patterns) or None
        profile.config_dirs = list(edit.config_dirs) or None

    def _happened(self, event: Event) -> None:
        self.book.add(event)
        self.events.append(event)

    def _note_limits(self, name: str, told: ClientStatus) -> None:
        limits = told.payload.rate_limits
        if limits is None:
            return
        kept = self.memory.limits.setdefault(name, Limits())
        kept.five_hour = _window(limits.five_hour, told.at_ms) or kept.five_hour
        kept.seven_day = _window(limits.seven_day, told.at_ms) or kept.seven_day
        five = limits.five_hour
        if five is not None and five.used_percentage is not None:
            samples = self.memory.samples.setdefault(name, [])
            if not samples or told.at_ms - samples[-1].at_ms >= SAMPLE_EVERY_MS:
                samples.append(Sample(told.at_ms, five.used_percentage, five.resets_ms))
                del samples[:-SAMPLES_MAX]


def _edit(profile: AuthProfile) -> Edited:
    lists = (profile.aliases, profile.path_patterns, profile.config_dirs)
    return Edited(profile.profile_id, profile.label, *(tuple(each or ()) for each in lists))


def _window(limit: StatusLimit | None, at_ms: int) -> Window | None:
    if limit is None or limit.used_percentage is None:
        return None
    return Window(round(limit.used_percentage, 1), limit.resets_ms or None, "statusline", at_ms)
