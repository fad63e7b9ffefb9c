"""MinHash groups, repeated questions and repeated failures.

Texts that share enough words almost surely share a band of their smallest hashes (three rows,
twenty bands); only those are compared, so the work grows with the number of texts. The hash seeds
are fixed: the same texts give the same groups. numpy is imported only for a comparison.
"""

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from flightlog.retro.analysis.digests import ConversationDigest, DigestMark, DigestPrompt

BANDS, ROWS = 20, 3  # texts that share 60 % of their words share a band in 99 % of cases
BUCKET_MAX = 40  # neighbors compared per text in a bucket: bounds the pairs for boilerplate texts
# A word in more than 1 % of the texts (and more than 50) does not tell texts apart.
_COMMON_MIN, _COMMON_PART = 50, 0.01
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?", re.UNICODE)
_TAGS = re.compile(r"<[a-z]+:[\w.-]+:[0-9a-f]{6}>")  # redaction placeholders
_FILLERS = frozenset(
    """a about above after again all also am an and another any are as at back be because been before being below
    between both but by can cannot cant could couldnt did didnt do does doesnt doing dont down during each else ever
    every few for from further get gets getting give given go goes going got had has have having he hello help her here
    hers hey hi him his how i id if ill im in into is isnt it its itself ive just know let lets like ll make makes many
    may maybe me might more most much must my need needs new no nor not now of off ok okay on once one only or other our
    out over own please possible quick quickly really remind right same say see shall she should show so some something
    still such sure take tell than thank thanks that thats the their them then there these they thing things think this
    those through to too trying try two under until up us use used using very want wants was wasnt way ways we well were
    what whats when where which while who whom whose why will with within without wont work working would wouldnt yes
    yet you your yours yesterday today tomorrow earlier forgot forget question asked asking ask explain wondering
    question quick""".split()  # noqa: SIM905 - a word list reads better than 200 quoted words
)
_ENDINGS = ("ingly", "edly", "ations", "ation", "ings", "ing", "ies", "ied", "ness", "ment", "ers", "er", "ed", "es",
            "ly", "s")  # fmt: skip
QUESTION_OVERLAP = 0.6  # share of common words from which two questions are the same
QUESTION_WORDS_MIN = 3  # distinctive words; shorter prompts are alike by chance
FAILURES_MIN = 2  # conversations a failure must occur in


def group_similar(
    texts: Iterable[Iterable[str]], threshold: float, least_words: int = 2
) -> list[list[int]]:
    """Return groups of two or more texts that share `threshold` of their words.

    Texts are given by index; groups are ordered by their first text.
    """
    import numpy as np  # noqa: PLC0415 - takes 0.1 s, and most commands compare nothing

    ids: dict[str, int] = {}
    word_ids = [
        array("i", sorted({ids.setdefault(word, len(ids)) for word in words})) for words in texts
    ]
    candidates = [index for index, words in enumerate(word_ids) if len(words) >= least_words]
    flat = np.fromiter((word for index in candidates for word in word_ids[index]), np.int32)
    counts = np.bincount(flat, minlength=len(ids) + 1)
    weights = np.log(1 + len(word_ids) / np.maximum(counts, 1))
    parent = list(range(len(word_ids)))
    starts = np.cumsum([0, *(len(word_ids[index]) for index in candidates)])
    for i, j in _candidate_pairs(flat, starts, weights, counts, threshold) if candidates else ():
        left, right = candidates[i], candidates[j]
        if _find_root(parent, left) != _find_root(parent, right) and _are_similar(
            word_ids[left], word_ids[right], weights, threshold
        ):
            first, second = sorted((_find_root(parent, left), _find_root(parent, right)))
            parent[second] = first
    groups: dict[int, list[int]] = defaultdict(list)
    for index in range(len(word_ids)):
        groups[_find_root(parent, index)].append(index)
    return [
        group for _, group in sorted(groups.items(), key=lambda pair: pair[1][0]) if len(group) > 1
    ]


def word_overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the number of shared words divided by the number of all words."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def _candidate_pairs(
    flat: Any, starts: Any, weights: Any, counts: Any, threshold: float
) -> Iterable[tuple[int, int]]:
    """Yield pairs worth comparing: texts in one bucket, each with the few before it."""
    import numpy as np  # noqa: PLC0415 - as above

    random = np.random.default_rng(20)
    common = max(_COMMON_MIN, math.ceil(_COMMON_PART * (len(starts) - 1)))
    sizes, totals = np.diff(starts), np.add.reduceat(weights[flat], starts[:-1])
    for _ in range(BANDS):
        key = np.zeros(len(sizes), np.uint64)
        for _ in range(ROWS):
            hashes = random.integers(0, 2**63, size=len(counts), dtype=np.uint64)
            # The top bit puts very common words last, so that they decide only texts without others.
            hashes[counts > common] |= np.uint64(2**63)
            key = key * np.uint64(0x9E3779B97F4A7C15) + np.minimum.reduceat(
                hashes[flat], starts[:-1]
            )
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        for distance in range(1, BUCKET_MAX + 1):
            matches = np.flatnonzero(ordered[distance:] == ordered[:-distance])
            if not len(matches):
                break
            one, other = order[matches + distance], order[matches]
            # A text much longer than another cannot share enough with it.
            comparable = _is_within(sizes[one], sizes[other], threshold) & _is_within(
                totals[one], totals[other], threshold
            )
            yield from zip(one[comparable].tolist(), other[comparable].tolist(), strict=True)


def _is_within(one: Any, other: Any, threshold: float) -> Any:
    return (one >= threshold * other) & (other >= threshold * one)


def _are_similar(one: "array[int]", other: "array[int]", weights: Any, threshold: float) -> bool:
    """Return whether two texts share enough words, by number and weighted by rarity.

    The weights make a shared name count more than a shared phrase.
    """
    shared = set(one) & set(other)
    if len(shared) < threshold * (len(one) + len(other) - len(shared)):
        return False
    shared_weight = weights[list(shared)].sum()
    return bool(
        shared_weight
        >= threshold * (weights[list(one)].sum() + weights[list(other)].sum() - shared_weight)
    )


def _find_root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def content_words(text: str) -> list[str]:
    """Return the stems of the distinctive words of `text` in order."""
    return [
        stem
        for word in _WORD.findall(_TAGS.sub(" ", text.lower()))
        if (stem := _distinctive_stem(word))
    ]


def words_by_stem(text: str) -> dict[str, str]:
    """Return the words of `text` as they are spelled, by their stem."""
    words = (word.replace("\u2019", "").replace("'", "") for word in _WORD.findall(text.lower()))
    return {stem_word(word): word for word in words}


@lru_cache(maxsize=100_000)
def _distinctive_stem(word: str) -> str:
    """Return the stem of a word, or "" for a filler word. Cached: most words repeat."""
    plain = word.replace("\u2019", "").replace("'", "")
    return "" if plain in _FILLERS or (len(plain) == 1 and plain.isascii()) else stem_word(plain)


def stem_word(word: str) -> str:
    """Return `word` without its most common endings; meant for comparison only."""
    if not word.isascii() or len(word) < 5:
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] else root.removesuffix("e")
    return word.removesuffix("e")


class Repetition(Struct, frozen=True):
    """A question or failure that occurred more than once, with its conversations."""

    text: str
    occurrences: tuple[DigestPrompt | DigestMark, ...]
    conversations: tuple[str, ...]


def repeated_questions(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return questions asked in more than one conversation, most frequent first."""
    prompts = [(digest.id, prompt) for digest in digests for prompt in digest.prompts]
    texts = (content_words(prompt.text) for _, prompt in prompts)
    repetitions = []
    for group in group_similar(texts, QUESTION_OVERLAP, QUESTION_WORDS_MIN):
        conversations = tuple(dict.fromkeys(prompts[index][0] for index in group))
        if len(conversations) > 1:
            repeated = tuple(prompts[index][1] for index in group)
            shortest = min((prompt.text for prompt in repeated), key=lambda text: (len(text), text))
            repetitions.append(Repetition(shortest, repeated, conversations))
    return _most_frequent_first(repetitions)


def repeated_failures(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return failures with one signature in several sessions, most frequent first."""
    failures: dict[str, list[tuple[str, DigestMark]]] = defaultdict(list)
    for digest in digests:
        for mark in digest.failures:
            failures[mark.key].append((digest.id, mark))
    repetitions = []
    for key, occurrences in failures.items():
        conversations = tuple(dict.fromkeys(session for session, _ in occurrences))
        if len(conversations) >= FAILURES_MIN:
            repetitions.append(
                Repetition(key, tuple(mark for _, mark in occurrences), conversations)
            )
    return _most_frequent_first(repetitions)


def _most_frequent_first(repetitions: list[Repetition]) -> list[Repetition]:
    return sorted(
        repetitions, key=lambda repetition: (-len(repetition.occurrences), repetition.text)
    )
