"""Looking a dataset over: schema, ids, links, secrets, sizes. Says what, where, and what to do.

`fix` puts right what can be put right without taking anything away: what cannot be read is copied aside
first, outside of what git tracks.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.dataset.compact import base_texts, is_generation
from flightlog.dataset.layout import PENDING, DatasetDirs, prepare_dataset, write_bodies
from flightlog.dataset.reader import (
    DatasetReader,
    base_files,
    indent_lines,
    is_whole,
    name_shard,
    read_dataset,
    read_files,
    shard_files,
    shard_session,
)
from flightlog.dataset.rows import schema_problem
from flightlog.model.errors import Incident, IncidentKind
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import pluralize
from flightlog.privacy.detect import engine
from flightlog.privacy.detect.candidates import MEDIUM, SECRET
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import mask_value
from flightlog.store import files
from flightlog.store.git.repository import is_ignored
from flightlog.store.output_files import write_output_files

FILE_BYTES_MAX = 50_000_000
_EACH_MAX = 20


class DatasetProblem(Struct, frozen=True):
    """One thing that is not as it should be; a note is not wrong, only worth knowing."""

    what: IncidentKind
    where: str
    text: str
    next: str
    is_note: bool = False


def check_dataset(place: DatasetDirs) -> list[DatasetProblem]:
    """Look at everything."""
    book = read_dataset(place.tracked_dir)
    found = [
        *_check_gitignore(place),
        *_check_files(place),
        *_check_damage(book),
        *_check_schema(book),
        *_check_ids(book),
        *_check_links(book),
    ]
    return [*found, *_check_secrets(place)]


def find_incidents(found: Iterable[DatasetProblem], now_ms: int) -> Iterator[Incident]:
    """Yield what is wrong, so that somebody can report it; what is only a note is not."""
    for each in found:
        if not each.is_note:
            # The id of a row is content of a file; the other findings are placed by file name and offset.
            places = () if each.what == "id" else (each.where.replace(" at ", ":").replace(",", ""),)
            yield Incident(each.what, now_ms, "dataset", places)


def fix_dataset(place: DatasetDirs, records: JsonRedactor) -> list[str]:
    """Put right what can be; return what was done. Doing it twice is doing it once."""
    done = [f"made {path}" for path in prepare_dataset(place, records)]
    for path in [*base_files(place.tracked_dir), *shard_files(place.tracked_dir)]:
        body = path.read_bytes() if path.exists() else b""
        rows = [line for line in body.split(b"\n") if line.strip()]
        found = read_files([path])
        if not found.damage and records.redact_to_clean(rows).text.encode() == body:
            continue
        aside = files.set_aside(path, place.root / "damaged")
        sound = sorted(version.line for version in found.lines.values())
        if path.parent == place.pending_dir:
            made = name_shard(shard_session(path.name), indent_lines(sound, len(sound)), path.name[:10])
            write_bodies(place, [made] if sound else [], records)
            files.remove_files([path])
        else:
            lines = base_texts(found).get(path.name, sound)
            write_output_files(place.tracked_dir, [OutputFile(path.name, Tier.TRACKED, records.redact_to_clean(lines))])
        done.append(f"copied aside as {aside}, {pluralize(len(sound), 'sound row')} of it written anew: {path.name}")
    return done


def _check_gitignore(place: DatasetDirs) -> Iterator[DatasetProblem]:
    if is_ignored(place.repository, place.pending_dir / "x.jsonl"):
        find = "git check-ignore -v .git-ml/tracked/x.jsonl"
        yield DatasetProblem("ignored", PENDING, "git ignores the training rows", find)


def _check_files(place: DatasetDirs) -> Iterator[DatasetProblem]:
    for path in [*base_files(place.tracked_dir), *shard_files(place.tracked_dir)]:
        if path.exists() and path.stat().st_size > FILE_BYTES_MAX:
            text = f"{path.stat().st_size:,} bytes, more than {FILE_BYTES_MAX:,}"
            yield DatasetProblem("size", path.name, text, "flightlog dataset retain --dry-run")
    for path in shard_files(place.tracked_dir):
        if not is_whole(path.name, path.read_bytes()):
            yield DatasetProblem("changed", path.name, "does not hold what its name says", "git log -- " + str(path))
    if not is_generation(place):
        text = "the base files were changed since they were compacted, as a merge does"
        yield DatasetProblem("generation", "tracked", text, "flightlog dataset tracked compact", is_note=True)


def _check_damage(book: DatasetReader) -> Iterator[DatasetProblem]:
    for one in book.damage[:_EACH_MAX]:
        where = f"{Path(one.path).name} at {one.offset:,}"
        yield DatasetProblem("damage", where, one.why, "flightlog dataset check --fix")


def _check_schema(book: DatasetReader) -> Iterator[DatasetProblem]:
    wrong = ((key, why) for key, line in book.live_lines().items() if (why := schema_problem(line)))
    for number, (key, why) in enumerate(wrong):
        if number < _EACH_MAX:
            _, _, name = key.partition(":")
            find = f"grep -rn {shlex.quote(name.partition(':')[0])}" if name else "grep -rnv '\"id\"'"
            yield DatasetProblem("schema", key, why, f"{find} .git-ml/tracked", is_note=True)


def _check_ids(book: DatasetReader) -> Iterator[DatasetProblem]:
    ids = Counter(
        (str(row.get("kind")), str(row.get("id"))) for key, row in book.rows.items() if key not in book.removed_keys
    )
    for (kind, name), times in sorted(ids.items()):
        if times > 1 and kind in ("chat", "session", "commit"):
            yield DatasetProblem(
                "id", f"{kind} {name}", f"{times} different rows have this id", "flightlog dataset stats"
            )


def _check_links(book: DatasetReader) -> Iterator[DatasetProblem]:
    chats = {str(row.get("id")) for row in book.rows_of_kind("chat")}
    lost = [row for row in book.rows_of_kind("action") if row.get("chat_id") and str(row["chat_id"]) not in chats]
    if lost:
        text = f"{pluralize(len(lost), 'action')} of chats that are not here, {lost[0]['chat_id']} among them"
        yield DatasetProblem("link", "actions", text, "flightlog dataset pull", is_note=True)
    for row in book.rows_of_kind("update"):
        if str(row.get("of")) not in book.rows:
            yield DatasetProblem(
                "link", str(row.get("id")), f"judges {row.get('of')}, which is not here", "", is_note=True
            )


def _check_secrets(place: DatasetDirs) -> Iterator[DatasetProblem]:
    for path in [*base_files(place.tracked_dir), *shard_files(place.tracked_dir)]:
        data = path.read_bytes() if path.exists() else b""
        for found in engine.find_private_values(data):
            if found.kind == SECRET and found.weight >= MEDIUM:
                line = data.count(b"\n", 0, found.start) + 1
                text = f"line {line} holds what looks like a secret: {mask_value(found.value)}"
                yield DatasetProblem("secret", path.name, text, "flightlog dataset check --fix")
