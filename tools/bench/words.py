"""Text that looks like what agents write and read: prose, code, paths and numbers, JSON-escaped.

Made once from a seed; records take slices of it, cut at spaces, so that no escape is split.
"""

import random
import re

_POOL_BYTES = 6 << 20
_VOCABULARY = 24_000
_SYLLABLES = tuple(
    re.findall(
        r"\w+", "ba ce di fo gu la me ni po ru sa te vi wo xa ze lin tor mas ket bran del mor ing"
    )
)
_COMMON = re.findall(
    r"\w+",
    "the a to of and in is it for that file test error function return import class value this with from line not "
    "def self none true false path name data read write run build check fix update config server request response",
)


class Words:
    """A pool of escaped text to cut from."""

    def __init__(self, seed: int) -> None:
        """Fill the pool; the same seed gives the same text."""
        draw = random.Random(f"words:{seed}")
        vocabulary = _COMMON + [_word(draw) for _ in range(_VOCABULARY)]
        weights = [1 / (rank + 4) for rank in range(len(vocabulary))]
        parts: list[str] = []
        size = 0
        while size < _POOL_BYTES:
            piece = " ".join(draw.choices(vocabulary, weights, k=400)) + _garnish(draw)
            parts.append(piece)
            size += len(piece) + 1
        self._pool = " ".join(parts)

    def cut(self, draw: random.Random, length: int) -> str:
        """Return about `length` characters of text, whole words only."""
        pool = self._pool
        if length > len(pool) // 2:
            return " ".join(
                self.cut(draw, len(pool) // 4) for _ in range(length // (len(pool) // 4) + 1)
            )
        at = pool.index(" ", int(draw.random() * (len(pool) - length - 100))) + 1
        return pool[at : pool.index(" ", at + length)]


def _word(draw: random.Random) -> str:
    return "".join(draw.choices(_SYLLABLES, k=draw.choice((2, 2, 3, 3, 4))))


def _garnish(draw: random.Random) -> str:
    """A few words of the kind that occur once: hashes, numbers, paths, line ends, quotes."""
    name = _word(draw)
    return (
        f" \\n\\n```python\\nfrom src.{name} import {_word(draw)}\\n "
        f"{draw.getrandbits(64):x} /srv/app/{name}/{_word(draw)}.py:{draw.randrange(999)} "
        f'\\"{_word(draw)}\\": {draw.randrange(10**6)} \\u00e9t\\u00e9 naïve → \\n'
    )
