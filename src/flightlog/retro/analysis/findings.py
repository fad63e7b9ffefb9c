"""Patterns with evidence from which recommendations are derived.

A finding's id is derived from what it is about, so that an old rating still applies to it.
Preferences and ratings only remove findings or lower their confidence.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, sqrt
from statistics import median

from msgspec.structs import replace

from flightlog.model.text import pluralize
from flightlog.retro.analysis.digests import (
    ConversationDigest,
    DigestMark,
    format_part,
    format_spent,
)
from flightlog.retro.analysis.similarity import (
    Repetition,
    content_words,
    meaning_words,
    repeated_failures,
    repeated_instructions,
    repeated_questions,
    word_overlap,
)
from flightlog.retro.state import LOW_RATED, Pattern, PatternEvidence, PatternTiming, Preferences

EVIDENCE_MAX = 12  # addresses listed per finding; more would not be read
FRUITLESS = "cost-without-outcome"  # id of the pattern of such sessions
PAIR_OVERLAP = 0.3  # share of common words from which two prompts ask for similar things
PAIR_WORDS_MIN = 3  # common words of such prompts
PAIR_WORD_PROMPTS_MAX = 60  # prompts with a word; a more frequent word finds no pairs
SAMPLES_MIN = 10  # sessions on each side of a comparison of medians
_FILE_NAME = re.compile(r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.[a-z]{1,4}\b")
TOP_PROMPTS = 5  # most expensive prompts listed as cost drivers


def collect_findings(
    digests: Sequence[ConversationDigest],
    preferences: Preferences,
    ratings: Mapping[str, float] | None = None,
) -> tuple[Pattern, ...]:
    """Return all findings: those in a focus area first, then by confidence."""
    digests = [digest for digest in digests if is_shown(digest, preferences)]
    questions, failures = repeated_questions(digests), repeated_failures(digests)
    patterns = [
        *_instruction_patterns(digests),
        *(_repetition_pattern("question", "asked again", item) for item in questions),
        *(_repetition_pattern("failure", "failed again", item) for item in failures),
        *_mark_patterns("friction", digests, lambda digest: digest.frictions),
        *_mark_patterns("outcome", digests, lambda digest: digest.outcomes),
        *_correction_pattern(digests),
        *_permission_patterns(digests),
        *_cost_drivers(digests),
        *_fruitless_spend(digests),
        *_working_prompts(digests),
        *_prompt_pairs(digests),
        *_first_edits(digests),
    ]
    rated = [_apply_rating(pattern, (ratings or {}).get(pattern.id)) for pattern in patterns]
    focus = [set(content_words(area)) for area in preferences.focus_areas]
    rated.sort(key=lambda item: (-item.confidence, -item.count, item.id))
    return tuple(sorted(rated, key=lambda item: -_in_focus(item, focus)))


def is_shown(digest: ConversationDigest, preferences: Preferences) -> bool:
    """Return whether a conversation still exists and is not about an excluded topic."""
    return not digest.is_deleted and not is_excluded(digest, preferences)


def is_excluded(digest: ConversationDigest, preferences: Preferences) -> bool:
    """Return whether a conversation is about one of the excluded topics."""
    if not preferences.excluded_topics:
        return False
    words = set(content_words(digest.title))
    for prompt in digest.prompts:
        words |= set(content_words(prompt.text))
    excluded = (set(content_words(topic)) for topic in preferences.excluded_topics)
    return any(topic and topic <= words for topic in excluded)


def _pattern_id(kind: str, *about: str) -> str:
    return f"{kind}-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:10]}"


def _instruction_patterns(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Find what a person demands again and again, named by the words that most wordings share."""
    taken: set[str] = set()
    for repeated in repeated_instructions(digests):
        stems = Counter(stem for mark in repeated.occurrences for stem in meaning_words(mark.text))
        ranked = sorted(stems, key=lambda stem: (-stems[stem], stem))
        # The first word tells most instructions apart, and stays the same as sessions are added.
        names = (_pattern_id("instruction", *ranked[:count]) for count in range(1, len(ranked) + 1))
        if name := next((name for name in names if name not in taken), ""):
            taken.add(name)
            yield replace(_repetition_pattern("instruction", "said again", repeated), id=name)


def _correction_pattern(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    corrected = [(digest, mark) for digest in digests for mark in digest.corrections]
    follow_ups = sum(digest.follow_ups for digest in digests)
    if len(corrected) < 2:
        return
    after_done = sum(mark.kind != "correction" for _, mark in corrected)
    # Those after a claim first: they are the ones that cost a second look.
    corrected.sort(key=lambda pair: pair[1].kind == "correction")
    yield Pattern(
        "corrections", "Corrections of the agent", "behavioral", _confidence_of(len(corrected), 1),
        _conversation_ids([digest for digest, _ in corrected]), None, "correction",
        f"{len(corrected)} of {pluralize(follow_ups, 'follow-up')}, {after_done} after it was done",
        len(corrected),
        tuple(PatternEvidence(mark.address, mark.text) for _, mark in corrected[:EVIDENCE_MAX]),
    )  # fmt: skip


def _permission_patterns(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Find the calls that were approved, rejected or blocked more than once in a project."""
    decided: dict[tuple[str, str, str], list[tuple[ConversationDigest, DigestMark]]]
    decided = defaultdict(list)
    for digest in digests:
        for mark in digest.permissions:
            decided[mark.kind, digest.project, mark.key or mark.text].append((digest, mark))
    for (kind, project, rule), calls in decided.items():
        if len(calls) > 1:
            members = [digest for digest, _ in calls]
            sessions = pluralize(len(set(map(id, members))), "session")
            yield Pattern(
                _pattern_id("permission", kind, project, rule), rule, "behavioral",
                _confidence_of(len(calls), 1), _conversation_ids(members), None, f"call {kind}",
                f"{pluralize(len(calls), 'time')} in {sessions}", len(calls),
                tuple(PatternEvidence(mark.address, mark.text) for _, mark in calls[:EVIDENCE_MAX]),
            )  # fmt: skip


def _fruitless_spend(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Find the sessions that cost something and led to no commit, passing test or edit that stayed."""
    costly = [digest for digest in digests if digest.cost_usd and not _has_outcome(digest)]
    costly.sort(key=lambda digest: (-(digest.cost_usd or 0.0), digest.id))
    if len(costly) > 1:
        yield Pattern(
            FRUITLESS, "Sessions without a commit, a passing test or an edit that stayed",
            "other", 1.0, _conversation_ids(costly), None, "cost", f"{format_spent(costly)} USD", len(costly),
            tuple(
                PatternEvidence(digest.id, f"{format_spent([digest])} USD: {digest.title}")
                for digest in costly[:EVIDENCE_MAX]
            ),
        )  # fmt: skip


def _has_outcome(digest: ConversationDigest) -> bool:
    reverted = sum(mark.kind == "reverted file" for mark in digest.frictions)
    reached = any(mark.kind != "tests failed" for mark in digest.outcomes)
    return reached or digest.edits > reverted


def _repetition_pattern(kind: str, words: str, repeated: Repetition) -> Pattern:
    conversations = pluralize(len(repeated.conversations), "conversation")
    return Pattern(
        _pattern_id(kind, " ".join(sorted(set(content_words(repeated.text)))) or repeated.text),
        repeated.text, "behavioral",
        _confidence_of(len(repeated.conversations), 1), repeated.conversations, None, f"{kind} again",
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
    whole = format_spent(digests)
    top = turns[:TOP_PROMPTS]
    part = sum(mark.amount for mark, _ in top)
    asked = [digest for _, digest in top]
    yield Pattern(
        "cost-turns", f"{pluralize(len(top), 'prompt')} cost {part / total:.0%} of {whole} USD", "other", 1.0,
        _conversation_ids(asked), None, "cost", f"{format_part(part, asked)} USD", len(top),
        tuple(
            PatternEvidence(mark.address, f"{format_part(mark.amount, [digest])} USD: {mark.text}")
            for mark, digest in top
        ),
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
        "cost-models", f"{model or 'unknown model'}: {format_part(micro / 1e6, members)} of {whole} USD", "other", 1.0,
        _conversation_ids(members), None, "cost", pluralize(len(members), "session"), len(members),
        tuple(PatternEvidence(digest.id, digest.title) for digest in members[:EVIDENCE_MAX]),
    )  # fmt: skip


def _working_turns(digests: Sequence[ConversationDigest]) -> list[tuple[ConversationDigest, str]]:
    """Return the turns that led to a commit or passing tests without any friction."""
    good: list[tuple[ConversationDigest, str]] = []
    for digest in digests:
        if not digest.prompts:  # a loop's session
            continue
        bad = {_turn_address(mark.address) for mark in digest.frictions}
        reached = {
            _turn_address(mark.address) for mark in digest.outcomes if mark.kind != "tests failed"
        }
        good += [(digest, turn) for turn in sorted(reached - bad)]
    return good


def _working_prompts(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Find prompts that led to a commit or passing tests without any friction."""
    good = _working_turns(digests)
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


def _prompt_pairs(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Find corrected prompts for which a similar prompt worked at once."""
    texts = {prompt.address: prompt.text for digest in digests for prompt in digest.prompts}
    corrected = {
        prompt.address: digest
        for digest in digests
        for prompt, later in pairwise(digest.prompts)
        if later.address in {mark.address for mark in digest.corrections}
    }
    words: dict[str, frozenset[str]] = {}
    working: dict[str, list[str]] = defaultdict(list)
    for _, turn in _working_turns(digests):
        if turn in texts and turn not in corrected:
            words[turn] = frozenset(content_words(texts[turn]))
            for word in words[turn]:
                working[word].append(turn)
    evidence: list[PatternEvidence] = []
    members: list[ConversationDigest] = []
    for address, digest in corrected.items() if working else ():
        asked = frozenset(content_words(texts[address]))
        turns = (working.get(word, []) for word in asked)
        near = Counter(turn for own in turns if len(own) <= PAIR_WORD_PROMPTS_MAX for turn in own)
        turn, shared = max(near.items(), key=lambda pair: (pair[1], pair[0]), default=("", 0))
        if shared >= PAIR_WORDS_MIN and word_overlap(asked, words[turn]) >= PAIR_OVERLAP:
            evidence += [
                PatternEvidence(turn, f"worked: {texts[turn]}"),
                PatternEvidence(address, f"corrected: {texts[address]}"),
            ]
            members.append(digest)
    if len(members) > 1:
        yield Pattern(
            "prompt-pairs", f"{len(members)} prompts that you had to correct are like one that worked at once",
            "behavioral", _confidence_of(len(members), 1), _conversation_ids(members), None,
            "prompt comparison", "each pair: the prompt that worked, then the corrected one",
            len(members), tuple(evidence[:EVIDENCE_MAX]),
        )  # fmt: skip


def _first_edits(digests: Sequence[ConversationDigest]) -> Iterator[Pattern]:
    """Compare the time to the first edit with and without a file name in the first prompt."""
    timed = [digest for digest in digests if digest.first_edit_ms is not None and digest.prompts]
    named = [digest for digest in timed if _FILE_NAME.search(digest.prompts[0].text)]
    unnamed = [digest for digest in timed if not _FILE_NAME.search(digest.prompts[0].text)]
    if min(len(named), len(unnamed)) < SAMPLES_MIN:
        return
    with_name, without_name = (
        _median_minutes([digest.first_edit_ms or 0 for digest in group])
        for group in (named, unnamed)
    )
    if with_name[2] >= without_name[1]:  # the intervals overlap, or names are no help
        return
    medians = [
        f"{mid:.1f} min (95 %: {low:.1f} to {high:.1f})"
        for mid, low, high in (with_name, without_name)
    ]
    slow = sorted(unnamed, key=lambda digest: (-(digest.first_edit_ms or 0), digest.id))
    yield Pattern(
        "first-edit", "Prompts that name a file reach the first edit sooner", "behavioral", 0.95,
        _conversation_ids(slow), None, "prompt comparison",
        f"median {medians[0]} in {len(named)} sessions with a name, {medians[1]} in {len(unnamed)} without",
        len(unnamed),
        tuple(PatternEvidence(digest.prompts[0].address, digest.prompts[0].text) for digest in slow[:EVIDENCE_MAX]),
    )  # fmt: skip


def _median_minutes(times_ms: Sequence[int]) -> tuple[float, float, float]:
    """Return the median of times with its 95 % interval, by order statistics."""
    ordered = sorted(ms / 60_000 for ms in times_ms)
    half = 0.98 * sqrt(len(ordered))  # 1.96 standard deviations of a count of halves
    low = max(floor(len(ordered) / 2 - half), 0)
    high = min(ceil(len(ordered) / 2 + half), len(ordered) - 1)
    return median(ordered), ordered[low], ordered[high]


def _turn_address(address: str) -> str:
    return address.rpartition(".")[0] if "." in address.rpartition("#")[2] else address


def _confidence_of(count: int, expected: float) -> float:
    """Return how sure a finding is: higher the more its count exceeds chance, below 1."""
    return round(min(0.99, count / (count + max(expected, 0.5))), 3)


def _conversation_ids(digests: Sequence[ConversationDigest]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(digest.id for digest in digests))


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
