"""When enough samples were taken: as soon as every share is known to a given width.

Looking after each sample and stopping when it looks good spoils an ordinary interval. The interval
here is a confidence sequence: it holds at *every* number of samples at once, so it holds at the one
where somebody stops, whatever made them stop. For a true share p, after n samples with s hits,

    M(p) = B(s + 1/2, n - s + 1/2) / B(1/2, 1/2)  /  p^s (1 - p)^(n - s)

is a non-negative martingale that begins at 1 (the likelihood of the samples under a mixture of
shares over that under p); by Ville's inequality it ever reaches 1/a with a chance of at most a. The
interval is every p for which it did not. Its price: about three times the samples a count fixed
beforehand would take to the same width. Pure functions of counts, without numpy.
"""

from collections.abc import Iterable
from math import exp, inf, lgamma, log

_PRIOR = 0.5
_HALVINGS = 60
SAMPLES_MIN = 5


def has_enough_samples(counts: Iterable[int], width: float, confidence: float = 0.95) -> bool:
    """Whether each share of `counts` (how often each action was seen) is known to `width`, with five at least."""
    seen = list(counts)
    n = sum(seen)
    if n < SAMPLES_MIN:
        return False
    # The share nearest to one half is the widest; nothing else needs to be looked at.
    low, high = sequential_interval(min(seen, key=lambda count: abs(2 * count - n)), n, confidence)
    return high - low <= width


def sequential_interval(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Say where the true share lies, however it was decided to stop at `n`."""
    assert 0 <= hits <= n, "a part is at most the whole"
    if n == 0:
        return 0.0, 1.0
    bound = -log(1 - confidence)
    share = hits / n
    low = 0.0 if hits == 0 else _find_bound(hits, n, bound, (0.0, share))
    high = 1.0 if hits == n else _find_bound(hits, n, bound, (1.0, share))
    return low, high


def sequential_p_value(one: tuple[int, int], other: tuple[int, int]) -> float:
    """How well two groups `(hits, n)` agree with one share: a p-value that holds wherever either was stopped.

    The product of two such martingales is one, for each common share; the smallest over all shares is
    at the share of both together.
    """
    hits, n = one[0] + other[0], one[1] + other[1]
    if n == 0:
        return 1.0
    evidence = _log_mixture(*one) + _log_mixture(*other) - _log_likelihood(hits, n, hits / n)
    return min(1.0, exp(-evidence)) if evidence > 0 else 1.0


def _find_bound(hits: int, n: int, bound: float, between: tuple[float, float]) -> float:
    """The share between one outside and one inside the interval where the martingale meets its bound."""
    mixture = _log_mixture(hits, n)
    outside, inside = between
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        if mixture - _log_likelihood(hits, n, middle) >= bound:
            outside = middle
        else:
            inside = middle
    return outside


def _log_mixture(hits: int, n: int) -> float:
    def beta(a: float, b: float) -> float:
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    return beta(hits + _PRIOR, n - hits + _PRIOR) - beta(_PRIOR, _PRIOR)


def _log_likelihood(hits: int, n: int, share: float) -> float:
    def part(count: int, chance: float) -> float:
        return 0.0 if count == 0 else -inf if chance <= 0 else count * log(chance)

    return part(hits, share) + part(n - hits, 1 - share)
