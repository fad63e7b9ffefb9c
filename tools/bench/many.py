"""Ten thousand sessions, and two long ones: the ground the pages are measured on.

Most sessions are short, as most real ones are; the long ones say less in each step, so that
50,000 steps are no larger than the disk of a laptop wants.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.bench.corpus import BEGIN_MS, SPREAD_MS
from tools.bench.transcript import Session
from tools.bench.words import Words

VERSION = 1
LONG = {"long": 5_000, "longest": 50_000}
LONG_SCALE = 0.15
MEAN_BYTES_LOG = 9.9


class Many(NamedTuple):
    """What was made: how many sessions, how many bytes, and the names of the long ones."""

    sessions: int
    size: int
    long: str
    longest: str


def generate(root: Path, sessions: int, seed: int = 3) -> Many:
    """Write `sessions` sessions below `root/projects`, the long ones last and therefore newest."""
    draw = random.Random(f"many:{seed}")
    words = Words(seed)
    size = 0
    for number in range(sessions - len(LONG)):
        maker = Session(words, draw, _name(draw), BEGIN_MS + SPREAD_MS * number // sessions)
        size += _write(root, maker, _short(maker, int(draw.lognormvariate(MEAN_BYTES_LOG, 0.9))))
    names = []
    for steps in LONG.values():
        maker = Session(words, draw, _name(draw), BEGIN_MS + SPREAD_MS)
        maker.scale = LONG_SCALE
        size += _write(root, maker, _long(maker, steps))
        names.append(maker.session)
    return Many(sessions, size, *names)


def _short(maker: Session, budget: int) -> Iterator[str]:
    written = 0
    while written < budget:
        for line in maker.turn():
            written += len(line) + 1
            yield line


def _long(maker: Session, steps: int) -> Iterator[str]:
    while len(maker.truths) < steps:
        yield from maker.turn()


def _write(root: Path, maker: Session, lines: Iterator[str]) -> int:
    folder = root / "projects" / maker.cwd.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{maker.session}.jsonl").open("w", encoding="utf-8") as out:
        return sum(out.write(line + "\n") for line in lines)


def _name(draw: random.Random) -> str:
    digits = f"{draw.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
