"""Check a dataset: schema, ids, links, secrets, sizes. Report problem, location and next command.

`fix_dataset` repairs what it can without losing anything: an unreadable file is first copied to a
directory that git does not track.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from flightlog.dataset import reader
from flightlog.dataset.compact import base_texts, is_generation
from flightlog.dataset.layout import PENDING, DatasetDirs, prepare_dataset, write_bodies
from flightlog.dataset.rows import schema_problem, session_names
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

FILE_BYTES_MAX = 50_000_000  # git hosts warn about files above 50 MB
_EACH_MAX = 20  # problems reported of one kind


class DatasetProblem(Struct, frozen=True):
    """One problem; a note needs no repair."""

    kind: IncidentKind
    location: str
    message: str
    next_command: str
    is_note: bool = False


def check_dataset(dirs: DatasetDirs) -> list[DatasetProblem]:
    """Return all problems and notes."""
    dataset = reader.read_dataset(dirs.tracked_dir)
    return [
        *_check_gitignore(dirs),
        *_check_files(dirs),
        *_check_damage(dataset),
        *_check_schema(dataset),
        *_check_ids(dataset),
        *_check_links(dataset),
        *_check_secrets(dirs),
    ]


def find_incidents(problems: Iterable[DatasetProblem], now_ms: int) -> Iterator[Incident]:
    """Yield an incident for every problem that is not a note."""
    for problem in problems:
        if not problem.is_note:
            # A row id is file content, which an incident must not hold; file names and offsets are safe.
            place = problem.location.replace(" at ", ":").replace(",", "")
            evidence = () if problem.kind == "id" else (place,)
            yield Incident(problem.kind, now_ms, "dataset", evidence)


def fix_dataset(dirs: DatasetDirs, redactor: JsonRedactor) -> list[str]:
    """Repair what can be repaired and return what was done. Idempotent."""
    done = [f"created {path}" for path in prepare_dataset(dirs, redactor)]
    for path in [*reader.base_files(dirs.tracked_dir), *reader.shard_files(dirs.tracked_dir)]:
        body = path.read_bytes() if path.exists() else b""
        rows = [line for line in body.split(b"\n") if line.strip()]
        content = reader.read_files([path])
        if not content.damage and redactor.redact_to_clean(rows).text.encode() == body:
            continue
        copy = files.set_aside(path, dirs.root / "damaged")
        sound = sorted(version.line for version in content.lines.values())
        if path.parent == dirs.pending_dir:
            session = reader.shard_session(path.name)
            shard = reader.name_shard(
                session, reader.indent_lines(sound, len(sound)), path.name[:10]
            )
            write_bodies(dirs, [shard] if sound else [], redactor)
            files.remove_files([path])
        else:
            clean = redactor.redact_to_clean(base_texts(content).get(path.name, sound))
            write_output_files(dirs.tracked_dir, [OutputFile(path.name, Tier.TRACKED, clean)])
        done.append(
            f"rewrote {path.name} with {pluralize(len(sound), 'sound row')}; the original is {copy}"
        )
    return done


def _check_gitignore(dirs: DatasetDirs) -> Iterator[DatasetProblem]:
    if is_ignored(dirs.repository, dirs.pending_dir / "x.jsonl"):
        find = "git check-ignore -v .git-ml/tracked/x.jsonl"
        yield DatasetProblem("ignored", PENDING, "git ignores the training rows", find)


def _check_files(dirs: DatasetDirs) -> Iterator[DatasetProblem]:
    for path in [*reader.base_files(dirs.tracked_dir), *reader.shard_files(dirs.tracked_dir)]:
        if path.exists() and path.stat().st_size > FILE_BYTES_MAX:
            text = f"{path.stat().st_size:,} bytes, more than {FILE_BYTES_MAX:,}"
            yield DatasetProblem("size", path.name, text, "flightlog dataset retain --dry-run")
    for path in reader.shard_files(dirs.tracked_dir):
        if not reader.is_whole(path.name, path.read_bytes()):
            text = "the content does not match the hash in the name"
            yield DatasetProblem("changed", path.name, text, f"git log -- {path}")
    if not is_generation(dirs):
        text = "the base files changed since the last compaction, as after a merge"
        next_command = "flightlog dataset tracked compact"
        yield DatasetProblem("generation", "tracked", text, next_command, is_note=True)


def _check_damage(dataset: reader.DatasetReader) -> Iterator[DatasetProblem]:
    for damage in dataset.damage[:_EACH_MAX]:
        location = f"{Path(damage.path).name} at {damage.offset:,}"
        yield DatasetProblem("damage", location, damage.reason, "flightlog dataset check --fix")


def _check_schema(dataset: reader.DatasetReader) -> Iterator[DatasetProblem]:
    problems = (
        (key, text) for key, line in dataset.live_lines().items() if (text := schema_problem(line))
    )
    for key, text in islice(problems, _EACH_MAX):
        name = key.partition(":")[2].partition(":")[0]
        find = f"grep -rn {shlex.quote(name)}" if name else "grep -rnv '\"id\"'"
        yield DatasetProblem("schema", key, text, f"{find} .git-ml/tracked", is_note=True)


def _check_ids(dataset: reader.DatasetReader) -> Iterator[DatasetProblem]:
    live = (row for key, row in dataset.rows.items() if key not in dataset.removed_keys)
    ids = Counter((str(row.get("kind")), str(row.get("id"))) for row in live)
    for (kind, name), times in sorted(ids.items()):
        if times > 1 and kind in ("chat", "session", "commit"):
            text = f"{times} different rows have this id"
            yield DatasetProblem("id", f"{kind} {name}", text, "flightlog dataset stats")


def _check_links(dataset: reader.DatasetReader) -> Iterator[DatasetProblem]:
    sessions = {name for row in dataset.rows_of_kind("session") for name in session_names(row)}
    orphans = [
        row for row in dataset.rows_of_kind("chat") if str(row.get("session_id")) not in sessions
    ]
    if orphans:
        example = orphans[0].get("session_id")
        text = f"{pluralize(len(orphans), 'chat')} of missing sessions, for example {example}"
        yield DatasetProblem("link", "chats", text, "flightlog dataset pull", is_note=True)
    chats = {str(row.get("id")) for row in dataset.rows_of_kind("chat")}
    rows = [row for row in dataset.rows_of_kind("action") if row.get("chat_id")]
    lost = [row for row in rows if str(row["chat_id"]) not in chats]
    if lost:
        text = (
            f"{pluralize(len(lost), 'action')} of missing chats, for example {lost[0]['chat_id']}"
        )
        yield DatasetProblem("link", "actions", text, "flightlog dataset pull", is_note=True)
    for row in dataset.rows_of_kind("update"):
        if str(row.get("row_id")) not in dataset.rows:
            text = f"judges the missing row {row.get('row_id')}"
            yield DatasetProblem("link", str(row.get("id")), text, "", is_note=True)


def _check_secrets(dirs: DatasetDirs) -> Iterator[DatasetProblem]:
    for path in [*reader.base_files(dirs.tracked_dir), *reader.shard_files(dirs.tracked_dir)]:
        data = path.read_bytes() if path.exists() else b""
        for candidate in engine.find_private_values(data):
            if candidate.kind == SECRET and candidate.weight >= MEDIUM:
                line = data.count(b"\n", 0, candidate.start) + 1
                text = f"possible secret in line {line}: {mask_value(candidate.value)}"
                yield DatasetProblem("secret", path.name, text, "flightlog dataset check --fix")
