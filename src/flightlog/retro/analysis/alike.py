"""Which short texts say the same: groups by the words they share, found without comparing all pairs.

Exact for the measure it uses (shared words over all words): two sets that overlap enough must share
one of their rarest words, so only those are looked up.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

POSTINGS_MAX = 400


def groups(texts: Sequence[frozenset[str]], threshold: float, least_words: int = 2) -> list[list[int]]:
    """Return groups of two and more texts whose words overlap by `threshold`, in order of their first."""
    counts = Counter(word for words in texts for word in words)
    rank = {word: place for place, (_, word) in enumerate(sorted((count, word) for word, count in counts.items()))}
    postings: dict[int, list[int]] = defaultdict(list)
    parent = list(range(len(texts)))
    for number, words in enumerate(texts):
        if len(words) < least_words:
            continue
        ordered = sorted(rank[word] for word in words)
        prefix = ordered[: len(ordered) - math.ceil(threshold * len(ordered)) + 1]
        for other in {each for place in prefix for each in postings[place][-POSTINGS_MAX:]}:
            if _root(parent, other) != _root(parent, number) and overlap(words, texts[other]) >= threshold:
                parent[_root(parent, number)] = _root(parent, other)
        for place in prefix:
            postings[place].append(number)
    found: dict[int, list[int]] = defaultdict(list)
    for number in range(len(texts)):
        found[_root(parent, number)].append(number)
    return [group for _, group in sorted(found.items(), key=lambda pair: pair[1][0]) if len(group) > 1]


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared words over all words."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number
