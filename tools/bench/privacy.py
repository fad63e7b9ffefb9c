"""How fast transcripts are redacted, all rules, one core: MB/s beside a plain search in the same run."""

import json
import random
import sys
import time
import uuid
from pathlib import Path

import re2
from tools.bench.token_examples import make_examples

from flightlog.privacy.detect.rules import load_rules
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor

_ROOT = Path(__file__).parents[2]
_RECORDINGS = _ROOT / "tests" / "recordings" / "claude-code"
sys.path.insert(0, str(_ROOT / "tests" / "privacy"))
import hostile  # type: ignore[import-not-found]  # noqa: E402 - the texts of the tests

_WORDS = (
    "the",
    "parser",
    "reads",
    "each",
    "line",
    "and",
    "returns",
    "value",
    "error",
    "when",
    "input",
    "ends",
    "early",
    "tests",
)


def corpus(megabytes: int, seed: int = 1) -> list[bytes]:
    """Make the lines of a transcript: prose, code, tool results, usage; a secret in every five-hundredth record."""
    chance = random.Random(seed)
    examples = [text for rule in load_rules()[::7] for text in make_examples(rule)]
    lines: list[bytes] = []
    size = 0
    while size < megabytes * 1_000_000:
        text = _text(chance)
        if chance.random() < 0.002:
            text += "\n" + chance.choice(examples)
        lines.append(json.dumps(_record(chance, text)).encode())
        size += len(lines[-1]) + 1
    return lines


def rate(lines: list[bytes]) -> float:
    """Return MB/s of processor time for redacting `lines`."""
    records = JsonRedactor(Redactor(bytes(32)))
    list(records.redact_lines(lines[:50]))
    began = time.process_time()
    for _ in records.redact_lines(lines):
        pass
    return sum(map(len, lines)) / (time.process_time() - began) / 1e6


def rate_twice(lines: list[bytes]) -> float:
    """Return MB/s of processor time for collecting the values of `lines` and redacting them."""
    records = JsonRedactor(Redactor(bytes(32)))
    list(records.redact_lines(lines[:50]))
    began = time.process_time()
    records.collect_values(lines)
    for _ in records.redact_lines(lines):
        pass
    return sum(map(len, lines)) / (time.process_time() - began) / 1e6


def read_recorded_lines(megabytes: int) -> list[bytes]:
    """Return lines as the client wrote them, again and again up to so many megabytes."""
    files = sorted(_RECORDINGS.rglob("*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return lines * (megabytes * 1_000_000 // sum(map(len, lines)) + 1)


def seconds(text: str) -> float:
    """Return the processor time for redacting `text`, as text or inside a line of JSON, whichever takes longer.

    The line is as long as the text: where JSON escapes much of it, less of it is written there.
    """
    line = json.dumps({"text": text}).encode()
    if len(line) > len(text) * 1.1:
        line = json.dumps({"text": text[: len(text) * len(text) // len(line)]}).encode()
    began = time.process_time()
    Redactor(bytes(32)).redact_string(text)
    between = time.process_time()
    list(JsonRedactor(Redactor(bytes(32))).redact_lines([line]))
    return max(between - began, time.process_time() - between)


def main() -> None:
    """Print the rate, and that of one search for a literal alternation over the same bytes."""
    lines = corpus(16)
    data = b"\n".join(lines)
    floor = re2.compile(b"AKIA[A-Z0-9]{16}|ghp_[A-Za-z0-9]{36}|xoxb-[0-9]{10}")
    began = time.process_time()
    sum(1 for _ in floor.finditer(data))
    plain = len(data) / (time.process_time() - began) / 1e6
    print(
        f"privacy redact --jsonl, lines of the client\t{rate(read_recorded_lines(16)):.0f} MB/s\t(bar 50)"
    )
    print(
        f"privacy redact --jsonl FILE, read twice\t{rate_twice(read_recorded_lines(16)):.0f} MB/s\t(bar 50)"
    )
    for name, text in hostile.families(1_000_000):
        print(f"privacy redact, 1 MB of {name}\t{seconds(text):.2f} s\t(bar 1)")
    print(
        f"privacy redact --jsonl\t{rate(lines):.0f} MB/s\t(bar 50; three rules alone in re2: {plain:.0f} MB/s)"
    )


def _record(chance: random.Random, text: str) -> dict[str, object]:
    usage = {
        "input_tokens": chance.randrange(9000),
        "cache_read_input_tokens": chance.randrange(90000),
        "output_tokens": 7,
    }
    message = {
        "id": f"msg_{chance.getrandbits(80):x}",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
    }
    ids = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(3)]
    place = {
        "cwd": "/home/dev/project",
        "gitBranch": "main",
        "version": "2.1.325",
        "timestamp": "2026-11-15T08:54:40.123Z",
    }
    return {
        "uuid": ids[0],
        "parentUuid": ids[1],
        "sessionId": ids[2],
        **place,
        "message": {**message, "usage": usage},
    }


def _text(chance: random.Random) -> str:
    rows = []
    for number in range(chance.randrange(5, 60)):
        words = " ".join(chance.choices(_WORDS, k=9))
        code = f"    {chance.choice(_WORDS)}_{chance.choice(_WORDS)} = self.{chance.choice(_WORDS)}({number}, key=None)"
        rows.append(chance.choice((words, code, f"{number:6d}\t{words}", f"+{code}")))
    return "\n".join(rows)


if __name__ == "__main__":
    main()
