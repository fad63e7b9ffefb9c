"""Small recordings for tests of the index: lines, files, and the usage pipeline over them."""

import json
from datetime import UTC
from pathlib import Path

from flightlog.agents.claude_code.files import find_transcripts
from flightlog.archive.search import SearchIndex, parse_query
from flightlog.model.usage import Breakdown
from flightlog.usage.pipeline import UsagePipeline

START_MS = 1_780_308_000_000


def reply(name, output=5, *, at=0, model="claude-sonnet-4-5", **fields):
    """Return an assistant line; `at` is in seconds."""
    record = {
        "type": "assistant",
        "uuid": f"u-{name}-{at}",
        "timestamp": stamp(at),
        "requestId": f"req-{name}",
        "cwd": "/srv/app",
        "message": {
            "id": name,
            "model": model,
            "content": fields.pop(
                "content", [{"type": "text", "text": fields.pop("text", "hello")}]
            ),
            "usage": {"input_tokens": 3, "output_tokens": output},
        },
    }
    return json.dumps(record | fields, separators=(",", ":")).encode() + b"\n"


def prompt(text, *, at=0, **fields):
    """Return a user line."""
    record = {"type": "user", "uuid": f"p-{at}", "timestamp": stamp(at), "cwd": "/srv/app"}
    body = {"message": {"role": "user", "content": text}}
    return json.dumps(record | body | fields, separators=(",", ":")).encode() + b"\n"


def stamp(at):
    """Return a time stamp `at` seconds after the start."""
    return f"2026-06-01T{10 + at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}.000Z"


def put(root: Path, session: str, *lines: bytes) -> Path:
    """Write a session's transcript."""
    path = root / "projects" / "-srv-app" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def report_usage(root: Path, index: Path | None, by: Breakdown = Breakdown.SESSION):
    """Return a report, written down, and the work it took."""
    pipeline = UsagePipeline(find_transcripts(str(root)).files, index)
    report = pipeline.report(by, UTC)
    pipeline.save()
    return report, pipeline.stats


def find(root, typed, index=None, limit=20):
    """Return the matches of a query in the sessions below `root`."""
    finder = SearchIndex(find_transcripts(str(root)).files, index)
    page = finder.search_records(parse_query(typed, int), limit)
    finder.close()
    return page.results
