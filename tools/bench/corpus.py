"""A deterministic corpus of Claude Code transcripts, and what they truly used.

The manifest says the tokens by class, day, model and session, so that a report can be checked
to the token. Quirks of real recordings are in: repeated lines, placeholders, replays of other
sessions, side questions, synthetic messages, usage inside tool results, torn last lines.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.bench.transcript import Session, Truth
from tools.bench.words import Words

VERSION = 3
CLASSES = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
)
BEGIN_MS = 1_780_272_000_000  # 2026-06-01T00:00Z
SPREAD_MS = 110 * 86_400_000
FILE_BYTES_MEAN = 1_050_000
FILE_BYTES_MAX = 26_000_000


def generate(root: Path, size: int, seed: int = 1) -> dict[str, object]:
    """Write about `size` bytes of transcripts below `root/projects` and return the manifest."""
    draw = random.Random(f"corpus:{seed}")
    words = Words(seed)
    truths: list[Truth] = []
    written = 0
    earlier: list[str] = []
    while written < size:
        session = _uuid(draw)
        budget = min(
            int(draw.lognormvariate(13.2, 1.1)) + 20_000, FILE_BYTES_MAX, max(size // 4, 30_000)
        )
        maker = Session(words, draw, session, BEGIN_MS + SPREAD_MS * written // size)
        file = root / "projects" / maker.cwd.replace("/", "-") / f"{session}.jsonl"
        lines = list(_thread(maker, budget))
        replay = _replay(draw, earlier, session)
        own = list(maker.truths)
        written += _subagents(file, maker, own)
        ending = [maker.totals(own)] if draw.random() < 0.7 else []
        written += _write(
            file, replay + lines + ending, torn=maker.cut_line() if draw.random() < 0.04 else ""
        )
        truths += own
        earlier = lines[:40] if draw.random() < 0.5 else earlier
    return _save(root, seed, truths)


def grow(root: Path, size: int, seed: int) -> dict[str, object]:
    """Append about `size` bytes to 8 to 10 transcripts and bring the manifest up to date."""
    draw = random.Random(f"grow:{seed}")
    words = Words(seed)
    manifest = json.loads((root / "manifest.json").read_text())
    files = sorted((root / "projects").glob("*/*.jsonl"))
    chosen = draw.sample(files, min(len(files), draw.randint(8, 10)))
    truths: list[Truth] = []
    for file in chosen:
        maker = Session(
            words, draw, file.stem, BEGIN_MS + SPREAD_MS + int(draw.random() * 86_400_000)
        )
        _write(file, list(_thread(maker, size // len(chosen))), torn="")
        truths += maker.truths
    return _save(root, seed, truths, manifest)


def manifest_of(truths: Iterable[Truth]) -> dict[str, object]:
    """Sum up what was really used."""
    responses = list(truths)
    return {
        "responses": len(responses),
        "total": _sum(responses),
        "by_day": _by(responses, "day"),
        "by_model": _by(responses, "model"),
        "by_session": _by(responses, "session"),
    }


def _thread(maker: Session, budget: int) -> Iterator[str]:
    size = 0
    while size < budget:
        for line in maker.turn():
            size += len(line) + 1
            yield line
            if '"type":"assistant"' in line and maker.draw.random() < 0.006:
                yield maker.side_question(line)
        if maker.draw.random() < 0.05:
            yield maker.synthetic()


def _replay(draw: random.Random, earlier: list[str], session: str) -> list[str]:
    """A resumed session begins with lines of the one before, under its own name."""
    if not earlier or draw.random() > 0.12:
        return []
    old = json.loads(earlier[0])["sessionId"]
    return [line.replace(old, session) for line in earlier]


def _subagents(file: Path, maker: Session, truths: list[Truth]) -> int:
    written = 0
    if maker.draw.random() > 0.12:
        return 0
    for _ in range(maker.draw.randint(1, 3)):
        subagent = f"{maker.draw.getrandbits(28):07x}"
        agent = Session(maker.words, maker.draw, maker.session, maker.at_ms, subagent)
        folder = file.with_suffix("") / "subagents"
        written += _write(folder / f"agent-{subagent}.jsonl", list(_thread(agent, 60_000)), torn="")
        truths += agent.truths
    return written


def _write(file: Path, lines: list[str], torn: str) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    body = ("\n".join(lines) + "\n" + torn).encode()
    with file.open("ab") as out:
        if out.tell() and not _ends_whole(file):
            out.write(b"\n")
        out.write(body)
    return len(body)


def _ends_whole(file: Path) -> bool:
    with file.open("rb") as data:
        data.seek(-1, 2)
        return data.read(1) == b"\n"


def _save(
    root: Path, seed: int, truths: list[Truth], before: dict[str, object] | None = None
) -> dict[str, object]:
    manifest = _add_manifests(before or manifest_of([]), manifest_of(truths)) | {"seed": seed}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def _add_manifests(one: object, two: object) -> dict[str, object]:
    """Add two manifests, whatever keys they have."""
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    both: dict[str, object] = {}
    for key in {**one, **two}:
        if key == "seed":
            continue
        if isinstance(one.get(key, two.get(key)), dict):
            both[key] = _add_manifests(one.get(key, {}), two.get(key, {}))
        else:
            both[key] = one.get(key, 0) + two.get(key, 0)
    return both


def _by(truths: list[Truth], field: str) -> dict[str, dict[str, int]]:
    grouped: dict[str, list[Truth]] = {}
    for truth in truths:
        grouped.setdefault(getattr(truth, field), []).append(truth)
    return {key: _sum(group) for key, group in sorted(grouped.items())}


def _sum(truths: list[Truth]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for truth in truths:
        total.update(dict(zip(CLASSES, truth.tokens, strict=True)))
    return {name: total[name] for name in CLASSES}


def _uuid(draw: random.Random) -> str:
    digits = f"{draw.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
