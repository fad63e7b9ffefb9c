"""Opening an export: which file of the zip, which vendor, and its conversations one by one.

Never unpacks to disk and holds one conversation at a time. An element that is no conversation is
damage, counted; the others are read.
"""

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE, Damage
from flightlog.model.errors import Invalid, NotFound, Unreadable
from flightlog.sources.exports import chatgpt, claude_ai
from flightlog.sources.exports.chat import Conversation
from flightlog.sources.exports.pieces import ArrayElement, split_export

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
