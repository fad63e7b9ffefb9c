"""Findings: what the counts, clusters and repetitions come to, each with places that show it.

Ids come from what a finding is about, so that a rating given last month still finds it. Preferences
and ratings decide what is left out and what counts less; they never add anything.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from msgspec.structs import replace

from flightlog.retro.analysis.activity import DAYS, Activity, activity
from flightlog.retro.analysis.repetition import Repeated, failures, questions
from flightlog.retro.analysis.topics import Topic, topics
from flightlog.retro.analysis.words import content_words
from flightlog.retro.digest import Digest, Mark
from flightlog.retro.state import Evidence, Pattern, Preferences, Temporal

EVIDENCE_MAX = 12
IDS_MAX = 2000
DEAREST = 5
LOW_RATED = 2.5


def findings(
    digests: Sequence[Digest], zone: tzinfo, wants: Preferences, ratings: Mapping[str, float] | None = None
) -> tuple[Pattern, ...]:
    """Return every finding, surest first within what a person asked to see first."""
    looked_at = [digest for digest in digests if not digest.deleted and not is_excluded(digest, wants)]
    # Questions first: what comparing them needs is free again when topics load what they need.
    asked = [_again("question", "asked again", each) for each in questions(looked_at)]
    found = [
        *asked,
        *_when(activity(looked_at, zone)),
        *(_topic(topic, looked_at) for topic in topics(looked_at)),
        *(_again("failure", "failed again", each) for each in failures(looked_at)),
        *_marked("friction", looked_at, lambda digest: digest.frictions),
        *_marked("outcome", looked_at, lambda digest: digest.outcomes),
        *_cost_drivers(looked_at),
        *_working_prompts(looked_at),
    ]
    rated = [_rated(pattern, (ratings or {}).get(pattern.id)) for pattern in found]
    focus = [set(content_words(area)) for area in wants.focus_areas]
    return tuple(sorted(rated, key=lambda each: (-_in_focus(each, focus), -each.confidence, -each.count, each.id)))


def is_excluded(digest: Digest, wants: Preferences) -> bool:
    """Whether a person asked not to look at what this conversation is about."""
    if not wants.excluded_topics:
        return False
    words = set(content_words(digest.title))
    for prompt in digest.prompts:
        words |= set(content_words(prompt.text))
    return any((own := set(content_words(topic))) and own <= words for topic in wants.excluded_topics)


def _name(kind: str, *about: str) -> str:
    return f"{kind}-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:10]}"


def _when(when: Activity) -> Iterator[Pattern]:
    total = sum(when.days.values())
    if not total:
        return
    peak, count = max(when.hours.items(), key=lambda pair: (pair[1], pair[0]))
    day, hour = peak.split("-")
    month, most = max(when.months.items(), key=lambda pair: (pair[1], pair[0]))
    label = f"Most prompts on {DAYS[int(day)]} at {int(hour):02}:00"
    detail = f"{count} of {total} prompts; {len(when.days)} days with prompts"
    yield Pattern(
        "activity", label, "temporal", _sure(count, total / 168), (), Temporal(month, most), "activity", detail, total
    )


def _topic(topic: Topic, digests: Sequence[Digest]) -> Pattern:
    members = [digests[number] for number in topic.members]
    shown = [
        Evidence(prompt.address, prompt.text) for number in topic.typical for prompt in digests[number].prompts[:2]
    ]
    label = topic.label or members[0].title
    return Pattern(
        _name("topic", label), label, "theme", max(0.0, min(1.0, topic.cohesion)), _ids(members),
        _temporal(digest.started_ms for digest in members), "topic",
        f"{len(members)} conversations, {sum(digest.turns for digest in members)} turns", len(members),
        tuple(shown[:EVIDENCE_MAX]),
    )  # fmt: skip


def _again(kind: str, words: str, repeated: Repeated) -> Pattern:
    where = len(repeated.conversations)
    return Pattern(
        _name(kind, " ".join(sorted(set(content_words(repeated.text))))), repeated.text, "behavioral",
        _sure(where, 1), repeated.conversations[:IDS_MAX], None, f"{kind} again",
        f"{words} {len(repeated.places)} times in {where} conversations", len(repeated.places),
        tuple(Evidence(place.address, place.text) for place in repeated.places[:EVIDENCE_MAX]),
    )  # fmt: skip


def _marked(kind: str, digests: Sequence[Digest], marks: Callable[[Digest], tuple[Mark, ...]]) -> Iterator[Pattern]:
    seen: dict[str, list[tuple[Digest, Mark]]] = defaultdict(list)
    for digest in digests:
        for mark in marks(digest):
            seen[mark.kind].append((digest, mark))
    for name in sorted(seen):
        places = seen[name]
        members = list({digest.id: digest for digest, _ in places}.values())
        yield Pattern(
            _name(kind, name), name, "behavioral", _sure(len(places), 1), _ids(members),
            _temporal(digest.started_ms for digest, _ in places), kind,
            f"{len(places)} times in {len(members)} of {len(digests)} conversations", len(places),
            tuple(Evidence(mark.address, mark.text) for _, mark in places[:EVIDENCE_MAX]),
        )  # fmt: skip


def _cost_drivers(digests: Sequence[Digest]) -> Iterator[Pattern]:
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
        _ids([digest for _, digest in dearest]), None, "cost", f"{part:.2f} USD", len(dearest),
        tuple(Evidence(mark.address, f"{mark.amount:.2f} USD: {mark.text}") for mark, _ in dearest),
    )  # fmt: skip
    by_model: Counter[str] = Counter()
    for digest in digests:
        by_model[", ".join(digest.models)] += round((digest.usd or 0.0) * 1e6)
    model, micro = max(by_model.items(), key=lambda pair: (pair[1], pair[0]))
    members = [digest for digest in digests if ", ".join(digest.models) == model]
    yield Pattern(
        "cost-models", f"{model or 'unknown model'}: {micro / 1e6:.2f} of {total:.2f} USD", "other", 1.0, _ids(members),
        None, "cost", f"{len(members)} sessions", len(members),
        tuple(Evidence(digest.id, digest.title) for digest in members[:EVIDENCE_MAX]),
    )  # fmt: skip


def _working_prompts(digests: Sequence[Digest]) -> Iterator[Pattern]:
    """Prompts after which something was committed or tested well, and nothing went wrong."""
    good: list[tuple[Digest, str]] = []
    for digest in digests:
        bad = {_turn(mark.address) for mark in digest.frictions}
        reached = {_turn(mark.address) for mark in digest.outcomes if mark.kind != "tests failed"}
        good += [(digest, turn) for turn in sorted(reached - bad)]
    if not good:
        return
    texts = {prompt.address: prompt.text for digest in digests for prompt in digest.prompts}
    members = list({digest.id: digest for digest, _ in good}.values())
    yield Pattern(
        "prompts-that-work", "Prompts that led straight to a commit or passing tests", "behavioral",
        _sure(len(good), 1), _ids(members), None, "prompts that work", f"{len(good)} turns", len(good),
        tuple(Evidence(turn, texts.get(turn, "")) for _, turn in good[:EVIDENCE_MAX]),
    )  # fmt: skip


def _turn(address: str) -> str:
    return address.rpartition(".")[0] if "." in address.rpartition("#")[2] else address


def _sure(count: int, expected: float) -> float:
    """The more often above what chance gives, the surer; never quite 1."""
    return round(min(0.99, count / (count + max(expected, 0.5))), 3)


def _ids(digests: Sequence[Digest]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(digest.id for digest in digests))[:IDS_MAX]


def _temporal(times_ms: Iterable[int]) -> Temporal | None:
    months = Counter(f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m}" for ms in times_ms if ms)
    if not months:
        return None
    peak, count = max(months.items(), key=lambda pair: (pair[1], pair[0]))
    return Temporal(peak, count)


def _rated(pattern: Pattern, rating: float | None) -> Pattern:
    if rating is None or rating > LOW_RATED:
        return pattern

    return replace(pattern, confidence=round(pattern.confidence * rating / 5, 3))


def _in_focus(pattern: Pattern, focus: Sequence[set[str]]) -> bool:
    words = set(content_words(pattern.label))
    for one in pattern.evidence:
        words |= set(content_words(one.text))
    return any(area and area <= words for area in focus)
