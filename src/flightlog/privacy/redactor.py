"""Replace secrets by keyed tags in text; the tag key.

The same key on a second machine gives the same tags there; whoever lacks it learns nothing
from a tag. Made on first use.

Each value becomes a tag that is the same for the same value and key, and says nothing of
the value to a reader without the key. A value recognized once is replaced wherever else it
occurs. Redacting twice changes nothing. Text is redacted whole, before anything cuts it.
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
from flightlog.privacy.detect.candidates import HIGH, LOW, SECRET, UNJUDGED, Memory, WorkBudget, contains_needle
from flightlog.privacy.detect.known_values import KnownSecrets
from flightlog.privacy.detect.personal_data import HOME, anonymous_home, strip_owner
from flightlog.store import files
from flightlog.store.directories import ensure_writable

_BYTES = 32
_LEAD = "flightlog-privacy-key-1"
_TAG_HEX = 6
_GIVEN_UP = f"<{SECRET}:{UNJUDGED}:".encode()
_HOMES_MAX = 16
_HOME = rules.linear_pattern(rb"(?:/(?:home|Users)/|-(?:home|Users)-|[A-Za-z]:(?:\\+|/)Users(?:\\+|/))[A-Za-z0-9]")
# A replacement changes what stands beside it, and a recognized value is replaced elsewhere one round later;
# after this many rounds nothing new was ever found.
ROUNDS_MAX = 8


def load_key(path: Path) -> bytes:
    """Return the key at `path`, making it on first use."""
    if not path.exists():
        ensure_writable(path.parent)
        files.create_file(path, secrets.token_bytes(_BYTES).hex().encode() + b"\n")
    return _read_key(path)


def key_fingerprint(key: bytes) -> str:
    """Return a short name of `key` that tells two keys apart and reveals neither."""
    return hashlib.sha256(b"fingerprint" + key).hexdigest()[:12]


def encode_key(key: bytes) -> str:
    """Return `key` as one line for another machine."""
    return f"{_LEAD}:{key.hex()}:{_key_checksum(key)}"


def import_key(path: Path, line: str, *, replace: bool = False) -> bytes:
    """Put the exported key of `line` at `path`; another key there stays unless `replace`."""
    lead, _, rest = line.strip().partition(":")
    digits, _, check = rest.partition(":")
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if lead != _LEAD or len(key) != _BYTES or check != _key_checksum(key):
        raise Invalid("not an exported key, or cut short", hint="make one with: flightlog privacy key export")
    if path.exists() and not replace and _read_key(path) != key:
        raise Conflict(
            "another key is here; tags made with it would no longer match",
            hint="replace it with: flightlog privacy key import --yes",
        )
    ensure_writable(path.parent)
    files.replace_file(path, key.hex().encode() + b"\n")
    return key


def _read_key(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != _BYTES:
        raise Unreadable(
            f"the privacy key cannot be read: {path}", hint="restore it with: flightlog privacy key import"
        )
    return key


def _key_checksum(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]


class SecretFinding(Struct, frozen=True):
    """What was found, where, and how sure; the value only masked."""

    rule: str
    kind: str
    confidence: str
    start: int
    end: int
    masked: str


class Redactor:
    """Redacts one document with one key: values it recognized are known in every later text."""

    def __init__(
        self,
        key: bytes,
        *,
        known: Iterable[str] = (),
        names: Iterable[str] = (),
        homes: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the key, the `known` secrets, and the `names` of the person and the machine.

        `homes` maps directories to what they are called instead, as the repository to `.`.
        """
        self._key = key
        self.known = KnownSecrets(known, names)
        self._memory: Memory = {}
        # Paths repeat in each record of a transcript; renaming those seen before, in their order, costs one pass.
        self._seen: dict[bytes, None] = {}
        self._homes = {
            path.encode("utf-8", "surrogatepass"): name.encode("utf-8", "surrogatepass")
            for path, name in sorted((homes or {}).items(), key=lambda pair: -len(pair[0]))
            if len(path) > 1
        }

    def redact_text(self, text: str) -> Redacted[Clean]:
        """Return `text` without what is private, and how much was removed."""
        before = text.encode("utf-8", "surrogatepass")
        after = self.redact_bytes(before)
        return Redacted(Clean(after.decode("utf-8", "surrogatepass")), *count_removed(before, after))

    def redact_as_clean(self, text: str) -> Clean:
        """Return `text` as a value that may be published."""
        return Clean(self.redact_string(text))

    def redact_string(self, text: str) -> str:
        """Return `text` without what is private."""
        return self.redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def redact_bytes(self, data: bytes) -> bytes:
        """Return the UTF-8 text `data` without what is private."""
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
        """Return what stands for a text in which every replacement brings something else to light."""
        return self.tag_for_value(SECRET, UNJUDGED, data)

    def redact_once(self, data: bytes) -> bytes:
        """Return `data` after one round; it is clean when a round changes nothing."""
        data = self.replace_home_dirs(data)
        found = self.detect(data)
        return self.replace_detections(data, found) if found else data

    def replace_home_dirs(self, data: bytes) -> bytes:
        """Return `data` with directories already seen to name a person renamed."""
        for path, name in self._homes.items():
            data = data.replace(path + b"/", name + b"/") if contains_needle(data, path) else data
        for path in self._seen:
            data = strip_owner(data, path) if contains_needle(data, path) else data
        return data

    def detect(self, data: bytes) -> list[engine.Detection]:
        """Return what is private in the UTF-8 text `data`, offsets in bytes."""
        return engine.find_private_values(data, self.known, self.make_work_budget())

    def make_work_budget(self) -> WorkBudget:
        """Return what bounds the work of one look; all looks remember the same words."""
        return WorkBudget(self._memory)

    def clear_cache(self) -> None:
        """Forget what was judged: what is left after a cut must stand before somebody who remembers nothing."""
        self._memory.clear()

    def find_in_text(self, text: str) -> list[SecretFinding]:
        """Return what is private in `text`, offsets in characters."""
        data = text.encode("utf-8", "surrogatepass")
        at = chars = 0
        findings = []
        for one in engine.find_private_values(data, self.known):
            chars, at = chars + len(data[at : one.start].decode("utf-8", "replace")), one.start
            width = len(data[one.start : one.end].decode("utf-8", "replace"))
            findings.append(
                SecretFinding(
                    one.rule, one.kind, confidence_label(one.weight), chars, chars + width, mask_value(one.value)
                )
            )
        return findings

    def tag_for_value(self, kind: str, rule: str, value: bytes) -> bytes:
        """Return what stands for `value`."""
        digest = hmac.digest(self._key, kind.encode() + b"\0" + value, "sha256").hex()
        return f"<{kind}:{rule}:{digest[:_TAG_HEX]}>".encode()

    def replace_detections(self, data: bytes, found: list[engine.Detection]) -> bytes:
        """Return `data` with a tag in place of each that was found."""
        return b"".join(self._replace_in_pieces([data], found))

    def without_split_values(self, records: list[Any]) -> list[Any]:
        """Return the records, those as they are in which no delta of a content block changes."""
        done = list(records)
        for block in decodings.iter_delta_blocks(records):
            pieces = [delta.text.encode("utf-8", "surrogatepass") for delta in block]
            for delta, old, new in zip(block, pieces, self.redact_pieces(pieces), strict=True):
                if new != old:
                    text = new.decode("utf-8", "surrogatepass")
                    done[delta.record] = decodings.replace_text_at(done[delta.record], delta.path, text)
        return done

    def redact_pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Return the pieces of one text without what is private in it, also where a piece holds only a part."""
        for _ in range(ROUNDS_MAX):
            found = self.detect(b"".join(pieces))
            if not found:
                break
            pieces = self._replace_in_pieces(pieces, found)
        return pieces

    def _replace_in_pieces(self, pieces: list[bytes], found: list[engine.Detection]) -> list[bytes]:
        """Return the pieces of a text with a tag in the piece where each that was found begins."""
        cuts = sorted(
            (span, self._replacement_for(one) if index == 0 else b"")
            for one in found
            for index, span in enumerate(one.spans)
        )
        done, low, number, at = [], 0, 0, 0
        for piece in pieces:
            parts, high = [], low + len(piece)
            while number < len(cuts) and cuts[number][0][0] < high:
                (start, end), stand_in = cuts[number]
                if start >= low:
                    parts += [piece[max(at, low) - low : start - low], stand_in]
                at = end
                if end > high:
                    break
                number += 1
            parts.append(piece[max(at, low) - low :])
            done.append(b"".join(parts))
            low = high
        return done

    def _replacement_for(self, one: engine.Detection) -> bytes:
        if one.rule == HOME:
            if one.value[:1] in b"/-" and len(self._seen) < _HOMES_MAX:
                self._seen[one.value] = None
            return anonymous_home(one.value)
        kind, rule = one.kind, one.rule
        if rule != UNJUDGED:
            kind, rule = self.known.learn_value(one.value, kind, rule)
        return self.tag_for_value(kind, rule, one.value)


def count_each(before: Iterable[Any], after: Iterable[Any]) -> list[Redacted[Any]]:
    """Return the redacted JSON values `after`, each with how much of the one `before` it was removed."""
    pairs = zip(before, after, strict=True)
    return [Redacted(new, *count_removed(json.dumps(old).encode(), json.dumps(new).encode())) for old, new in pairs]


def count_removed(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many secrets and how many personal details of `before` are no longer in `after`."""
    if before == after:
        return 0, 0
    secrets, persons = (after.count(head) - before.count(head) for head in (b"<secret:", b"<person:"))
    homes = len(_HOME.findall(before)) - len(_HOME.findall(after))
    return max(0, secrets), max(0, persons) + max(0, homes)


def was_truncated(before: bytes, after: bytes) -> bool:
    """Whether a part of a text was given up now."""
    return before.count(_GIVEN_UP) < after.count(_GIVEN_UP)


def keeps_growing(before: bytes, after: bytes) -> bool:
    """Whether a text had to be given up in part before, and now in part again: it would be, to its beginning."""
    return 0 < before.count(_GIVEN_UP) < after.count(_GIVEN_UP)


def mask_value(value: bytes) -> str:
    """Return enough of `value` to recognise it by, never enough to use it."""
    text = value.decode("utf-8", "replace")
    shown = 4 if len(text) >= 20 else 2 if len(text) >= 12 else 0
    return text[:shown] + "*" * min(len(text) - shown, 12)


def confidence_label(weight: int) -> str:
    return "high" if weight >= HIGH else "low" if weight <= LOW else "medium"
