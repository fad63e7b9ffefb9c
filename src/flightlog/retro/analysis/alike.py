"""Which short texts say the same: groups by the words they share, found without comparing all pairs.

Exact for the measure it uses (shared words over all words) but for words that stand in very many
texts: two sets that overlap enough must share some of their rarest words, so only those are looked up.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

POSTINGS_MAX = 100


def groups(texts: Sequence[frozenset[str]], threshold: float, least_words: int = 2) -> list[list[int]]:
    """Return groups of two and more texts whose words overlap by `threshold`, in order of their first."""
    counts = Counter(word for words in texts for word in words)
    rank = {word: place for place, (_, word) in enumerate(sorted((count, word) for word, count in counts.items()))}
    weights = {word: math.log(1 + len(texts) / count) for word, count in counts.items()}
    postings: dict[int, list[int]] = defaultdict(list)
    parent = list(range(len(texts)))
    for number, words in enumerate(texts):
        if len(words) < least_words:
            continue
        ordered = sorted(rank[word] for word in words)
        needed = _needed(len(words))
        prefix = ordered[: len(ordered) - math.ceil(threshold * len(ordered)) + needed]
        met = Counter(each for place in prefix for each in postings[place][-POSTINGS_MAX:])
        for other, shared in met.items():
            if shared < min(needed, _needed(len(texts[other]))) or _root(parent, other) == _root(parent, number):
                continue
            if overlap(words, texts[other]) >= threshold and _weighed(words, texts[other], weights) >= threshold:
                parent[_root(parent, number)] = _root(parent, other)
        for place in prefix:
            postings[place].append(number)
    found: dict[int, list[int]] = defaultdict(list)
    for number in range(len(texts)):
        found[_root(parent, number)].append(number)
    return [group for _, group in sorted(found.items(), key=lambda pair: pair[1][0]) if len(group) > 1]


def _weighed(one: frozenset[str], other: frozenset[str], weights: dict[str, float]) -> float:
    """Shared words over all words, rare ones counting more: a name tells two questions apart, a phrase does not."""
    shared = sum(weights[word] for word in one & other)
    return shared / sum(weights[word] for word in one | other)


def _needed(size: int) -> int:
    """How many of its rarest words a text must share; long ones more, so that few pairs are compared."""
    return 1 if size < 6 else 2 if size < 12 else 3


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared words over all words."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number
