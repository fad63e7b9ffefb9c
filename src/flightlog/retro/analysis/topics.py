"""Topics: clusters of conversations about the same subject, with a label and typical members.

A sample of the conversations decides how many topics there are, every other conversation joins the
nearest; the same input gives the same topics. The steps are those of scikit-learn and scipy, with
numpy alone: they would add 200 MB to the installation and 0.7 s to the start. Tests compare both.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from flightlog.retro.analysis.digests import TOPIC_CONVERSATIONS_MIN, ConversationDigest
from flightlog.retro.analysis.similarity import content_words, words_by_stem

SAMPLE_MAX = 1500  # conversations clustered pairwise: the distance matrix grows with the square
LEARN_MAX = 8000  # conversations that the vector space is learned from
MEMBERS_MIN = 2  # a single conversation is no topic
WORDS_MAX = 160  # words per conversation; its beginning tells the topic
_VOCABULARY_MAX = 20_000  # the most frequent words
_COMMON = 0.4  # a word of more than this share of the conversations tells nothing
_DIMENSIONS = 48  # of the reduced vectors
_POWER_STEPS = 5  # of the randomized SVD; scikit-learn's default
# cosine distances tried as the cut of the cluster tree
_CUTS = (0.35, 0.45, 0.55, 0.62, 0.68, 0.74, 0.8, 0.86, 0.92)
_JOIN = 0.25  # cosine similarity below which a conversation joins no topic
_BLOCK = 4096  # rows per matrix product, to bound memory


class Topic(Struct, frozen=True):
    """One cluster: its label, its conversations, and those nearest to its center."""

    label: str
    members: tuple[int, ...]
    typical: tuple[int, ...]
    cohesion: float


def words_of(digest: ConversationDigest) -> list[str]:
    """Return the words that represent a conversation in the clustering."""
    words = content_words(digest.title)
    for prompt in digest.prompts:
        words += content_words(prompt.text)
        if len(words) > WORDS_MAX:
            break
    return words[:WORDS_MAX]


def find_topics(digests: Sequence[ConversationDigest]) -> list[Topic]:
    """Return the topics of these conversations, largest first."""
    vectorized = _vectorize_digests(digests) if len(digests) >= TOPIC_CONVERSATIONS_MIN else None
    if vectorized is None:
        return []
    rows, vectors, weights, names = vectorized
    labels = _cluster_vectors(vectors, [digests[index].id for index in rows])
    return [
        _label_topic(topic, digests)
        for topic in _build_topics(labels, rows, vectors, weights, names)
    ]


def _label_topic(topic: Topic, digests: Sequence[ConversationDigest]) -> Topic:
    """Return `topic` with whole words in place of the stems in its label."""
    words: dict[str, str] = {}
    for index in reversed(topic.typical):
        for prompt in digests[index].prompts:
            words |= words_by_stem(prompt.text)
        words |= words_by_stem(digests[index].title)
    return replace(
        topic, label=", ".join(words.get(stem, stem) for stem in topic.label.split(", "))
    )


def _vectorize_digests(
    digests: Sequence[ConversationDigest],
) -> tuple[list[int], Any, "WordWeights", list[str]] | None:
    """Return the indexes of non-empty conversations, their vectors, weights, and all words."""
    weights, names = weigh_words([words_of(digest) for digest in digests])
    rows = np.flatnonzero(np.diff(weights.starts)).tolist()
    weights = weights.take_rows(rows)
    size = min(_DIMENSIONS, weights.width - 1, len(rows) - 1)
    if size < 2 or len(rows) < TOPIC_CONVERSATIONS_MIN:
        return None
    sample = _sample_indexes([digests[index].id for index in rows], LEARN_MAX)
    reduced = weights.multiply_by(find_components(weights.take_rows(sample), size))
    return rows, _scale_rows(reduced), weights, names


class WordWeights(NamedTuple):
    """A sparse matrix of texts by words: row N is `[starts[N], starts[N + 1])` of the others."""

    starts: Any
    columns: Any
    values: Any
    width: int

    def take_rows(self, rows: list[int]) -> "WordWeights":
        """Return these rows only."""
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        picked = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], lengths)
        return WordWeights(starts, self.columns[picked], self.values[picked], self.width)

    def transpose_rows(self) -> "WordWeights":
        """Return the matrix of words by texts."""
        order = np.argsort(self.columns, kind="stable")
        rows = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        counts = np.bincount(self.columns, minlength=self.width)
        starts = np.concatenate(([0], np.cumsum(counts)))
        return WordWeights(starts, rows[order], self.values[order], len(self.starts) - 1)

    def multiply_by(self, dense: Any) -> Any:
        """Return the product with a dense matrix."""
        product = np.empty((len(self.starts) - 1, dense.shape[1]), np.float32)
        bounds = self.starts.tolist()
        # Row by row, what is multiplied stays in the processor's cache: 10 x as fast as in blocks.
        for row, (start, end) in enumerate(pairwise(bounds)):
            product[row] = self.values[start:end] @ dense[self.columns[start:end]]
        return product

    def mean_row(self, rows: Any = slice(None)) -> Any:
        """Return the mean of all rows, or of these."""
        part = self if isinstance(rows, slice) else self.take_rows(rows)
        return np.bincount(part.columns, part.values, self.width) / (len(part.starts) - 1)


def weigh_words(texts: Sequence[list[str]]) -> tuple[WordWeights, list[str]]:
    """Return the tf-idf weights of `texts`, rows of length 1, and the words of the columns.

    A word counts if it occurs in two texts or more and in at most 40 % of them.
    """
    numbers: dict[str, int] = {}
    starts, columns, counts = [0], array("q"), array("q")
    for text in texts:
        for word, times in Counter(text).items():
            columns.append(numbers.setdefault(word, len(numbers)))
            counts.append(times)
        starts.append(len(columns))
    column, count = np.array(columns, np.int64), np.array(counts, np.float64)
    texts_with = np.bincount(column, minlength=len(numbers))
    is_word = (texts_with >= 2) & (texts_with <= max(_COMMON * len(texts), 3))
    total = np.where(is_word, np.bincount(column, count, len(numbers)), 0)
    if is_word.sum() > _VOCABULARY_MAX:
        is_word[np.argsort(-total, kind="stable")[_VOCABULARY_MAX:]] = False
    names = sorted(word for word, number in numbers.items() if is_word[number])
    place = np.zeros(len(numbers), np.int64)
    place[[numbers[name] for name in names]] = np.arange(len(names))
    rarity = np.log((1 + len(texts)) / (1 + texts_with)) + 1
    keep = is_word[column]
    row = np.repeat(np.arange(len(texts)), np.diff(starts))[keep]
    values = ((1 + np.log(count)) * rarity[column])[keep]
    values /= np.sqrt(np.bincount(row, values**2, len(texts)))[row]
    ends = np.cumsum(np.bincount(row, minlength=len(texts)))
    return WordWeights(
        np.concatenate(([0], ends)), place[column[keep]], values.astype(np.float32), len(names)
    ), names


def find_components(weights: WordWeights, size: int) -> Any:
    """Return the `size` main components, as columns, by a randomized SVD with a fixed seed."""
    across = weights.transpose_rows()
    basis = np.random.default_rng(0).standard_normal((weights.width, size + 10), np.float32)
    for _ in range(_POWER_STEPS):
        basis = _principal_axes(across.multiply_by(_principal_axes(weights.multiply_by(basis))))
    texts = _principal_axes(weights.multiply_by(basis))
    return _principal_axes(across.multiply_by(texts))[:, :size]


def _principal_axes(matrix: Any) -> Any:
    """Return the left singular vectors of a tall matrix, largest first.

    The small matrix of its inner products suffices; a QR of the tall one takes 45 x as long, more
    while other programs use the processors.
    """
    wide = matrix.astype(np.float64)
    values, vectors = np.linalg.eigh(wide.T @ wide)
    scale = np.sqrt(np.maximum(values, values[-1] * 1e-12))
    return (wide @ (vectors / scale)[:, ::-1]).astype(np.float32)


def _scale_rows(matrix: Any) -> Any:
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)


def _sample_indexes(ids: Sequence[str], count: int) -> list[int]:
    """Choose `count` indexes evenly by the hash of their id, whatever their order."""
    order = sorted(range(len(ids)), key=lambda index: hashlib.sha256(ids[index].encode()).digest())
    return sorted(order[:count])


def _cluster_vectors(vectors: Any, ids: list[str]) -> Any:
    """Cluster a sample, cut the tree at the best score, and let the rest join."""
    sample = _sample_indexes(ids, SAMPLE_MAX)
    points = vectors[sample].astype(np.float64)
    distances = np.clip(1 - points @ points.T, 0, 2)
    merges = link_average(distances)
    best, labels = -2.0, None
    for cut in _CUTS:
        candidate = cut_tree(merges, cut)
        score = _separation_score(distances, candidate)
        if score > best:
            best, labels = score, candidate
    assert labels is not None
    centers = np.stack(
        [vectors[sample][labels == label].mean(axis=0) for label in np.unique(labels)]
    )
    centers = _scale_rows(centers)
    joined = np.empty(len(vectors), np.int64)
    for start in range(0, len(vectors), _BLOCK):
        similarity = vectors[start : start + _BLOCK] @ centers.T
        joined[start : start + _BLOCK] = np.where(
            similarity.max(axis=1) < _JOIN, -1, similarity.argmax(axis=1)
        )
    joined[sample] = np.searchsorted(np.unique(labels), labels)
    return joined


def link_average(distances: Any) -> list[tuple[int, int, float]]:
    """Return the merges of average linkage: the cluster that ends, the one that grows, the height.

    A cluster has the number of one of its members. Following nearest neighbors until two are each
    other's nearest finds every merge in quadratic time, though not in the order of heights.
    """
    between = distances + np.diag(np.full(len(distances), np.inf))
    sizes = np.ones(len(between))
    chain: list[int] = []
    merges: list[tuple[int, int, float]] = []
    while len(merges) < len(between) - 1:
        chain = chain or [int(np.argmax(sizes > 0))]
        row = between[chain[-1]]
        nearest = int(row.argmin())
        # Of equally near clusters the one before in the chain is taken; others would never end it.
        if len(chain) < 2 or row[nearest] < row[chain[-2]]:
            chain.append(nearest)
            continue
        ended, grown = chain.pop(), chain.pop()
        merges.append((ended, grown, float(row[grown])))
        sizes_both = sizes[ended] + sizes[grown]
        mean = (sizes[ended] * between[ended] + sizes[grown] * between[grown]) / sizes_both
        between[grown] = between[:, grown] = mean
        between[ended] = between[:, ended] = np.inf
        sizes[grown], sizes[ended] = sizes_both, 0
    return merges


def cut_tree(merges: Sequence[tuple[int, int, float]], cut: float) -> Any:
    """Return the cluster of each point if only merges up to the height `cut` are made."""
    labels = np.arange(len(merges) + 1)
    for ended, grown, height in merges:
        if height <= cut:
            labels[labels == ended] = grown
    return np.unique(labels, return_inverse=True)[1]


def _separation_score(distances: Any, labels: Any) -> float:
    """Return the silhouette score, reduced by the share of single-member clusters."""
    sizes = np.bincount(labels)
    if not 2 <= len(sizes) < len(labels):
        return -1.0
    singles = float((sizes < MEMBERS_MIN).sum()) / len(labels)
    return mean_silhouette(distances, labels) - singles


def mean_silhouette(distances: Any, labels: Any) -> float:
    """Return how much nearer the points are to their own cluster than to the next one, -1 to 1."""
    sizes, points = np.bincount(labels), np.arange(len(labels))
    ordered = distances[:, np.argsort(labels, kind="stable")]
    sums = np.add.reduceat(ordered, np.cumsum(sizes) - sizes, axis=1)
    own = sums[points, labels] / np.maximum(sizes[labels] - 1, 1)
    means = sums / sizes
    means[points, labels] = np.inf
    other = means.min(axis=1)
    scores = (other - own) / np.maximum(np.maximum(own, other), 1e-12)
    return float(np.where(sizes[labels] > 1, scores, 0).mean())


def _build_topics(
    labels: Any, indexes: list[int], vectors: Any, weights: WordWeights, names: list[str]
) -> list[Topic]:
    overall = weights.mean_row()
    topics = []
    for label in sorted(set(labels.tolist()) - {-1}):
        rows = np.flatnonzero(labels == label)
        if len(rows) < MEMBERS_MIN:
            continue
        difference = weights.mean_row(rows) - overall
        words = [
            names[position]
            for position in np.lexsort((np.arange(len(difference)), -difference))[:4]
            if difference[position] > 0
        ]
        center = vectors[rows].mean(axis=0)
        similarity = vectors[rows] @ center / max(float(np.linalg.norm(center)), 1e-9)
        typical = [indexes[rows[position]] for position in np.lexsort((rows, -similarity))[:5]]
        members = tuple(indexes[row] for row in rows)
        topics.append(
            Topic(", ".join(words), members, tuple(typical), round(float(similarity.mean()), 3))
        )
    return sorted(topics, key=lambda topic: (-len(topic.members), topic.label))
