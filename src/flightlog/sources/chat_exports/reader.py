"""Open a zip or JSON, split the array, conversations one by one.

Knows brackets and strings, not what an element says: a piece may turn out not to be JSON, which is
for the decoder to find out. Elements of one export begin alike, so the next beginning is searched for
and what lies before it is taken if it is JSON from end to end: no beginning of an object is an object.
Where that does not help, brackets are counted; each byte is then looked at once, however long a string is.

Never unpacks to disk and holds one conversation at a time. An element that is no conversation is
damage, counted; the others are read.
"""

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.model.errors import UNREADABLE, Damage, Invalid, NotFound, Unreadable
from flightlog.sources.chat_exports import chatgpt, claude_ai
from flightlog.sources.chat_exports.conversation import Conversation

CHUNK_BYTES = 4 << 20
PIECE_BYTES_MAX = 32 << 20  # a conversation of 10,000 long answers; two copies and what follows are in memory
PIECE_DEPTH_MAX = 100_000  # brackets are counted one by one, a million in half a second; no vendor nests deeper than 20
# Everything up to the next bracket that is not the border of a flat object or array. Python 3.11.4 and older goes on
# from where the last choice of a possessive group gave up, so that one has to give up at once.
_NONE = rb"|(?!)"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+' + _NONE + rb')*+"'
_PLAIN = rb'[^"{}\[\]]++'
_WORDS = rb"(?:" + _PLAIN + rb"|" + _STRING + _NONE + rb")*+"
_FLAT = rb"\{" + _WORDS + rb"\}|\[" + _WORDS + rb"\]"
_DEEP: Any = re.compile(rb"(?:" + _PLAIN + rb"|" + _STRING + rb"|" + _FLAT + _NONE + rb")*+([{}\[\]])", re.DOTALL)
_SHALLOW: Any = re.compile(_WORDS + rb"([{}\[\]])", re.DOTALL)
_OPENING = frozenset(b"{[")
_FIRST_KEY = re.compile(rb'\{\s*"[^"\\]{1,40}"')
_GUESSES = 3
_TRUST = 8
Read = Callable[[int], bytes]
_HEAD_BYTES = 1 << 20
_HASH_HEX = 16
# Chats compress to a tenth or a fifth, very repetitive ones to a thirtieth; a bomb of equal bytes to a thousandth.
_RATIO_MAX = 50
_SMALL_BYTES = 1 << 20  # no harm whatever the ratio
_ACCOUNT_BYTES_MAX = 1 << 20  # one account takes a few hundred bytes
_ACCOUNT_FIELDS = ("full_name", "name", "email_address", "email", "verified_phone_number", "phone_number")
DECODERS: dict[str, Callable[[bytes], Conversation]] = {
    chatgpt.SOURCE: chatgpt.decode_chat,
    claude_ai.SOURCE: claude_ai.decode_chat,
}


class ArrayElement(NamedTuple):
    """One element: where it begins in the stream, and its bytes."""

    offset: int
    data: bytes


def split_export(read: Read) -> Iterator[ArrayElement]:
    """Yield the objects of the top array, or objects that follow each other when there is no array."""
    buffer = read(CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
    first = buffer.lstrip()[:1]
    if first not in {b"[", b"{"}:
        raise Invalid("no JSON array or object at the beginning", hint="name the zip or the conversations.json in it")
    cutter = _ArraySplitter(0 if first == b"{" else 1)
    wanted = CHUNK_BYTES
    while buffer:
        yield from cutter.split(buffer)
        buffer = cutter.remaining_bytes(buffer)
        if len(buffer) > PIECE_BYTES_MAX:
            raise Invalid("an element of the export is longer than 32 MB", hint="ask for the export again")
        # A long string is looked at again from its beginning, so each look takes in twice as much.
        wanted = max(CHUNK_BYTES, len(buffer))
        more = read(wanted)
        if not more:
            cutter.check_complete(buffer)
            return
        buffer += more


class _AnyObject(Struct):
    """Any object: its fields are passed over, but have to be JSON."""


_CHECK = msgspec.json.Decoder(_AnyObject)


class _ArraySplitter:
    """Where in the nesting the stream is, between two chunks."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._depth = 0
        self._began: int | None = None
        self._read = 0
        self._passed = 0
        self._trust = _TRUST

    def split(self, buffer: bytes) -> Iterator[ArrayElement]:
        """Yield the elements that end in `buffer`."""
        at = self._read
        while True:
            inside = self._depth > self._base
            found = (_DEEP if inside else _SHALLOW).match(buffer, at)
            if found is None:
                break
            at = found.end()
            if buffer[at - 1] in _OPENING:
                if self._depth == self._base:
                    if (end := self._guess_end(buffer, at - 1)) is not None:
                        yield ArrayElement(self._passed + at - 1, buffer[at - 1 : end])
                        self._read = at = end
                        continue
                    self._began = at - 1
                self._depth += 1
                if self._depth > PIECE_DEPTH_MAX:
                    raise Invalid("an element of the export is nested too deeply", hint="ask for the export again")
            else:
                self._depth -= 1
                if self._depth == self._base and self._began is not None:
                    yield ArrayElement(self._passed + self._began, buffer[self._began : at])
                    self._began = None
            self._read = at
        self._read = at

    def _guess_end(self, buffer: bytes, start: int) -> int | None:
        """Return the end of the element at `start` if another begins after it as it does, and nothing when in doubt."""
        key = _FIRST_KEY.match(buffer, start) if self._trust > 0 else None
        if key is None:
            return None
        border = re.compile(rb"\}\s*,\s*" + re.escape(key[0]))
        for _, found in zip(range(_GUESSES), border.finditer(buffer, start), strict=False):
            end = found.start() + 1
            try:
                _CHECK.decode(memoryview(buffer)[start:end])
            except UNREADABLE:
                continue
            self._trust = _TRUST
            return end
        self._trust -= 1
        return None

    def remaining_bytes(self, buffer: bytes) -> bytes:
        """Return what is still needed of `buffer`."""
        keep = self._read if self._began is None else self._began
        self._passed += keep
        self._read -= keep
        self._began = None if self._began is None else 0
        return buffer[keep:]

    def check_complete(self, buffer: bytes) -> None:
        """Refuse a stream that ends inside an element or before the array does."""
        if self._depth > 0 or self._began is not None or buffer.strip():
            raise Invalid("the export ends in the middle", hint="it was not downloaded whole: get it again")


class ExportFingerprint(Struct, frozen=True):
    """How an export is known again: the hash its state file names, and what a copy with other content would change."""

    file_hash: str
    fingerprint: str


class ExportedConversation(Struct, frozen=True):
    """One conversation as it stands in the export."""

    member: str
    offset: int
    data: bytes
    source: str

    @property
    def content_hash(self) -> str:
        """A short name for these very bytes."""
        return hashlib.blake2b(self.data, digest_size=12).hexdigest()


def fingerprint_export(path: Path) -> ExportFingerprint:
    """Look at both ends of the file, its size and time, not at the gigabyte between."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(max(0, size - _HEAD_BYTES))
            tail = file.read(_HEAD_BYTES)
    except OSError as error:
        raise NotFound(f"the export cannot be read: {error.strerror}: {path}", hint="name a zip or JSON file") from None
    file_hash = hashlib.sha256(head + str(size).encode()).hexdigest()[:_HASH_HEX]
    stamp = f"{size}-{path.stat().st_mtime_ns}-{hashlib.sha256(tail).hexdigest()[:_HASH_HEX]}"
    return ExportFingerprint(file_hash, f"{file_hash}-{stamp}")


def check_export(path: Path) -> None:
    """Refuse what cannot be read, is no export, or is neither vendor's; looks at the beginning alone."""
    fingerprint_export(path)
    next(iter_elements(path), None)


def iter_elements(path: Path) -> Iterator[ExportedConversation]:
    """Yield every conversation of the export, undecoded."""
    for name, opened in _iter_members(path):
        source = ""
        with opened as stream:
            for piece in _split_member(name, stream):
                source = source or _recognize_vendor(piece.data)
                yield ExportedConversation(name, piece.offset, piece.data, source)


def account_names(path: Path) -> list[str]:
    """Return the names, addresses and numbers that a zip says of its owner, in `users.json` or `user.json`."""
    if not zipfile.is_zipfile(path):
        return []
    found: list[str] = []
    with zipfile.ZipFile(path) as box, suppress(*UNREADABLE, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        for name in box.namelist():
            if name.rpartition("/")[2] in {"user.json", "users.json"}:
                with box.open(name) as file:
                    said = msgspec.json.decode(file.read(_ACCOUNT_BYTES_MAX))
                people = [each for each in (said if isinstance(said, list) else [said]) if isinstance(each, dict)]
                found += [str(each[field]) for each in people for field in _ACCOUNT_FIELDS if each.get(field)]
    return found


def decode_element(element: ExportedConversation) -> Conversation | Damage:
    """Return the conversation of an element, or what is wrong with it."""
    try:
        return DECODERS[element.source](element.data)
    except UNREADABLE as error:
        return Damage(element.member, element.offset, len(element.data), f"no conversation: {error}")


def element_at(path: Path, member: str, offset: int) -> ExportedConversation | None:
    """Return one conversation again, from where it was found."""
    return next((each for each in iter_elements(path) if each.member == member and each.offset == offset), None)


def _iter_members(path: Path) -> Iterator[tuple[str, AbstractContextManager[IO[bytes]]]]:
    if not zipfile.is_zipfile(path):
        yield path.name, _open_export(path)
        return
    with zipfile.ZipFile(path) as box:
        names = sorted(name for name in box.namelist() if _holds_chats(name))
        if not names:
            raise Invalid("no conversations in this zip", hint="name the export as it was downloaded")
        # Against the file's own size: what its table says about compressed sizes may be wrong, or overlap.
        whole = sum(box.getinfo(name).file_size for name in names)
        if whole > max(_SMALL_BYTES, _RATIO_MAX * path.stat().st_size):
            raise Unreadable("the zip unpacks to more than 50 times its size", hint="get the export again")
        for name in names:
            yield name, _open_member(box, name)


def _holds_chats(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith("conversations") and last.endswith(".json")


@contextmanager
def _open_export(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise NotFound(f"the export cannot be read: {error.strerror}: {path}", hint="name a zip or JSON file") from None


@contextmanager
def _open_member(box: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    try:
        with box.open(name) as file:
            yield file
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise Unreadable(f"the zip is damaged: {error}: {name}", hint="get the export again") from error


def _split_member(name: str, stream: IO[bytes]) -> Iterator[ArrayElement]:
    try:
        yield from split_export(stream.read)
    except Invalid as error:
        raise Unreadable(f"{error.message}: {name}", hint=error.hint) from None


def _recognize_vendor(data: bytes) -> str:
    """Tell a vendor by the fields of a conversation."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return chatgpt.SOURCE
    if "chat_messages" in fields:
        return claude_ai.SOURCE
    if "mapping" in fields:
        return chatgpt.SOURCE
    raise Invalid(
        "neither a ChatGPT nor a Claude.ai export", hint="expected a list of objects with `mapping` or `chat_messages`"
    )
