"""MinHash groups, repeated questions and failures.

Texts that share enough words almost surely share some of their least hashes (three in a row, one row of
twenty); only those are compared, so the work follows the number of texts. The hashes are fixed: the same
texts give the same groups. numpy is imported when there is something to compare.
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

BANDS, ROWS = 20, 3
BUCKET_MAX = 40
_COMMON_MIN, _COMMON_PART = 50, 0.01
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?", re.UNICODE)
_TAGS = re.compile(r"<[a-z]+:[\w.-]+:[0-9a-f]{6}>")
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
QUESTION_OVERLAP = 0.6
QUESTION_WORDS_MIN = 3
FAILURES_MIN = 2


def group_similar(texts: Iterable[Iterable[str]], threshold: float, least_words: int = 2) -> list[list[int]]:
    """Return groups of two and more texts whose words overlap by `threshold`, in order of their first."""
    import numpy as np  # noqa: PLC0415 - a tenth of a second, and not every command compares

    names: dict[str, int] = {}
    told = [array("i", sorted({names.setdefault(word, len(names)) for word in words})) for words in texts]
    numbers = [number for number, words in enumerate(told) if len(words) >= least_words]
    flat = np.fromiter((word for number in numbers for word in told[number]), np.int32)
    counts = np.bincount(flat, minlength=len(names) + 1)
    weights = np.log(1 + len(told) / np.maximum(counts, 1))
    parent = list(range(len(told)))
    starts = np.cumsum([0, *(len(told[number]) for number in numbers)])
    for one, other in _candidate_pairs(flat, starts, weights, counts, threshold) if numbers else ():
        left, right = numbers[one], numbers[other]
        if _find_root(parent, left) != _find_root(parent, right) and _are_similar(
            told[left], told[right], weights, threshold
        ):
            first, second = sorted((_find_root(parent, left), _find_root(parent, right)))
            parent[second] = first
    found: dict[int, list[int]] = defaultdict(list)
    for number in range(len(told)):
        found[_find_root(parent, number)].append(number)
    return [group for _, group in sorted(found.items(), key=lambda pair: pair[1][0]) if len(group) > 1]


def word_overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared words over all words."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def _candidate_pairs(flat: Any, starts: Any, weights: Any, counts: Any, threshold: float) -> Iterable[tuple[int, int]]:
    """Yield pairs worth comparing: texts that fall into one bucket, each with the few before it."""
    import numpy as np  # noqa: PLC0415 - as above

    dice = np.random.default_rng(20)
    common = max(_COMMON_MIN, math.ceil(_COMMON_PART * (len(starts) - 1)))
    sizes, totals = np.diff(starts), np.add.reduceat(weights[flat], starts[:-1])
    for _ in range(BANDS):
        key = np.zeros(len(sizes), np.uint64)
        for _ in range(ROWS):
            hashes = dice.integers(0, 2**63, size=len(counts), dtype=np.uint64)
            # Words that stand in very many texts tell nothing apart: they come last in every order.
            hashes[counts > common] |= np.uint64(2**63)
            key = key * np.uint64(0x9E3779B97F4A7C15) + np.minimum.reduceat(hashes[flat], starts[:-1])
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        for apart in range(1, BUCKET_MAX + 1):
            place = np.flatnonzero(ordered[apart:] == ordered[:-apart])
            if not len(place):
                break
            one, other = order[place + apart], order[place]
            # A text much longer than another cannot share enough with it.
            near = _is_within(sizes[one], sizes[other], threshold) & _is_within(totals[one], totals[other], threshold)
            yield from zip(one[near].tolist(), other[near].tolist(), strict=True)


def _is_within(one: Any, other: Any, threshold: float) -> Any:
    return (one >= threshold * other) & (other >= threshold * one)


def _are_similar(one: "array[int]", other: "array[int]", weights: Any, threshold: float) -> bool:
    """Whether two texts share enough words, both by number and with rare ones counting more.

    A name tells two questions apart, a phrase does not.
    """
    shared = set(one) & set(other)
    if len(shared) < threshold * (len(one) + len(other) - len(shared)):
        return False
    common = weights[list(shared)].sum()
    return bool(common >= threshold * (weights[list(one)].sum() + weights[list(other)].sum() - common))


def _find_root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def content_words(text: str) -> list[str]:
    """Return the telling words of `text` in order."""
    return [telling for word in _WORD.findall(_TAGS.sub(" ", text.lower())) if (telling := _distinctive_stem(word))]


def words_by_stem(text: str) -> dict[str, str]:
    """Return the telling words of `text` by their stem, as they were written."""
    found = (word.replace("\u2019", "").replace("'", "") for word in _WORD.findall(text.lower()))
    return {stem_word(word): word for word in found}


@lru_cache(maxsize=100_000)
def _distinctive_stem(word: str) -> str:
    """Return the stem of a word, or nothing when it tells nothing; most words are met again and again."""
    plain = word.replace("\u2019", "").replace("'", "")
    return "" if plain in _FILLERS or (len(plain) == 1 and plain.isascii()) else stem_word(plain)


def stem_word(word: str) -> str:
    """Return `word` without its commonest endings; only ever compared with others done alike."""
    if not word.isascii() or len(word) < 5:
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] else root.removesuffix("e")
    return word.removesuffix("e")


class Repetition(Struct, frozen=True):
    """What was said or met again: the places, and the conversations they are in."""

    text: str
    places: tuple[DigestPrompt | DigestMark, ...]
    conversations: tuple[str, ...]


def repeated_questions(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return questions asked in more than one conversation, commonest first."""
    asked = [(digest.id, prompt) for digest in digests for prompt in digest.prompts]
    found = []
    for group in group_similar(
        (content_words(prompt.text) for _, prompt in asked), QUESTION_OVERLAP, QUESTION_WORDS_MIN
    ):
        where = tuple(dict.fromkeys(asked[number][0] for number in group))
        if len(where) > 1:
            places = tuple(asked[number][1] for number in group)
            found.append(
                Repetition(min((place.text for place in places), key=lambda text: (len(text), text)), places, where)
            )
    return sorted(found, key=lambda each: (-len(each.places), each.text))


def repeated_failures(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return failures met in more than one session, commonest first; told by their signature."""
    met: dict[str, list[tuple[str, DigestMark]]] = defaultdict(list)
    for digest in digests:
        for mark in digest.failures:
            met[mark.key].append((digest.id, mark))
    found = []
    for key, seen in met.items():
        where = tuple(dict.fromkeys(name for name, _ in seen))
        if len(where) >= FAILURES_MIN:
            found.append(Repetition(key, tuple(mark for _, mark in seen), where))
    return sorted(found, key=lambda each: (-len(each.places), each.text))
