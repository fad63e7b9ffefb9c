"""Homes of Codex made of recorded cases, and what the model sent in them."""

import json
import shutil
from datetime import UTC
from pathlib import Path

from flightlog.archive.archive import Archive
from flightlog.model.usage import Breakdown, Usage
from support.scripted_apis.openai_responses import decode_usage

RECORDINGS = Path(__file__).parents[1] / "recordings" / "codex"
CASES = sorted(str(path.parent.relative_to(RECORDINGS)) for path in RECORDINGS.rglob("wire.jsonl"))


def home_of(where, *cases):
    for case in cases:
        shutil.copytree(RECORDINGS / case / "session", where, dirs_exist_ok=True)
    return where


def wire_usage(case):
    lines = (RECORDINGS / case / "wire.jsonl").read_text().splitlines()
    return sum((decode_usage(json.loads(line)["usage"]) for line in lines), Usage())


def read_archive(home, data=""):
    return Archive({"codex": (str(home),)}, str(data) if data else "")


def total_usage(home, data=""):
    return read_archive(home, data).usage_report(Breakdown.SESSION, UTC).total.usage
