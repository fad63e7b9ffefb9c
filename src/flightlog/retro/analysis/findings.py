"""Patterns with evidence, and activity.

A finding's id is derived from what it is about, so that an old rating still applies to it.
Preferences and ratings only remove findings or lower their confidence.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.text import pluralize
from flightlog.retro.analysis.digests import TOPIC_CONVERSATIONS_MIN, ConversationDigest, DigestMark
from flightlog.retro.analysis.similarity import (
    Repetition,
    content_words,
    repeated_failures,
    repeated_questions,
)
from flightlog.retro.state import LOW_RATED, Pattern, PatternEvidence, PatternTiming, Preferences

if TYPE_CHECKING:
    from flightlog.retro.analysis.topics import Topic

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
EVIDENCE_MAX = 12  # addresses listed per finding; more would not be read
IDS_MAX = 2000  # bounds `state/analysis.json` for a topic that most conversations share
TOP_PROMPTS = 5  # most expensive prompts listed as cost drivers


class Activity(Struct, frozen=True):
    """Prompts by day (ISO), by month, and by weekday (0 is Sunday) and hour."""

    days: dict[str, int]
    months: dict[str, int]
    hours: dict[str, int]  # "day-hour"

    @property
    def grid(self) -> list[list[int]]:
        """Return the counts as seven rows of 24 hours."""
        return [[self.hours.get(f"{day}-{hour}", 0) for hour in range(24)] for day in range(7)]


def count_activity(digests: Iterable[ConversationDigest], zone: tzinfo) -> Activity:
    """Count every prompt that has a time, in `zone`."""
    days: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    for digest in digests:
        for prompt in digest.prompts:
            if prompt.at_ms:
                at = datetime.fromtimestamp(prompt.at_ms / 1000, UTC).astimezone(zone)
                days[f"{at:%Y-%m-%d}"] += 1
                hours[f"{(at.weekday() + 1) % 7}-{at.hour}"] += 1
    months: Counter[str] = Counter()
    for day, count in days.items():
        months[day[:7]] += count
    return Activity(
        dict(sorted(days.items())), dict(sorted(months.items())), dict(sorted(hours.items()))
    )


def collect_findings(
    digests: Sequence[ConversationDigest],
    zone: tzinfo,
    preferences: Preferences,
    ratings: Mapping[str, float] | None = None,
) -> tuple[Pattern, ...]:
    """Return all findings: those in a focus area first, then by confidence."""
    digests = [
        digest
        for digest in digests
        if not digest.is_deleted and not is_excluded(digest, preferences)
    ]
    patterns = [
        # Questions first: their comparison frees its memory before topics load scikit-learn.
        *(
            _repetition_pattern("question", "asked again", repetition)
            for repetition in repeated_questions(digests)
        ),
        *_activity_pattern(count_activity(digests, zone)),
        *_topic_patterns(digests),
        *(
            _repetition_pattern("failure", "failed again", repetition)
            for repetition in repeated_failures(digests)
        ),
        *_mark_patterns("friction", digests, lambda digest: digest.frictions),
        *_mark_patterns("outcome", digests, lambda digest: digest.outcomes),
        *_cost_drivers(digests),
        *_working_prompts(digests),
    ]
    rated = [_apply_rating(pattern, (ratings or {}).get(pattern.id)) for pattern in patterns]
    focus = [set(content_words(area)) for area in preferences.focus_areas]
    return tuple(
        sorted(
            rated,
            key=lambda pattern: (
                -_in_focus(pattern, focus),
                -pattern.confidence,
                -pattern.count,
                pattern.id,
            ),
        )
    )


def is_excluded(digest: ConversationDigest, preferences: Preferences) -> bool:
    """Return whether a conversation is about one of the excluded topics."""
    if not preferences.excluded_topics:
        return False
    words = set(content_words(digest.title))
    for prompt in digest.prompts:
        words |= set(content_words(prompt.text))
    return any(
        (excluded := set(content_words(topic))) and excluded <= words
        for topic in preferences.excluded_topics
    )


def _pattern_id(kind: str, *about: str) -> str:
    return f"{kind}-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:10]}"


def _activity_pattern(activity: Activity) -> Iterator[Pattern]:
    total = sum(activity.days.values())
    if not total:
        return
    peak, count = max(activity.hours.items(), key=lambda pair: (pair[1], pair[0]))
    day, hour = peak.split("-")
    month, most = max(activity.months.items(), key=lambda pair: (pair[1], pair[0]))
    label = f"Most prompts on {DAYS[int(day)]} at {int(hour):02}:00"
    detail = f"{count} of {pluralize(total, 'prompt')}; {pluralize(len(activity.days), 'day')} with prompts"
    confidence = _confidence_of(
        count, total / 168
    )  # chance spreads prompts over the hours of a week
    timing = PatternTiming(month, most)
    yield Pattern("activity", label, "temporal", confidence, (), timing, "activity", detail, total)


def _topic_patterns(digests: Sequence[ConversationDigest]) -> list[Pattern]:
    if len(digests) < TOPIC_CONVERSATIONS_MIN:
        return []
    # scikit-learn takes 2 s to import.
    from flightlog.retro.analysis.topics import find_topics  # noqa: PLC0415

    return [_topic_pattern(topic, digests) for topic in find_topics(digests)]


def _topic_pattern(topic: "Topic", digests: Sequence[ConversationDigest]) -> Pattern:
    members = [digests[index] for index in topic.members]
    evidence = [
        PatternEvidence(prompt.address, prompt.text)
        for index in topic.typical
        for prompt in digests[index].prompts[:2]
    ]
    label = topic.label or members[0].title
    turns = pluralize(sum(digest.turns for digest in members), "turn")
    return Pattern(
        _pattern_id("topic", label), label, "theme", max(0.0, min(1.0, topic.cohesion)), _conversation_ids(members),
        _timing_of(digest.started_ms for digest in members), "topic",
        f"{pluralize(len(members), 'conversation')}, {turns}", len(members),
        tuple(evidence[:EVIDENCE_MAX]),
    )  # fmt: skip


def _repetition_pattern(kind: str, words: str, repeated: Repetition) -> Pattern:
    conversations = pluralize(len(repeated.conversations), "conversation")
    return Pattern(
        _pattern_id(kind, " ".join(sorted(set(content_words(repeated.text))))), repeated.text, "behavioral",
        _confidence_of(len(repeated.conversations), 1), repeated.conversations[:IDS_MAX], None, f"{kind} again",
        f"{words} {pluralize(len(repeated.occurrences), 'time')} in {conversations}", len(repeated.occurrences),
        tuple(PatternEvidence(mark.address, mark.text) for mark in repeated.occurrences[:EVIDENCE_MAX]),
    )  # fmt: skip


def _mark_patterns(
    kind: str,
    digests: Sequence[ConversationDigest],
    marks: Callable[[ConversationDigest], tuple[DigestMark, ...]],
) -> Iterator[Pattern]:
    marks_by_kind: dict[str, list[tuple[ConversationDigest, DigestMark]]] = defaultdict(list)
    for digest in digests:
        for mark in marks(digest):
            marks_by_kind[mark.kind].append((digest, mark))
    for label in sorted(marks_by_kind):
        occurrences = marks_by_kind[label]
        members = list({digest.id: digest for digest, _ in occurrences}.values())
        yield Pattern(
            _pattern_id(kind, label), label, "behavioral", _confidence_of(len(occurrences), 1),
            _conversation_ids(members), _timing_of(digest.started_ms for digest, _ in occurrences), kind,
            f"{pluralize(len(occurrences), 'time')} in {len(members)} of {pluralize(len(digests), 'conversation')}",
            len(occurrences),
            tuple(PatternEvidence(mark.address, mark.text) for _, mark in occurrences[:EVIDENCE_MAX]),
        )  # fmt: skip


def _cost_drivers(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    total = sum(digest.cost_usd or 0.0 for digest in digests)
    turns = sorted(
        ((mark, digest) for digest in digests for mark in digest.costs),
        key=lambda pair: (-pair[0].amount, pair[0].address),
    )
    if not total or not turns:
        return
    whole = f"≥ {total:.2f}" if any(digest.is_lower_bound for digest in digests) else f"{total:.2f}"
    top = turns[:TOP_PROMPTS]
    part = sum(mark.amount for mark, _ in top)
    yield Pattern(
        "cost-turns", f"{len(top)} prompts cost {part / total:.0%} of {whole} USD", "other", 1.0,
        _conversation_ids([digest for _, digest in top]), None, "cost", f"{part:.2f} USD", len(top),
        tuple(PatternEvidence(mark.address, f"{mark.amount:.2f} USD: {mark.text}") for mark, _ in top),
    )  # fmt: skip
    by_model: Counter[str] = Counter()
    for digest in digests:
        for model, cost in digest.model_costs:
            by_model[model] += round(cost * 1e6)
    if not by_model:
        return
    model, micro = max(by_model.items(), key=lambda pair: (pair[1], pair[0]))
    members = [digest for digest in digests if model in dict(digest.model_costs)]
    yield Pattern(
        "cost-models", f"{model or 'unknown model'}: {micro / 1e6:.2f} of {whole} USD", "other", 1.0,
        _conversation_ids(members), None, "cost", pluralize(len(members), "session"), len(members),
        tuple(PatternEvidence(digest.id, digest.title) for digest in members[:EVIDENCE_MAX]),
    )  # fmt: skip


def _working_prompts(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Find prompts that led to a commit or passing tests without any friction."""
    good: list[tuple[ConversationDigest, str]] = []
    for digest in digests:
        if not digest.prompts:  # a loop's session
            continue
        bad = {_turn_address(mark.address) for mark in digest.frictions}
        reached = {
            _turn_address(mark.address) for mark in digest.outcomes if mark.kind != "tests failed"
        }
        good += [(digest, turn) for turn in sorted(reached - bad)]
    if not good:
        return
    texts = {prompt.address: prompt.text for digest in digests for prompt in digest.prompts}
    members = list({digest.id: digest for digest, _ in good}.values())
    yield Pattern(
        "prompts-that-work", "Prompts that led straight to a commit or passing tests", "behavioral",
        _confidence_of(len(good), 1), _conversation_ids(members), None, "prompts that work",
        pluralize(len(good), "turn"), len(good),
        tuple(PatternEvidence(turn, texts.get(turn, "")) for _, turn in good[:EVIDENCE_MAX]),
    )  # fmt: skip


def _turn_address(address: str) -> str:
    return address.rpartition(".")[0] if "." in address.rpartition("#")[2] else address


def _confidence_of(count: int, expected: float) -> float:
    """Return how sure a finding is: higher the more its count exceeds chance, below 1."""
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
    for evidence in pattern.evidence:
        words |= set(content_words(evidence.text))
    return any(area and area <= words for area in focus)
