"""Patterns with evidence; activity.

Ids come from what a finding is about, so that a rating given last month still finds it. Preferences
and ratings decide what is left out and what counts less; they never add anything.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from msgspec import Struct
from msgspec.structs import replace

from flightlog.retro.analysis.digests import ConversationDigest, DigestMark
from flightlog.retro.analysis.similarity import Repetition, content_words, repeated_failures, repeated_questions
from flightlog.retro.analysis.topics import Topic, find_topics
from flightlog.retro.state import Pattern, PatternEvidence, PatternTiming, Preferences

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
EVIDENCE_MAX = 12
IDS_MAX = 2000
DEAREST = 5
LOW_RATED = 2.5


class Activity(Struct, frozen=True):
    """Prompts by day (ISO), by month, and by weekday (0 is Sunday) and hour."""

    days: dict[str, int]
    months: dict[str, int]
    hours: dict[str, int]  # "day-hour"

    @property
    def grid(self) -> list[list[int]]:
        """Seven rows of 24."""
        return [[self.hours.get(f"{day}-{hour}", 0) for hour in range(24)] for day in range(7)]


def count_activity(digests: Iterable[ConversationDigest], zone: tzinfo) -> Activity:
    """Count every prompt with a time."""
    days: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    for digest in digests:
        for prompt in digest.prompts:
            if prompt.at_ms:
                moment = datetime.fromtimestamp(prompt.at_ms / 1000, UTC).astimezone(zone)
                days[f"{moment:%Y-%m-%d}"] += 1
                hours[f"{(moment.weekday() + 1) % 7}-{moment.hour}"] += 1
    months: Counter[str] = Counter()
    for day, count in days.items():
        months[day[:7]] += count
    return Activity(dict(sorted(days.items())), dict(sorted(months.items())), dict(sorted(hours.items())))


def collect_findings(
    digests: Sequence[ConversationDigest], zone: tzinfo, wants: Preferences, ratings: Mapping[str, float] | None = None
) -> tuple[Pattern, ...]:
    """Return every finding, surest first within what a person asked to see first."""
    looked_at = [digest for digest in digests if not digest.deleted and not is_excluded(digest, wants)]
    # Questions first: what comparing them needs is free again when topics load what they need.
    asked = [_repetition_pattern("question", "asked again", each) for each in repeated_questions(looked_at)]
    found = [
        *asked,
        *_activity_pattern(count_activity(looked_at, zone)),
        *(_topic_pattern(topic, looked_at) for topic in find_topics(looked_at)),
        *(_repetition_pattern("failure", "failed again", each) for each in repeated_failures(looked_at)),
        *_mark_patterns("friction", looked_at, lambda digest: digest.frictions),
        *_mark_patterns("outcome", looked_at, lambda digest: digest.outcomes),
        *_cost_drivers(looked_at),
        *_working_prompts(looked_at),
    ]
    rated = [_apply_rating(pattern, (ratings or {}).get(pattern.id)) for pattern in found]
    focus = [set(content_words(area)) for area in wants.focus_areas]
    return tuple(sorted(rated, key=lambda each: (-_in_focus(each, focus), -each.confidence, -each.count, each.id)))


def is_excluded(digest: ConversationDigest, wants: Preferences) -> bool:
    """Whether a person asked not to look at what this conversation is about."""
    if not wants.excluded_topics:
        return False
    words = set(content_words(digest.title))
    for prompt in digest.prompts:
        words |= set(content_words(prompt.text))
    return any((own := set(content_words(topic))) and own <= words for topic in wants.excluded_topics)


def _pattern_id(kind: str, *about: str) -> str:
    return f"{kind}-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:10]}"


def _activity_pattern(when: Activity) -> Iterator[Pattern]:
    total = sum(when.days.values())
    if not total:
        return
    peak, count = max(when.hours.items(), key=lambda pair: (pair[1], pair[0]))
    day, hour = peak.split("-")
    month, most = max(when.months.items(), key=lambda pair: (pair[1], pair[0]))
    label = f"Most prompts on {DAYS[int(day)]} at {int(hour):02}:00"
    detail = f"{count} of {total} prompts; {len(when.days)} days with prompts"
    yield Pattern(
        "activity",
        label,
        "temporal",
        _confidence_of(count, total / 168),
        (),
        PatternTiming(month, most),
        "activity",
        detail,
        total,
    )


def _topic_pattern(topic: Topic, digests: Sequence[ConversationDigest]) -> Pattern:
    members = [digests[number] for number in topic.members]
    shown = [
        PatternEvidence(prompt.address, prompt.text)
        for number in topic.typical
        for prompt in digests[number].prompts[:2]
    ]
    label = topic.label or members[0].title
    return Pattern(
        _pattern_id("topic", label), label, "theme", max(0.0, min(1.0, topic.cohesion)), _conversation_ids(members),
        _timing_of(digest.started_ms for digest in members), "topic",
        f"{len(members)} conversations, {sum(digest.turns for digest in members)} turns", len(members),
        tuple(shown[:EVIDENCE_MAX]),
    )  # fmt: skip


def _repetition_pattern(kind: str, words: str, repeated: Repetition) -> Pattern:
    where = len(repeated.conversations)
    return Pattern(
        _pattern_id(kind, " ".join(sorted(set(content_words(repeated.text))))), repeated.text, "behavioral",
        _confidence_of(where, 1), repeated.conversations[:IDS_MAX], None, f"{kind} again",
        f"{words} {len(repeated.places)} times in {where} conversations", len(repeated.places),
        tuple(PatternEvidence(place.address, place.text) for place in repeated.places[:EVIDENCE_MAX]),
    )  # fmt: skip


def _mark_patterns(
    kind: str, digests: Sequence[ConversationDigest], marks: Callable[[ConversationDigest], tuple[DigestMark, ...]]
) -> Iterator[Pattern]:
    seen: dict[str, list[tuple[ConversationDigest, DigestMark]]] = defaultdict(list)
    for digest in digests:
        for mark in marks(digest):
            seen[mark.kind].append((digest, mark))
    for name in sorted(seen):
        places = seen[name]
        members = list({digest.id: digest for digest, _ in places}.values())
        yield Pattern(
            _pattern_id(kind, name), name, "behavioral", _confidence_of(len(places), 1), _conversation_ids(members),
            _timing_of(digest.started_ms for digest, _ in places), kind,
            f"{len(places)} times in {len(members)} of {len(digests)} conversations", len(places),
            tuple(PatternEvidence(mark.address, mark.text) for _, mark in places[:EVIDENCE_MAX]),
        )  # fmt: skip


def _cost_drivers(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    total = sum(digest.usd or 0.0 for digest in digests)
    turns = sorted(
        ((mark, digest) for digest in digests for mark in digest.costs),
        key=lambda pair: (-pair[0].amount, pair[0].address),
    )
    if not total or not turns:
        return
    dearest = turns[:DEAREST]
    part = sum(mark.amount for mark, _ in dearest)
    yield Pattern(
        "cost-turns", f"{len(dearest)} prompts cost {part / total:.0%} of {total:.2f} USD", "other", 1.0,
        _conversation_ids([digest for _, digest in dearest]), None, "cost", f"{part:.2f} USD", len(dearest),
        tuple(PatternEvidence(mark.address, f"{mark.amount:.2f} USD: {mark.text}") for mark, _ in dearest),
    )  # fmt: skip
    by_model: Counter[str] = Counter()
    for digest in digests:
        by_model[", ".join(digest.models)] += round((digest.usd or 0.0) * 1e6)
    model, micro = max(by_model.items(), key=lambda pair: (pair[1], pair[0]))
    members = [digest for digest in digests if ", ".join(digest.models) == model]
    yield Pattern(
        "cost-models",
        f"{model or 'unknown model'}: {micro / 1e6:.2f} of {total:.2f} USD",
        "other",
        1.0,
        _conversation_ids(members),
        None,
        "cost",
        f"{len(members)} sessions",
        len(members),
        tuple(PatternEvidence(digest.id, digest.title) for digest in members[:EVIDENCE_MAX]),
    )


def _working_prompts(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Prompts after which something was committed or tested well, and nothing went wrong."""
    good: list[tuple[ConversationDigest, str]] = []
    for digest in digests:
        bad = {_turn_address(mark.address) for mark in digest.frictions}
        reached = {_turn_address(mark.address) for mark in digest.outcomes if mark.kind != "tests failed"}
        good += [(digest, turn) for turn in sorted(reached - bad)]
    if not good:
        return
    texts = {prompt.address: prompt.text for digest in digests for prompt in digest.prompts}
    members = list({digest.id: digest for digest, _ in good}.values())
    yield Pattern(
        "prompts-that-work",
        "Prompts that led straight to a commit or passing tests",
        "behavioral",
        _confidence_of(len(good), 1),
        _conversation_ids(members),
        None,
        "prompts that work",
        f"{len(good)} turns",
        len(good),
        tuple(PatternEvidence(turn, texts.get(turn, "")) for _, turn in good[:EVIDENCE_MAX]),
    )


def _turn_address(address: str) -> str:
    return address.rpartition(".")[0] if "." in address.rpartition("#")[2] else address


def _confidence_of(count: int, expected: float) -> float:
    """The more often above what chance gives, the surer; never quite 1."""
    return round(min(0.99, count / (count + max(expected, 0.5))), 3)


def _conversation_ids(digests: Sequence[ConversationDigest]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(digest.id for digest in digests))[:IDS_MAX]


def _timing_of(times_ms: Iterable[int]) -> PatternTiming | None:
    months = Counter(f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m}" for ms in times_ms if ms)
    if not months:
        return None
    peak, count = max(months.items(), key=lambda pair: (pair[1], pair[0]))
    return PatternTiming(peak, count)


def _apply_rating(pattern: Pattern, rating: float | None) -> Pattern:
    if rating is None or rating > LOW_RATED:
        return pattern

    return replace(pattern, confidence=round(pattern.confidence * rating / 5, 3))


def _in_focus(pattern: Pattern, focus: Sequence[set[str]]) -> bool:
    words = set(content_words(pattern.label))
    for one in pattern.evidence:
        words |= set(content_words(one.text))
    return any(area and area <= words for area in focus)
