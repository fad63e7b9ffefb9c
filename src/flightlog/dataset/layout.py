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

from flightlog.dataset.reader import base_files, day_of, name_shard, read_tombstones, shard_column, shard_session
from flightlog.dataset.rows import Row, encode_row
from flightlog.model.output_files import OutputFile, Tier
from flightlog.privacy import tiers
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store.files import create_file, ensure_contained
from flightlog.store.git.repository import Repository
from flightlog.store.output_files import write_output_files

ROOT = ".git-ml"
TRACKED = f"{ROOT}/tracked"
PENDING = f"{TRACKED}/pending"
SETTINGS = (".gitignore", ".gitattributes")
KEPT_OPEN = ".gitkeep"
CACHED = {"chat": "chats", "session": "sessions", "action": "actions"}


class DatasetDirs(Struct, frozen=True):
    """The dataset of one work tree."""

    repository: Repository

    def __post_init__(self) -> None:
        """Refuse a dataset that a symbolic link puts outside the repository."""
        for path in (self.root, self.tracked_dir, self.pending_dir):
            ensure_contained(self.repository.top, path)

    @property
    def root(self) -> Path:
        """The directory of the dataset."""
        return self.repository.top / ROOT

    @property
    def tracked_dir(self) -> Path:
        """What git tracks of it."""
        return self.repository.top / TRACKED

    @property
    def pending_dir(self) -> Path:
        """The shards."""
        return self.repository.top / PENDING

    @property
    def state_dir(self) -> Path:
        """What this clone remembers."""
        return self.repository.common / "flightlog" / "dataset"


def prepare_dataset(place: DatasetDirs, records: JsonRedactor) -> list[Path]:
    """Make what is missing; what is there stays as it is. From now on this clone collects, on any branch."""
    if not (place.state_dir / "collecting").exists():
        create_file(place.state_dir / "collecting", b"")
    layout = tiers.layout_of("dataset")
    wanted = {
        ".gitignore": tiers.render_gitignore(layout, root=""),
        ".gitattributes": tiers.render_gitattributes(layout, root=""),
        "tracked/pending/.gitkeep": "",
    }
    missing = {name: text for name, text in wanted.items() if not (place.root / name).exists()}
    pages = [OutputFile(name, Tier.TRACKED, records.redactor.redact_as_clean(text)) for name, text in missing.items()]
    return write_output_files(place.root, pages)


def write_shard(
    place: DatasetDirs, session: str, rows: Sequence[Row], number: int, records: JsonRedactor
) -> Path | None:
    """Write rows as one shard; they were redacted, and are looked at once more on the way. Forgotten rows are left out.

    `number` counts the shards of a session. Returns None when there is such a shard already, or nothing to write.
    """
    forgotten = read_tombstones(place.tracked_dir)
    rows = [forgotten.strip_row(row) for row in rows if not forgotten.covers_row(row)]
    if not rows:
        return None
    clean = records.redact_rows(list(rows), shard_column(number, session))
    day = max(map(day_of, rows), default="")
    name = name_shard(session, clean.text.encode("utf-8", "replace"), day).name
    written = write_output_files(place.tracked_dir, [OutputFile(f"pending/{name}", Tier.TRACKED, clean)])
    return written[0] if written else None


def write_bodies(place: DatasetDirs, bodies: Iterable[tuple[str, bytes]], records: JsonRedactor) -> list[Path]:
    """Write shards that were made elsewhere; one in which something private is found gets another name."""
    pages = []
    for name, body in bodies:
        clean = records.redact_to_clean(line for line in body.split(b"\n") if line.strip())
        text = clean.text.encode("utf-8", "replace")
        final = name if text == body else name_shard(shard_session(name), text, name[:10]).name
        pages.append(OutputFile(f"pending/{final}", Tier.TRACKED, clean))
    return write_output_files(place.tracked_dir, pages)


def cache_pages(rows: Iterable[Row]) -> list[OutputFile]:
    """Lay out the document's one file for each row, private, for whoever wants it besides."""
    pages = []
    for row in rows:
        folder = CACHED.get(row["kind"])
        name = "".join(char if char.isalnum() or char in "._-" else "-" for char in str(row["id"]))[:120]
        day = "" if folder == "sessions" else f"{str(row.get('timestamp', ''))[:10]}/"
        if folder:
            text = encode_row({**row, "made_by": "flightlog"}).decode() + "\n"
            pages.append(OutputFile(f"{folder}/{day}{name}.json", Tier.PRIVATE, text))
    return pages


def total_bytes(place: DatasetDirs) -> int:
    """Return how large the tracked files are."""
    files = [*base_files(place.tracked_dir), *place.pending_dir.glob("*.jsonl")]
    return sum(path.stat().st_size for path in files if path.exists())
