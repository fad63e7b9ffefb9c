"""Topics: conversations that are about the same, as clusters with a label and turns that show it.

scikit-learn is imported when there is something to cluster. A sample of the conversations decides how
many topics there are, every other one joins the nearest; the same input gives the same topics.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analysis.similarity import content_words, words_by_stem

SAMPLE_MAX = 1500
LEARN_MAX = 8000
LEAST = 6
MEMBERS_MIN = 2
WORDS_MAX = 160
_DIMENSIONS = 48
_CUTS = (0.35, 0.45, 0.55, 0.62, 0.68, 0.74, 0.8, 0.86, 0.92)
_JOIN = 0.25
_BLOCK = 4096


class Topic(Struct, frozen=True):
    """One cluster: what it is called, its conversations, and those nearest to its middle."""

    label: str
    members: tuple[int, ...]
    typical: tuple[int, ...]
    cohesion: float


def words_of(digest: ConversationDigest) -> list[str]:
    """Return the words a conversation's topic is told by."""
    words = content_words(digest.title)
    for prompt in digest.prompts:
        words += content_words(prompt.text)
        if len(words) > WORDS_MAX:
            break
    return words[:WORDS_MAX]


def find_topics(digests: Sequence[ConversationDigest]) -> list[Topic]:
    """Return the topics of these conversations, largest first."""
    found = _vectorize_digests(digests) if len(digests) >= LEAST else None
    if found is None:
        return []
    told, vectors, weights, names = found
    labels = _cluster_vectors(vectors, [digests[number].id for number in told])
    return [_label_topic(topic, digests) for topic in _build_topics(labels, told, vectors, weights, names)]


def _label_topic(topic: Topic, digests: Sequence[ConversationDigest]) -> Topic:
    """Write the label in words as they were said, not in stems."""
    said: dict[str, str] = {}
    for number in reversed(topic.typical):
        for prompt in digests[number].prompts:
            said |= words_by_stem(prompt.text)
        said |= words_by_stem(digests[number].title)
    return replace(topic, label=", ".join(said.get(each, each) for each in topic.label.split(", ")))


def _vectorize_digests(digests: Sequence[ConversationDigest]) -> tuple[list[int], Any, Any, Any] | None:
    """Return which conversations say something, each as a short vector and as its words' weights, and the words."""
    import numpy as np  # noqa: PLC0415 - two seconds of imports
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415
    from sklearn.preprocessing import normalize  # noqa: PLC0415

    maker = TfidfVectorizer(
        analyzer=words_of, sublinear_tf=True, min_df=2, max_df=max(0.4, 3 / len(digests)), max_features=20_000,
        dtype=np.float32,
    )  # fmt: skip
    try:
        weights = maker.fit_transform(digests)
    except ValueError:  # no word is said twice
        return None
    told = np.flatnonzero(np.diff(weights.indptr)).tolist()
    weights = weights if len(told) == len(digests) else weights[told]
    size = min(_DIMENSIONS, weights.shape[1] - 1, weights.shape[0] - 1)
    if size < 2 or len(told) < LEAST:
        return None
    sample = _sample_indexes([digests[number].id for number in told], LEARN_MAX)
    reduced = TruncatedSVD(size, random_state=0).fit(weights[sample]).transform(weights)
    return told, normalize(reduced, copy=False), weights, maker.get_feature_names_out()


def _sample_indexes(ids: Sequence[str], most: int) -> list[int]:
    """Choose places evenly but always the same, whatever their order."""
    order = sorted(range(len(ids)), key=lambda number: hashlib.sha256(ids[number].encode()).digest())
    return sorted(order[:most])


def _cluster_vectors(vectors: Any, ids: list[str]) -> Any:
    """Cluster a sample, cut where the clusters stand apart best, and let the rest join."""
    import numpy as np  # noqa: PLC0415 - as above
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415
    from scipy.spatial.distance import pdist, squareform  # noqa: PLC0415

    sample = _sample_indexes(ids, SAMPLE_MAX)
    distances = np.clip(pdist(vectors[sample], "cosine"), 0, 2)
    tree = linkage(distances, "average")
    square = squareform(distances)
    best, labels = -2.0, None
    for cut in _CUTS:
        found = fcluster(tree, cut, "distance")
        score = _separation_score(square, found)
        if score > best:
            best, labels = score, found
    assert labels is not None
    middles = np.stack([vectors[sample][labels == each].mean(axis=0) for each in np.unique(labels)])
    middles /= np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-9)
    joined = np.empty(len(vectors), np.int64)
    for start in range(0, len(vectors), _BLOCK):
        nearness = vectors[start : start + _BLOCK] @ middles.T
        joined[start : start + _BLOCK] = np.where(nearness.max(axis=1) < _JOIN, -1, nearness.argmax(axis=1))
    joined[sample] = np.searchsorted(np.unique(labels), labels)
    return joined


def _separation_score(square: Any, labels: Any) -> float:
    """Say how far the clusters stand apart; many single ones count against it."""
    import numpy as np  # noqa: PLC0415 - as above
    from sklearn.metrics import silhouette_score  # noqa: PLC0415

    names, sizes = np.unique(labels, return_counts=True)
    if not 2 <= len(names) < len(labels):
        return -1.0
    alone = float((sizes < MEMBERS_MIN).sum()) / len(labels)
    return float(silhouette_score(square, labels, metric="precomputed")) - alone


def _build_topics(labels: Any, told: list[int], vectors: Any, weights: Any, names: Any) -> list[Topic]:
    import numpy as np  # noqa: PLC0415 - as above

    overall = np.asarray(weights.mean(axis=0)).ravel()
    found = []
    for each in sorted(set(labels.tolist()) - {-1}):
        rows = np.flatnonzero(labels == each)
        if len(rows) < MEMBERS_MIN:
            continue
        own = np.asarray(weights[rows].mean(axis=0)).ravel()
        apart = own - overall
        words = [str(names[place]) for place in np.lexsort((np.arange(len(apart)), -apart))[:4] if apart[place] > 0]
        middle = vectors[rows].mean(axis=0)
        near = vectors[rows] @ middle / max(float(np.linalg.norm(middle)), 1e-9)
        typical = [told[rows[place]] for place in np.lexsort((rows, -near))[:5]]
        members = tuple(told[row] for row in rows)
        found.append(Topic(", ".join(words), members, tuple(typical), round(float(near.mean()), 3)))
    return sorted(found, key=lambda topic: (-len(topic.members), topic.label))
