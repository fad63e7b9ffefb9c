"""Looking a dataset over: schema, ids, links, secrets, sizes. Says what, where, and what to do.

`fix` puts right what can be put right without taking anything away: what cannot be read is copied aside
first, outside of what git tracks.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.dataset.book import Book, base_files, read_book, read_files, shard_files
from flightlog.dataset.compact import base_texts, is_generation
from flightlog.dataset.layout import PENDING, Place, prepare, write_bodies
from flightlog.dataset.rows import complaint
from flightlog.dataset.shards import indented, is_whole, named, session_of
from flightlog.model.damage import Incident, IncidentKind
from flightlog.model.pages import Page, Tier
from flightlog.model.text import counted
from flightlog.privacy.detect import engine
from flightlog.privacy.detect.hits import MEDIUM, SECRET
from flightlog.privacy.records import Records
from flightlog.privacy.redact import masked
from flightlog.sources.git.repository import ignores
from flightlog.store import files
from flightlog.store.pages import publish

FILE_BYTES_MAX = 50_000_000
_EACH_MAX = 20


class Finding(Struct, frozen=True):
    """One thing that is not as it should be; a note is not wrong, only worth knowing."""

    what: IncidentKind
    where: str
    text: str
    next: str
    is_note: bool = False


def check(place: Place) -> list[Finding]:
    """Look at everything."""
    book = read_book(place.tracked)
    found = [*_git(place), *_files(place), *_damage(book), *_schema(book), *_ids(book), *_links(book)]
    return [*found, *_secrets(place)]


def incidents(found: Iterable[Finding], now_ms: int) -> Iterator[Incident]:
    """Yield what is wrong, so that somebody can report it; what is only a note is not."""
    for each in found:
        if not each.is_note:
            # The id of a row is content of a file; the other findings are placed by file name and offset.
            places = () if each.what == "id" else (each.where.replace(" at ", ":").replace(",", ""),)
            yield Incident(each.what, now_ms, "dataset", places)


def fix(place: Place, records: Records) -> list[str]:
    """Put right what can be; return what was done. Doing it twice is doing it once."""
    done = [f"made {path}" for path in prepare(place, records)]
    for path in [*base_files(place.tracked), *shard_files(place.tracked)]:
        body = path.read_bytes() if path.exists() else b""
        rows = [line for line in body.split(b"\n") if line.strip()]
        found = read_files([path])
        if not found.damage and records.clean(rows).text.encode() == body:
            continue
        aside = files.set_aside(path, place.root / "damaged")
        sound = sorted(version.line for version in found.lines.values())
        if path.parent == place.pending:
            made = named(session_of(path.name), indented(sound, len(sound)), path.name[:10])
            write_bodies(place, [made] if sound else [], records)
            files.remove([path])
        else:
            lines = base_texts(found).get(path.name, sound)
            publish(place.tracked, [Page(path.name, Tier.TRACKED, records.clean(lines))])
        done.append(f"copied aside as {aside}, {counted(len(sound), 'sound row')} of it written anew: {path.name}")
    return done


def _git(place: Place) -> Iterator[Finding]:
    if ignores(place.repository, place.pending / "x.jsonl"):
        find = "git check-ignore -v .git-ml/tracked/x.jsonl"
        yield Finding("ignored", PENDING, "git ignores the training rows", find)


def _files(place: Place) -> Iterator[Finding]:
    for path in [*base_files(place.tracked), *shard_files(place.tracked)]:
        if path.exists() and path.stat().st_size > FILE_BYTES_MAX:
            text = f"{path.stat().st_size:,} bytes, more than {FILE_BYTES_MAX:,}"
            yield Finding("size", path.name, text, "flightlog dataset retain --dry-run")
    for path in shard_files(place.tracked):
        if not is_whole(path.name, path.read_bytes()):
            yield Finding("changed", path.name, "does not hold what its name says", "git log -- " + str(path))
    if not is_generation(place):
        text = "the base files were changed since they were compacted, as a merge does"
        yield Finding("generation", "tracked", text, "flightlog dataset tracked compact", is_note=True)


def _damage(book: Book) -> Iterator[Finding]:
    for one in book.damage[:_EACH_MAX]:
        where = f"{Path(one.path).name} at {one.offset:,}"
        yield Finding("damage", where, one.why, "flightlog dataset check --fix")


def _schema(book: Book) -> Iterator[Finding]:
    wrong = ((key, why) for key, line in book.kept().items() if (why := complaint(line)))
    for number, (key, why) in enumerate(wrong):
        if number < _EACH_MAX:
            _, _, name = key.partition(":")
            find = f"grep -rn {shlex.quote(name.partition(':')[0])}" if name else "grep -rnv '\"id\"'"
            yield Finding("schema", key, why, f"{find} .git-ml/tracked", is_note=True)


def _ids(book: Book) -> Iterator[Finding]:
    ids = Counter((str(row.get("kind")), str(row.get("id"))) for key, row in book.rows.items() if key not in book.gone)
    for (kind, name), times in sorted(ids.items()):
        if times > 1 and kind in ("chat", "session", "commit"):
            yield Finding("id", f"{kind} {name}", f"{times} different rows have this id", "flightlog dataset stats")


def _links(book: Book) -> Iterator[Finding]:
    chats = {str(row.get("id")) for row in book.of("chat")}
    lost = [row for row in book.of("action") if row.get("chat_id") and str(row["chat_id"]) not in chats]
    if lost:
        text = f"{counted(len(lost), 'action')} of chats that are not here, {lost[0]['chat_id']} among them"
        yield Finding("link", "actions", text, "flightlog dataset pull", is_note=True)
    for row in book.of("update"):
        if str(row.get("of")) not in book.rows:
            yield Finding("link", str(row.get("id")), f"judges {row.get('of')}, which is not here", "", is_note=True)


def _secrets(place: Place) -> Iterator[Finding]:
    for path in [*base_files(place.tracked), *shard_files(place.tracked)]:
        data = path.read_bytes() if path.exists() else b""
        for found in engine.find(data):
            if found.kind == SECRET and found.weight >= MEDIUM:
                line = data.count(b"\n", 0, found.start) + 1
                text = f"line {line} holds what looks like a secret: {masked(found.value)}"
                yield Finding("secret", path.name, text, "flightlog dataset check --fix")
