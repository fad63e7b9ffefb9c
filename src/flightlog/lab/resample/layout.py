"""Where samples lie in a session's directory, and how their files are named.

    resamples/request_005/sample_01.json              an answer, as it came
                          sample_02_error.json        what came instead of one
    resamples/request_005_v01/variant.json            what was changed, and by whom
                              request.json            the whole request as it is sent
                              sample_01.json
    .resamples.jsonl                                  in the run: what was sent, paid and left (`events`)

Variant 0 is the request as recorded. Pure: names in, names out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

RESAMPLES = "resamples"
JOURNAL = ".resamples.jsonl"
LOCK = ".resamples.lock"
VARIANT = "variant.json"
REQUEST = "request.json"
_FOLDER = re.compile(r"request_(?P<request>\d{3,7})(?:_v(?P<variant>\d{2,5}))?", re.ASCII)
_SAMPLE = re.compile(r"sample_(?P<number>\d{2,7})(?P<error>_error)?\.json", re.ASCII)


class SampleItem(Struct, frozen=True, order=True):
    """One sample: of which request in which session's directory, in which variant, and its number from 1."""

    session: str
    request: int
    variant: int
    number: int

    @property
    def answer_file(self) -> str:
        """Where its answer is, from the run's directory."""
        return f"{sample_dir(self.session, self.request, self.variant)}/sample_{self.number:02d}.json"

    @property
    def error_file(self) -> str:
        """Where it is told that no answer came."""
        return f"{sample_dir(self.session, self.request, self.variant)}/sample_{self.number:02d}_error.json"


def sample_dir(session: str, request: int, variant: int = 0) -> str:
    """The directory of the samples of a request, from the run's."""
    return f"{session}/{RESAMPLES}/request_{request:03d}" + (f"_v{variant:02d}" if variant else "")


def iter_sample_dirs(run: Path) -> Iterator[tuple[str, int, int, Path]]:
    """Yield session, request, variant and path of every directory of samples in a run, in order."""
    found = []
    for path in run.glob(f"session_*/{RESAMPLES}/request_*"):
        named = _FOLDER.fullmatch(path.name)
        if named and path.is_dir():
            found.append((path.parent.parent.name, int(named["request"]), int(named["variant"] or 0), path))
    yield from sorted(found)


def iter_sample_files(path: Path) -> Iterator[tuple[int, bool, Path]]:
    """Yield number, whether it is an error, and path of every sample in a directory, in order."""
    found = []
    for each in path.iterdir() if path.is_dir() else ():
        named = _SAMPLE.fullmatch(each.name)
        if named and each.is_file():
            found.append((int(named["number"]), bool(named["error"]), each))
    yield from sorted(found)
