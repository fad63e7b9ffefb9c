"""Topics come from numpy alone; each step agrees with the one of scikit-learn or scipy."""

import random
import warnings

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score, silhouette_score

from flightlog.retro.analysis.topics import (
    cut_tree,
    find_components,
    link_average,
    mean_silhouette,
    weigh_words,
)
from support.fresh import seeds

SEEDS = seeds(3)


def texts(seed, subjects=6, each=40):
    """Texts of a few subjects: words of the subject, and words that all share."""
    draw = random.Random(seed)
    shared = [f"all{number}" for number in range(60)]
    made = []
    for subject in range(subjects):
        own = [f"s{subject}w{number}" for number in range(40)]
        made += [draw.choices(own, k=20) + draw.choices(shared, k=15) for _ in range(each)]
    return [*made, [], ["once", "only"]]


def points(seed, count=200):
    """Points in clumps, as cosine distances; some of them occur twice."""
    draw = np.random.default_rng(seed)
    centers = draw.standard_normal((7, 10))
    made = centers[draw.integers(0, 7, count)] + 0.4 * draw.standard_normal((count, 10))
    made[1] = made[0]
    return np.clip(pdist(made, "cosine"), 0, 2)


def dense(weights):
    matrix = np.zeros((len(weights.starts) - 1, weights.width))
    rows = np.repeat(np.arange(len(matrix)), np.diff(weights.starts))
    matrix[rows, weights.columns] = weights.values
    return matrix


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_are_those_of_scikit_learn(seed):
    made = texts(seed)
    vectorizer = TfidfVectorizer(analyzer=list, sublinear_tf=True, min_df=2, max_df=0.4)
    expected = vectorizer.fit_transform(made).toarray()

    weights, names = weigh_words(made)

    assert names == vectorizer.get_feature_names_out().tolist()
    assert np.allclose(dense(weights), expected, atol=1e-5)
    assert np.allclose(dense(weights.transpose_rows()), expected.T, atol=1e-5)
    assert np.allclose(dense(weights.take_rows([5, 240, 3])), expected[[5, 240, 3]], atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_components_span_the_space_of_scikit_learn(seed):
    weights, _ = weigh_words(texts(seed))
    expected = TruncatedSVD(5, random_state=0).fit(dense(weights)).components_

    found = find_components(weights, 5)

    angles = np.linalg.svd(expected @ found, compute_uv=False)
    assert angles.min() > 0.999


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_clusters_are_those_of_scipy(seed, cut):
    distances = points(seed)
    expected = fcluster(linkage(distances, "average"), cut, "distance")

    merges = link_average(squareform(distances))

    heights = sorted(height for _, _, height in merges)
    assert np.allclose(heights, linkage(distances, "average")[:, 2])
    assert adjusted_rand_score(expected, cut_tree(merges, cut)) == 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_silhouette_is_that_of_scikit_learn(seed):
    square = squareform(points(seed))
    labels = cut_tree(link_average(square), 0.5)

    expected = silhouette_score(square, labels, metric="precomputed")

    assert mean_silhouette(square, labels) == pytest.approx(expected)


def test_texts_without_a_common_word_have_no_weights():
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        weights, names = weigh_words([["a"], ["b", "b"], []])

    assert (names, weights.width, weights.starts.tolist()) == ([], 0, [0, 0, 0, 0])
