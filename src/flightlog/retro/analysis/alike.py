"""Which short texts say the same: groups by the words they share, found without comparing all pairs.

Texts that share enough words almost surely share some of their least hashes (three in a row, one row of
twenty); only those are compared, so the work follows the number of texts. The hashes are fixed: the same
texts give the same groups. numpy is imported when there is something to compare.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

BANDS, ROWS = 20, 3
BUCKET_MAX = 40
_COMMON_MIN, _COMMON_PART = 50, 0.01


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
