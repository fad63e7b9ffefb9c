"""The interval of a share, for statements about counts."""

from math import sqrt
from statistics import NormalDist


def wilson_bounds(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval, with continuity correction, of the share `hits` of `n`."""
    assert 0 <= hits <= n, "a part is at most the whole"
    assert n > 0, "nothing can be said of no samples"
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, square = hits / n, z * z
    middle, scale = 2 * hits + square, 2 * (n + square)
    low = middle - 1 - z * sqrt(square - 2 - 1 / n + 4 * share * (n * (1 - share) + 1))
    high = middle + 1 + z * sqrt(square + 2 - 1 / n + 4 * share * (n * (1 - share) - 1))
    return (
        0.0 if hits == 0 else max(low / scale, 0.0),
        1.0 if hits == n else min(high / scale, 1.0),
    )
