"""Topics: clusters of conversations about the same subject, with a label and typical members.

A sample of the conversations decides how many topics there are, every other conversation joins the
nearest; the same input gives the same topics. Importing this module loads scikit-learn, which takes
2 s.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from flightlog.retro.analysis.digests import TOPIC_CONVERSATIONS_MIN, ConversationDigest
from flightlog.retro.analysis.similarity import content_words, words_by_stem

SAMPLE_MAX = 1500  # conversations clustered pairwise: the distance matrix grows with the square
LEARN_MAX = 8000  # conversations that the vector space is learned from
MEMBERS_MIN = 2  # a single conversation is no topic
WORDS_MAX = 160  # words per conversation; its beginning tells the topic
_DIMENSIONS = 48  # of the reduced vectors
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
) -> tuple[list[int], Any, Any, Any] | None:
    """Return the indexes of non-empty conversations, their vectors, weights, and all words."""
    vectorizer = TfidfVectorizer(
        analyzer=words_of, sublinear_tf=True, min_df=2, max_df=max(0.4, 3 / len(digests)), max_features=20_000,
        dtype=np.float32,
    )  # fmt: skip
    try:
        weights = vectorizer.fit_transform(digests)
    except ValueError:  # no word occurs twice
        return None
    rows = np.flatnonzero(np.diff(weights.indptr)).tolist()
    weights = weights if len(rows) == len(digests) else weights[rows]
    size = min(_DIMENSIONS, weights.shape[1] - 1, weights.shape[0] - 1)
    if size < 2 or len(rows) < TOPIC_CONVERSATIONS_MIN:
        return None
    sample = _sample_indexes([digests[index].id for index in rows], LEARN_MAX)
    reduced = TruncatedSVD(size, random_state=0).fit(weights[sample]).transform(weights)
    return rows, normalize(reduced, copy=False), weights, vectorizer.get_feature_names_out()


def _sample_indexes(ids: Sequence[str], count: int) -> list[int]:
    """Choose `count` indexes evenly by the hash of their id, whatever their order."""
    order = sorted(range(len(ids)), key=lambda index: hashlib.sha256(ids[index].encode()).digest())
    return sorted(order[:count])


def _cluster_vectors(vectors: Any, ids: list[str]) -> Any:
    """Cluster a sample, cut the tree at the best score, and let the rest join."""
    sample = _sample_indexes(ids, SAMPLE_MAX)
    distances = np.clip(pdist(vectors[sample], "cosine"), 0, 2)
    tree = linkage(distances, "average")
    square = squareform(distances)
    best, labels = -2.0, None
    for cut in _CUTS:
        candidate = fcluster(tree, cut, "distance")
        score = _separation_score(square, candidate)
        if score > best:
            best, labels = score, candidate
    assert labels is not None
    centers = np.stack(
        [vectors[sample][labels == label].mean(axis=0) for label in np.unique(labels)]
    )
    centers /= np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), 1e-9)
    joined = np.empty(len(vectors), np.int64)
    for start in range(0, len(vectors), _BLOCK):
        similarity = vectors[start : start + _BLOCK] @ centers.T
        joined[start : start + _BLOCK] = np.where(
            similarity.max(axis=1) < _JOIN, -1, similarity.argmax(axis=1)
        )
    joined[sample] = np.searchsorted(np.unique(labels), labels)
    return joined


def _separation_score(square: Any, labels: Any) -> float:
    """Return the silhouette score, reduced by the share of single-member clusters."""
    names, sizes = np.unique(labels, return_counts=True)
    if not 2 <= len(names) < len(labels):
        return -1.0
    singles = float((sizes < MEMBERS_MIN).sum()) / len(labels)
    return float(silhouette_score(square, labels, metric="precomputed")) - singles


def _build_topics(
    labels: Any, indexes: list[int], vectors: Any, weights: Any, names: Any
) -> list[Topic]:
    overall = np.asarray(weights.mean(axis=0)).ravel()
    topics = []
    for label in sorted(set(labels.tolist()) - {-1}):
        rows = np.flatnonzero(labels == label)
        if len(rows) < MEMBERS_MIN:
            continue
        mean = np.asarray(weights[rows].mean(axis=0)).ravel()
        difference = mean - overall
        words = [
            str(names[position])
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
