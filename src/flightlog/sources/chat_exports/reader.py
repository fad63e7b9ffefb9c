"""Open an export (zip, unzipped directory or JSON), split its array, yield conversations one by one.

Splitting only knows brackets and strings; whether an element is valid is left to its decoder.
All elements of one export begin with the same key, so the splitter searches for the next such
beginning and takes what precedes it if that is a complete JSON object: no proper prefix of an
object is one. If this fails, it counts brackets, looking at each byte once.

Nothing is unpacked to disk, and one conversation at a time is in memory. An element that is no
conversation counts as damage; the others are read.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.model.errors import UNREADABLE, Damage, Invalid, NotFound, Unreadable
from flightlog.sources.chat_exports import chatgpt, claude_ai
from flightlog.sources.chat_exports.conversation import Conversation

CHUNK_BYTES = 4 << 20
PIECE_BYTES_MAX = 32 << 20  # a conversation of 10,000 long answers; memory holds two copies of it
# No vendor nests deeper than 20; counting a million brackets takes half a second.
PIECE_DEPTH_MAX = 100_000
# Everything up to the next bracket that is not the border of a flat object or array. Python 3.11.4
# and older continue where the last choice of a possessive group failed: here it fails at once.
_NONE = rb"|(?!)"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+' + _NONE + rb')*+"'
_PLAIN = rb'[^"{}\[\]]++'
_WORDS = rb"(?:" + _PLAIN + rb"|" + _STRING + _NONE + rb")*+"
_FLAT = rb"\{" + _WORDS + rb"\}|\[" + _WORDS + rb"\]"
_DEEP: Any = re.compile(
    rb"(?:" + _PLAIN + rb"|" + _STRING + rb"|" + _FLAT + _NONE + rb")*+([{}\[\]])", re.DOTALL
)
_SHALLOW: Any = re.compile(_WORDS + rb"([{}\[\]])", re.DOTALL)
_OPENING = frozenset(b"{[")
_FIRST_KEY = re.compile(rb'\{\s*"[^"\\]{1,40}"')
_GUESSES = 3  # beginnings to try for one element; nested objects may begin with the same key
_TRUST = 8  # after so many elements without a right guess, only brackets are counted
Read = Callable[[int], bytes]
_HEAD_BYTES = 1 << 20
_HASH_HEX = 16
# Chats compress to a tenth or a fifth, very repetitive ones to a thirtieth; a bomb to a thousandth.
_RATIO_MAX = 50
_SMALL_BYTES = 1 << 20  # harmless at any ratio
_ACCOUNT_BYTES_MAX = 1 << 20  # one account takes a few hundred bytes
_READ_HINT = "name a zip or JSON file, or the directory that the zip unpacks to"
_ZIP_START = b"PK\x03\x04"
_AGAIN_HINT = "download the export again"
_MEMBER = re.compile(r"(?:^|/)conversations[^/]*\.json$")
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_ACCOUNT_FILES = frozenset({"user.json", "users.json"})
_ACCOUNT_FIELDS = tuple(
    "full_name name email_address email verified_phone_number phone_number".split()
)
DECODERS: dict[str, Callable[[bytes], Conversation]] = {
    chatgpt.SOURCE: chatgpt.decode_chat,
    claude_ai.SOURCE: claude_ai.decode_chat,
}


class ArrayElement(NamedTuple):
    """One element: its offset in the stream, and its bytes."""

    offset: int
    data: bytes


def split_export(read: Read) -> Iterator[ArrayElement]:
    """Yield the objects of the top array, or consecutive objects if there is no array."""
    buffer = read(CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf")
    first = buffer.lstrip()[:1]
    if buffer.startswith(_ZIP_START):
        raise Invalid("the zip is incomplete", hint=_AGAIN_HINT)
    if first not in {b"[", b"{"}:
        hint = "name the zip or the conversations.json in it"
        raise Invalid("no JSON array or object at the beginning", hint=hint)
    splitter = _ArraySplitter(0 if first == b"{" else 1)
    while buffer:
        yield from splitter.split(buffer)
        buffer = splitter.remaining_bytes(buffer)
        if len(buffer) > PIECE_BYTES_MAX:
            raise Invalid("an element of the export is longer than 32 MB", hint=_AGAIN_HINT)
        # A long string is searched again from its beginning, so each round doubles the buffer.
        more = read(max(CHUNK_BYTES, len(buffer)))
        if not more:
            splitter.check_complete(buffer)
            return
        buffer += more


class _AnyObject(Struct):
    """Any object: its fields are skipped, but must be valid JSON."""


_decode_any = msgspec.json.Decoder(_AnyObject).decode


class _ArraySplitter:
    """The position in the nesting, between two chunks; `base` is the depth of the elements."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._depth = 0
        self._start: int | None = None
        self._read = 0
        self._passed = 0
        self._trust = _TRUST

    def split(self, buffer: bytes) -> Iterator[ArrayElement]:
        """Yield the elements that end in `buffer`."""
        while (
            bracket := (_DEEP if self._depth > self._base else _SHALLOW).match(buffer, self._read)
        ) is not None:
            self._read = at = bracket.end()
            if buffer[at - 1] in _OPENING:
                if self._depth == self._base:
                    if (end := self._guess_end(buffer, at - 1)) is not None:
                        yield ArrayElement(self._passed + at - 1, buffer[at - 1 : end])
                        self._read = end
                        continue
                    self._start = at - 1
                self._depth += 1
                if self._depth > PIECE_DEPTH_MAX:
                    raise Invalid("an element of the export is nested too deeply", hint=_AGAIN_HINT)
            else:
                self._depth -= 1
                if self._depth == self._base and self._start is not None:
                    yield ArrayElement(self._passed + self._start, buffer[self._start : at])
                    self._start = None

    def _guess_end(self, buffer: bytes, start: int) -> int | None:
        """Return the end of the element at `start` if another with the same key follows."""
        key = _FIRST_KEY.match(buffer, start) if self._trust > 0 else None
        if key is None:
            return None
        border = re.compile(rb"\}\s*,\s*" + re.escape(key[0]))
        for match in islice(border.finditer(buffer, start), _GUESSES):
            end = match.start() + 1
            try:
                _decode_any(memoryview(buffer)[start:end])
            except UNREADABLE:
                continue
            self._trust = _TRUST
            return end
        self._trust -= 1
        return None

    def remaining_bytes(self, buffer: bytes) -> bytes:
        """Return the part of `buffer` that is still needed."""
        cut = self._read if self._start is None else self._start
        self._passed += cut
        self._read -= cut
        self._start = None if self._start is None else 0
        return buffer[cut:]

    def check_complete(self, buffer: bytes) -> None:
        """Raise `Invalid` if the stream ends inside an element or before the array does."""
        if self._depth > 0 or self._start is not None or buffer.strip():
            hint = "the download was incomplete: download it again"
            raise Invalid("the export ends in the middle", hint=hint)


class ExportFingerprint(Struct, frozen=True):
    """The hash in the name of the state file, and a fingerprint of the content."""

    file_hash: str
    fingerprint: str


class ExportedConversation(Struct, frozen=True):
    """One undecoded conversation of an export."""

    member: str
    offset: int
    data: bytes
    source: str

    @property
    def content_hash(self) -> str:
        """A hash of the bytes."""
        return hashlib.blake2b(self.data, digest_size=12).hexdigest()


def fingerprint_export(path: Path) -> ExportFingerprint:
    """Return a fingerprint of both ends of each file, its size and time; reads 2 MB of each."""
    if path.is_dir():
        parts = [fingerprint_export(member) for member in _unzipped_members(path)]
        digests = ("".join(part) for part in zip(*map(msgspec.structs.astuple, parts), strict=True))
        hashes = [hashlib.sha256(digest.encode()).hexdigest()[:_HASH_HEX] for digest in digests]
        return ExportFingerprint(*hashes)
    with _open_export(path) as file:
        size = path.stat().st_size
        head = file.read(_HEAD_BYTES)
        file.seek(max(0, size - _HEAD_BYTES))
        tail = file.read(_HEAD_BYTES)
    file_hash = hashlib.sha256(head + str(size).encode()).hexdigest()[:_HASH_HEX]
    stamp = f"{size}-{path.stat().st_mtime_ns}-{hashlib.sha256(tail).hexdigest()[:_HASH_HEX]}"
    return ExportFingerprint(file_hash, f"{file_hash}-{stamp}")


def export_size(path: Path) -> int:
    """Return the bytes of a file, or of the conversation files of a directory."""
    parts = _unzipped_members(path) if path.is_dir() else [path]
    return sum(part.stat().st_size for part in parts)


def check_export(path: Path) -> Path:
    """Return `path`, or raise if it is no export of a known vendor; reads only the beginning."""
    fingerprint_export(path)
    next(iter_elements(path), None)
    return path


def iter_elements(path: Path) -> Iterator[ExportedConversation]:
    """Yield every conversation of the export, undecoded."""
    for name, opened in _iter_members(path):
        source = ""
        with opened as stream:
            for element in _split_member(name, stream):
                source = source or _recognize_vendor(element.data)
                yield ExportedConversation(name, element.offset, element.data, source)


def account_names(path: Path) -> list[str]:
    """Return the owner's names, addresses and numbers in `users.json` or `user.json`."""
    values: list[str] = []
    with suppress(*UNREADABLE, *_ZIP_ERRORS):
        for data in _iter_account_files(path):
            content = msgspec.json.decode(data)
            accounts = content if isinstance(content, list) else [content]
            people = [account for account in accounts if isinstance(account, dict)]
            pairs = ((account, field) for account in people for field in _ACCOUNT_FIELDS)
            values += [str(account[field]) for account, field in pairs if account.get(field)]
    return values


def _iter_account_files(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        for member in sorted(path.rglob("user*.json")):
            if member.name in _ACCOUNT_FILES and member.resolve().is_relative_to(path.resolve()):
                with _open_export(member) as file:
                    yield file.read(_ACCOUNT_BYTES_MAX)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.rpartition("/")[2] in _ACCOUNT_FILES:
                    with archive.open(name) as file:
                        yield file.read(_ACCOUNT_BYTES_MAX)


def decode_element(element: ExportedConversation) -> Conversation | Damage:
    """Return the conversation of an element, or its damage."""
    try:
        return DECODERS[element.source](element.data)
    except UNREADABLE as error:
        place = (element.member, element.offset, len(element.data))
        return Damage(*place, f"no conversation: {error}")


def element_at(path: Path, member: str, offset: int) -> ExportedConversation | None:
    """Return the conversation at `offset` of a member, or None if none starts there."""
    elements = iter_elements(path)
    here = (element for element in elements if (element.member, element.offset) == (member, offset))
    return next(here, None)


def _iter_members(path: Path) -> Iterator[tuple[str, AbstractContextManager[IO[bytes]]]]:
    if path.is_dir():
        for member in _unzipped_members(path):
            yield member.relative_to(path).as_posix(), _open_export(member)
        return
    if not zipfile.is_zipfile(path):
        yield path.name, _open_export(path)
        return
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if _MEMBER.search(name))
        if not names:
            hint = "name the export as it was downloaded"
            raise Invalid("no conversations in this zip", hint=hint)
        # Compared with the size of the file: the sizes in its table may be wrong or overlap.
        total = sum(archive.getinfo(name).file_size for name in names)
        if total > max(_SMALL_BYTES, _RATIO_MAX * path.stat().st_size):
            raise Unreadable("the zip unpacks to more than 50 times its size", hint=_AGAIN_HINT)
        for name in names:
            yield name, _open_member(archive, name)


def _unzipped_members(folder: Path) -> list[Path]:
    """Return the conversation files of an unzipped export; links out of it are left out."""
    top, paths = folder.resolve(), sorted(folder.rglob("conversations*.json"))
    members = [path for path in paths if path.is_file() and path.resolve().is_relative_to(top)]
    if not members:
        raise Invalid(f"no conversations in this directory: {folder}", hint=_READ_HINT)
    return members


@contextmanager
def _open_export(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        hint = _READ_HINT
        raise NotFound(f"the export cannot be read: {error.strerror}: {path}", hint=hint) from None


@contextmanager
def _open_member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    try:
        with archive.open(name) as file:
            yield file
    except _ZIP_ERRORS as error:
        raise Unreadable(f"the zip is damaged: {error}: {name}", hint=_AGAIN_HINT) from error


def _split_member(name: str, stream: IO[bytes]) -> Iterator[ArrayElement]:
    try:
        yield from split_export(stream.read)
    except Invalid as error:
        raise Unreadable(f"{error.message}: {name}", hint=error.hint) from None


def _recognize_vendor(data: bytes) -> str:
    """Return the vendor, recognized by the fields of a conversation."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return chatgpt.SOURCE
    if "chat_messages" in fields:
        return claude_ai.SOURCE
    if "mapping" in fields:
        return chatgpt.SOURCE
    hint = "expected a list of objects with `mapping` or `chat_messages`"
    raise Invalid("neither a ChatGPT nor a Claude.ai export", hint=hint)
