"""What a killed replay left: its private tree goes, and a directory it worked in is put back as it was.

Only where no process holds the branch; what it recorded stays, and it can be taken up as before. A
directory that is put back is saved first, so that what was written there since is not lost.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from flightlog.agents.process import end_family
from flightlog.lab import book as books
from flightlog.lab.book import LOCK, Book
from flightlog.lab.running.stage import RunEnvironment
from flightlog.model.errors import Conflict, ConsentNeeded, FlightlogError
from flightlog.store import files
from flightlog.store.copies import throw_away
from flightlog.store.files import process_tag
from flightlog.store.git import remove_stale
from flightlog.store.locks import lock
from flightlog.store.trees import Place, open_trees

IN_PLACE = ".replay-in-place.lock"
MARK = ".in_place"
TREE = "tree"
SOURCE_GIT = "source_git"
_WORK = ".work-"


def swept(runs_dir: Path, setting: RunEnvironment) -> Iterator[str]:
    """Put right what killed replays left, and say what was done."""
    left = {runs_dir / tree.parent.name.removeprefix(_WORK) for tree in runs_dir.glob(f"{_WORK}*/{TREE}")}
    left |= {mark.parent for mark in runs_dir.glob(f"*/{MARK}")}
    for path in sorted(each for each in left if (each / books.CONFIG).is_file()):
        # What a foreign run says was left by it is not followed: putting back writes where it says.
        with suppress(Conflict, ConsentNeeded), lock(path / LOCK, who=f"process {process_tag()}"):
            book = Book(path, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
            if book.state.branch is not None:
                setting.permit(book.config, path, book.config_digest)
                yield from _one(book, setting)


def _one(book: Book, setting: RunEnvironment) -> Iterator[str]:
    for attempt in book.state.in_flight:
        if attempt.process and files.is_running(attempt.process):
            end_family(int(attempt.process.partition("-")[0]))
    if (book.path / MARK).exists():
        try:
            with lock(book.path.with_name(IN_PLACE), who=f"process {process_tag()}"):
                yield put_back(book, setting)
        except FlightlogError as error:
            yield f"{book.config.work_dir} could not be put back as it was before {book.name}: {error}"
    for name in (TREE, SOURCE_GIT):
        throw_away(book.scratch / name)


def put_back(book: Book, setting: RunEnvironment) -> str:
    """Put the directory a branch worked in back as it was before; the lock is the caller's."""
    mark = book.path / MARK
    original = mark.read_text("utf-8")
    work_dir = Path(book.config.work_dir).resolve()
    trees = open_trees(
        Place(book.shadow, work_dir, setting.home, setting.runtime.program_path),
        now=setting.runtime.clock.now_s,
        line="original",
    )
    found = trees.snapshot(f"_found_{original.removeprefix('_')}_{int(setting.runtime.clock.now_s() * 1000)}")
    trees.restore(original)
    remove_stale(mark)
    return f"{work_dir} is as it was before {book.name}, which was killed; what stood there is {found.name} of it"
