"""A capture as a test asks for it: a folder of exchanges, a proxy before an upstream, requests of real clients."""

import itertools
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from flightlog.sources.api.proxy import Settings
from flightlog.sources.api.recorder import Recorder
from flightlog.sources.api.serving import capturing
from flightlog.store.exchanges import Exchanges

TOKEN = "word-in-the-path"
REQUESTS = Path(__file__).parent / "recordings" / "claude-code-requests.jsonl.zst"


def exchanges(folder: Path) -> Exchanges:
    """Open a folder of exchanges with a clock that stands still."""
    return Exchanges(folder, now=lambda: "2026-11-15T12:00:00.000Z", new_id=lambda: uuid.uuid4().hex)


@contextmanager
def proxied(upstream: str, folder: Path, **settings: object) -> Iterator[tuple[str, Recorder]]:
    """Run a proxy before `upstream`; all of it is on disk when the block ends."""
    recorder = Recorder(exchanges(folder))
    made = itertools.count(1)
    with capturing(Settings(upstream, TOKEN, lambda: f"req_made_{next(made)}", **settings), recorder) as url:
        yield url, recorder


def captured_requests() -> list[dict]:
    """The requests of every recorded run: version, case, headers, request_id, body."""
    data = zstandard.ZstdDecompressor().decompress(REQUESTS.read_bytes(), max_output_size=1 << 26)
    return [json.loads(line) for line in data.splitlines()]


def bytes_on_disk(folder: Path) -> bytes:
    """Every byte of every file below a folder, names too."""
    return b"\n".join(
        str(path).encode() + b"\n" + (path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    )
