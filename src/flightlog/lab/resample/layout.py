"""Names of the files of samples in a session's directory.

    resamples/request_005/sample_01.json              an answer, as received
                          sample_02_error.json        what came instead of an answer
    resamples/request_005_v01/variant.json            the edits, and their origin
                              request.json            the whole request as it is sent
                              sample_01.json
    .resamples.jsonl                                  in the run: the journal (`state`)

Variant 0 is the request as recorded.
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
    """One sample: the session's directory, the request, the variant, and its number from 1."""

    session: str
    request: int
    variant: int
    number: int

    @property
    def answer_file(self) -> str:
        return (
            f"{sample_dir(self.session, self.request, self.variant)}/sample_{self.number:02d}.json"
        )

    @property
    def error_file(self) -> str:
        return f"{sample_dir(self.session, self.request, self.variant)}/sample_{self.number:02d}_error.json"


def sample_dir(session: str, request: int, variant: int = 0) -> str:
    """Return the directory of the samples of a request, relative to the run."""
    return f"{session}/{RESAMPLES}/request_{request:03d}" + (f"_v{variant:02d}" if variant else "")


def iter_sample_dirs(run: Path) -> Iterator[tuple[str, int, int, Path]]:
    """Yield session, request, variant and path of every directory of samples, in order."""
    folders = []
    for path in run.glob(f"session_*/{RESAMPLES}/request_*"):
        match = _FOLDER.fullmatch(path.name)
        if match and path.is_dir():
            folders.append(
                (path.parent.parent.name, int(match["request"]), int(match["variant"] or 0), path)
            )
    yield from sorted(folders)


def iter_sample_files(path: Path) -> Iterator[tuple[int, bool, Path]]:
    """Yield number, whether it is an error, and path of every sample in a directory, in order."""
    files = []
    for file in path.iterdir() if path.is_dir() else ():
        match = _SAMPLE.fullmatch(file.name)
        if match and file.is_file():
            files.append((int(match["number"]), bool(match["error"]), file))
    yield from sorted(files)
