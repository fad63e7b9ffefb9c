"""Replace private values in text by keyed tags; read, export and import the key.

A tag is the same for the same value and key, also on another machine, and reveals nothing to a
reader without the key. The key is made on first use. A value recognized once is replaced
wherever else it occurs. Redacting twice changes nothing. Text is redacted whole, before anything
cuts it.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.model.errors import Conflict, Invalid, Unreadable
from flightlog.model.output_files import Clean, Redacted
from flightlog.privacy.detect import decodings, engine, rules
from flightlog.privacy.detect.candidates import (
    HIGH,
    LOW,
    SECRET,
    UNJUDGED,
    Memory,
    WorkBudget,
    contains_needle,
)
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.detect.personal_data import HOME, anonymous_home, strip_owner
from flightlog.store import files
from flightlog.store.directories import ensure_writable

_KEY_BYTES = 32  # as long as a SHA-256 digest
_KEY_PREFIX = "flightlog-privacy-key-1"  # of an exported key, with its version
_TAG_HEX = 6  # enough to distinguish the values of one document, too little to guess a value from
_UNJUDGED_TAG = f"<{SECRET}:{UNJUDGED}:".encode()
_HOMES_MAX = 16  # each remembered home directory costs a pass over every text
# A home directory with its owner, in plain paths, slugs and Windows paths.
_HOME = rules.linear_pattern(
    rb"(?:/(?:home|Users)/|-(?:home|Users)-|[A-Za-z]:(?:\\+|/)Users(?:\\+|/))[A-Za-z0-9]"
)
# A tag changes the text beside it, and a recognized value is replaced elsewhere one round later. No
# text was ever seen to need this many rounds.
ROUNDS_MAX = 8


def load_key(path: Path) -> bytes:
    """Return the key at `path`; make it on first use."""
    if not path.exists():
        ensure_writable(path.parent)
        files.create_file(path, secrets.token_bytes(_KEY_BYTES).hex().encode() + b"\n")
    return _read_key(path)


def key_fingerprint(key: bytes) -> str:
    """Return a short name of `key` that distinguishes keys and reveals none."""
    return hashlib.sha256(b"fingerprint" + key).hexdigest()[:12]


def encode_key(key: bytes) -> str:
    """Return `key` as one line for another machine."""
    return f"{_KEY_PREFIX}:{key.hex()}:{_key_checksum(key)}"


def import_key(path: Path, line: str, *, replace: bool = False) -> bytes:
    """Write the exported key of `line` to `path`; raise `Conflict` for another key unless `replace`."""
    prefix, _, rest = line.strip().partition(":")
    digits, _, check = rest.partition(":")
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if prefix != _KEY_PREFIX or len(key) != _KEY_BYTES or check != _key_checksum(key):
        hint = "make one with: flightlog privacy key export"
        raise Invalid("not an exported key, or cut short", hint=hint)
    if path.exists() and not replace and _read_key(path) != key:
        hint = "replace it with: flightlog privacy key import --yes"
        raise Conflict("another key is here; tags made with it would no longer match", hint=hint)
    ensure_writable(path.parent)
    files.replace_file(path, key.hex().encode() + b"\n")
    return key


def _read_key(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        hint = "restore it with: flightlog privacy key import"
        raise Unreadable(f"the privacy key cannot be read: {path}", hint=hint)
    return key


def _key_checksum(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]


class SecretFinding(Struct, frozen=True):
    """A private value: its rule, offsets and confidence; the value is masked."""

    rule: str
    kind: str
    confidence: str
    start: int
    end: int
    masked_value: str


class Redactor:
    """Redacts one document with one key; a recognized value is replaced in every later text."""

    def __init__(
        self,
        key: bytes,
        *,
        known: Iterable[str] = (),
        names: Iterable[str] = (),
        homes: Mapping[str, str] | None = None,
    ) -> None:
        """Start with `known` secrets and the `names` of the person and the machine.

        `homes` maps directories to their replacements, as the repository to `.`.
        """
        self._key = key
        self.known = KnownSecrets(known, names)
        self._memory: Memory = {}
        # Paths repeat in each record of a transcript: replacing the home directories that were
        # already seen, in their order, is cheaper than a judgement of each.
        self._seen: dict[bytes, None] = {}
        self._homes = {
            path.encode("utf-8", "surrogatepass"): name.encode("utf-8", "surrogatepass")
            for path, name in sorted((homes or {}).items(), key=lambda pair: -len(pair[0]))
            if len(path) > 1
        }

    def redact_text(self, text: str) -> Redacted[Clean]:
        """Return the redacted `text`, and how much was removed."""
        before = text.encode("utf-8", "surrogatepass")
        after = self.redact_bytes(before)
        clean = Clean(after.decode("utf-8", "surrogatepass"))
        return Redacted(clean, *count_removed(before, after))

    def redact_as_clean(self, text: str) -> Clean:
        """Return the redacted `text` as text that may be published."""
        return Clean(self.redact_string(text))

    def redact_string(self, text: str) -> str:
        """Return the redacted `text`."""
        redacted = self.redact_bytes(text.encode("utf-8", "surrogatepass"))
        return redacted.decode("utf-8", "surrogatepass")

    def redact_bytes(self, data: bytes) -> bytes:
        """Return the redacted UTF-8 text `data`."""
        for _ in range(ROUNDS_MAX):
            before, data = data, self.redact_once(data)
            if data == before:
                return data
            if keeps_growing(before, data):
                break
            if was_truncated(before, data):
                self.clear_cache()
        return self.tag_whole_text(data)

    def tag_whole_text(self, data: bytes) -> bytes:
        """Return one tag for a whole text that does not become stable."""
        return self.tag_for_value(SECRET, UNJUDGED, data)

    def redact_once(self, data: bytes) -> bytes:
        """Return `data` after one round; it is redacted when a round changes nothing."""
        data = self.replace_home_dirs(data)
        detections = self.detect(data)
        return self.replace_detections(data, detections) if detections else data

    def redact_each_once(self, documents: list[bytes]) -> list[bytes]:
        """Return each document after one round, searched together with NULs between them."""
        # A document that contains a NUL cannot be searched among others.
        together = [document for document in documents if b"\0" not in document]
        after = self.redact_once(b"\0".join(together)).split(b"\0")
        if len(after) != len(together):  # a value was found across the end of a document
            return list(map(self.redact_once, documents))
        rest = iter(after)
        return [self.redact_once(one) if b"\0" in one else next(rest) for one in documents]

    def replace_home_dirs(self, data: bytes) -> bytes:
        """Return `data` with the home directories that were already seen replaced."""
        for path, name in self._homes.items():
            data = data.replace(path + b"/", name + b"/") if contains_needle(data, path) else data
        for path in self._seen:
            data = strip_owner(data, path) if contains_needle(data, path) else data
        return data

    def detect(self, data: bytes) -> list[engine.Detection]:
        """Return the private values in the UTF-8 text `data`, with offsets in bytes."""
        return engine.find_private_values(data, self.known, self.make_work_budget())

    def make_work_budget(self) -> WorkBudget:
        """Return the work budget of one search; all searches share cached judgements."""
        return WorkBudget(self._memory)

    def clear_cache(self) -> None:
        """Clear the cached judgements: the rest of a cut text must be stable without them, too."""
        self._memory.clear()

    def find_in_text(self, text: str) -> list[SecretFinding]:
        """Return the private values in `text`, with offsets in characters."""
        data = text.encode("utf-8", "surrogatepass")
        at = chars = 0
        findings = []
        for one in engine.find_private_values(data, self.known):
            chars, at = chars + len(data[at : one.start].decode("utf-8", "replace")), one.start
            end = chars + len(data[one.start : one.end].decode("utf-8", "replace"))
            confidence, masked = confidence_label(one.weight), mask_value(one.value)
            findings.append(SecretFinding(one.rule, one.kind, confidence, chars, end, masked))
        return findings

    def tag_for_value(self, kind: str, rule: str, value: bytes) -> bytes:
        """Return the tag of `value`."""
        digest = hmac.digest(self._key, kind.encode() + b"\0" + value, "sha256").hex()
        return f"<{kind}:{rule}:{digest[:_TAG_HEX]}>".encode()

    def replace_detections(self, data: bytes, detections: list[engine.Detection]) -> bytes:
        """Return `data` with a tag in place of each detection."""
        return b"".join(self._replace_in_pieces([data], detections))

    def without_split_values(self, records: list[Any]) -> list[Any]:
        """Redact values that are split over the deltas of a content block; other records stay identical."""
        done = list(records)
        for block in decodings.iter_delta_blocks(records):
            pieces = [delta.text.encode("utf-8", "surrogatepass") for delta in block]
            for delta, old, new in zip(block, pieces, self.redact_pieces(pieces), strict=True):
                if new != old:
                    text = new.decode("utf-8", "surrogatepass")
                    event = done[delta.record]
                    done[delta.record] = decodings.replace_text_at(event, delta.path, text)
        return done

    def redact_pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Redact the text that `pieces` are parts of, and return its pieces."""
        for _ in range(ROUNDS_MAX):
            detections = self.detect(b"".join(pieces))
            if not detections:
                break
            pieces = self._replace_in_pieces(pieces, detections)
        return pieces

    def _replace_in_pieces(
        self, pieces: list[bytes], detections: list[engine.Detection]
    ) -> list[bytes]:
        """Remove each detection from the pieces of a text, and put its tag where it begins."""
        cuts = sorted(
            (span, self._replacement_for(detection) if index == 0 else b"")
            for detection in detections
            for index, span in enumerate(detection.spans)
        )
        done, low, number, at = [], 0, 0, 0
        for piece in pieces:
            parts, high = [], low + len(piece)
            while number < len(cuts) and cuts[number][0][0] < high:
                (start, end), replacement = cuts[number]
                if start >= low:
                    parts += [piece[max(at, low) - low : start - low], replacement]
                at = end
                if end > high:
                    break
                number += 1
            parts.append(piece[max(at, low) - low :])
            done.append(b"".join(parts))
            low = high
        return done

    def _replacement_for(self, detection: engine.Detection) -> bytes:
        if detection.rule == HOME:
            if detection.value[:1] in b"/-" and len(self._seen) < _HOMES_MAX:
                self._seen[detection.value] = None
            return anonymous_home(detection.value)
        kind, rule = detection.kind, detection.rule
        if rule != UNJUDGED:
            kind, rule = self.known.learn_value(detection.value, kind, rule)
        return self.tag_for_value(kind, rule, detection.value)


def count_each(before: Iterable[Any], after: Iterable[Any]) -> list[Redacted[Any]]:
    """Return each redacted JSON value of `after` with how much was removed from the one of `before`."""
    return [
        Redacted(new, *count_removed(json.dumps(old).encode(), json.dumps(new).encode()))
        for old, new in zip(before, after, strict=True)
    ]


def count_removed(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many secrets and personal details of `before` are no longer in `after`."""
    if before == after:
        return 0, 0
    heads = (b"<secret:", b"<person:")
    secrets, persons = (after.count(head) - before.count(head) for head in heads)
    homes = len(_HOME.findall(before)) - len(_HOME.findall(after))
    return max(0, secrets), max(0, persons) + max(0, homes)


def was_truncated(before: bytes, after: bytes) -> bool:
    """Return whether this round replaced a part of the text without judging it."""
    return before.count(_UNJUDGED_TAG) < after.count(_UNJUDGED_TAG)


def keeps_growing(before: bytes, after: bytes) -> bool:
    """Return whether another part of the text was replaced unjudged: that would go on to its beginning."""
    return 0 < before.count(_UNJUDGED_TAG) < after.count(_UNJUDGED_TAG)


def mask_value(value: bytes) -> str:
    """Return enough of `value` to recognize it, but not enough to use it."""
    text = value.decode("utf-8", "replace")
    shown = 4 if len(text) >= 20 else 2 if len(text) >= 12 else 0
    return text[:shown] + "*" * min(len(text) - shown, 12)


def confidence_label(weight: int) -> str:
    """Return the word for a detector's weight."""
    return "high" if weight >= HIGH else "low" if weight <= LOW else "medium"
