"""Where the dataset of a repository is, and the files that make git treat it right.

    .git-ml/.gitignore, .gitattributes      only rows are tracked; union as a fall-back
    .git-ml/tracked/*.jsonl                 the base files, written by `compact` on the default branch alone
    .git-ml/tracked/pending/*.jsonl         shards, written by everybody else
    .git/flightlog/dataset/                 what this clone remembers; never part of the repository's content

`pending/.gitkeep` exists from the start: a directory that empties is what git's rename detection turns into
conflicts. The base files come with the first compaction: the commit that begins a dataset can then be taken back
whenever, because nothing in it is changed later. A shard is all that is ever written on a branch that has
no dataset yet: files with fixed names would stand in the way of a checkout of one that has.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.dataset.book import base_files, read_forgotten
from flightlog.dataset.rows import Row, encoded
from flightlog.dataset.shards import column, day_of, named, session_of
from flightlog.model.pages import Page, Tier
from flightlog.privacy import tiers
from flightlog.privacy.records import Records
from flightlog.sources.git.repository import Repository
from flightlog.store.files import contained, create
from flightlog.store.pages import publish

ROOT = ".git-ml"
TRACKED = f"{ROOT}/tracked"
PENDING = f"{TRACKED}/pending"
SETTINGS = (".gitignore", ".gitattributes")
KEPT_OPEN = ".gitkeep"
CACHED = {"chat": "chats", "session": "sessions", "action": "actions"}


class Place(Struct, frozen=True):
    """The dataset of one work tree."""

    repository: Repository

    def __post_init__(self) -> None:
        """Refuse a dataset that a symbolic link puts outside the repository."""
        for path in (self.root, self.tracked, self.pending):
            contained(self.repository.top, path)

    @property
    def root(self) -> Path:
        """The directory of the dataset."""
        return self.repository.top / ROOT

    @property
    def tracked(self) -> Path:
        """What git tracks of it."""
        return self.repository.top / TRACKED

    @property
    def pending(self) -> Path:
        """The shards."""
        return self.repository.top / PENDING

    @property
    def state(self) -> Path:
        """What this clone remembers."""
        return self.repository.common / "flightlog" / "dataset"


def prepare(place: Place, records: Records) -> list[Path]:
    """Make what is missing; what is there stays as it is. From now on this clone collects, on any branch."""
    if not (place.state / "collecting").exists():
        create(place.state / "collecting", b"")
    layout = tiers.layout("dataset")
    wanted = {
        ".gitignore": tiers.gitignore(layout, root=""),
        ".gitattributes": tiers.gitattributes(layout, root=""),
        "tracked/pending/.gitkeep": "",
    }
    missing = {name: text for name, text in wanted.items() if not (place.root / name).exists()}
    pages = [Page(name, Tier.TRACKED, records.redactor.clean(text)) for name, text in missing.items()]
    return publish(place.root, pages)


def write_shard(place: Place, session: str, rows: Sequence[Row], number: int, records: Records) -> Path | None:
    """Write rows as one shard; they were redacted, and are looked at once more on the way. Forgotten rows are left out.

    `number` counts the shards of a session. Returns None when there is such a shard already, or nothing to write.
    """
    forgotten = read_forgotten(place.tracked)
    rows = [forgotten.stripped(row) for row in rows if not forgotten.covers(row)]
    if not rows:
        return None
    clean = records.clean_rows(list(rows), column(number, session))
    day = max(map(day_of, rows), default="")
    name = named(session, clean.text.encode("utf-8", "replace"), day).name
    written = publish(place.tracked, [Page(f"pending/{name}", Tier.TRACKED, clean)])
    return written[0] if written else None


def write_bodies(place: Place, bodies: Iterable[tuple[str, bytes]], records: Records) -> list[Path]:
    """Write shards that were made elsewhere; one in which something private is found gets another name."""
    pages = []
    for name, body in bodies:
        clean = records.clean(line for line in body.split(b"\n") if line.strip())
        text = clean.text.encode("utf-8", "replace")
        final = name if text == body else named(session_of(name), text, name[:10]).name
        pages.append(Page(f"pending/{final}", Tier.TRACKED, clean))
    return publish(place.tracked, pages)


def cache_pages(rows: Iterable[Row]) -> list[Page]:
    """Lay out the document's one file for each row, private, for whoever wants it besides."""
    pages = []
    for row in rows:
        folder = CACHED.get(row["kind"])
        name = "".join(char if char.isalnum() or char in "._-" else "-" for char in str(row["id"]))[:120]
        day = "" if folder == "sessions" else f"{str(row.get('timestamp', ''))[:10]}/"
        if folder:
            text = encoded({**row, "made_by": "flightlog"}).decode() + "\n"
            pages.append(Page(f"{folder}/{day}{name}.json", Tier.PRIVATE, text))
    return pages


def total_bytes(place: Place) -> int:
    """Return how large the tracked files are."""
    files = [*base_files(place.tracked), *place.pending.glob("*.jsonl")]
    return sum(path.stat().st_size for path in files if path.exists())
