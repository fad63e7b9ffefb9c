"""Redacting records: every string of a JSON value, keys included, structure kept.

A document is read twice: values are collected, then replaced wherever they occur. The strings
of many records are searched in one go with a NUL between them, which no detector crosses;
short strings met before are remembered. A record without anything private comes back byte for
byte, and one line in is one line out.
"""

import itertools
import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from flightlog.model.errors import UNREADABLE
from flightlog.model.output_files import Clean, Redacted
from flightlog.privacy.detect import decodings, engine, named_values
from flightlog.privacy.detect.candidates import contains_needle
from flightlog.privacy.detect.personal_data import HOME
from flightlog.privacy.redactor import ROUNDS_MAX, Redactor, count_removed, keeps_growing, was_truncated
from flightlog.privacy.scanner import iter_batches

_REMEMBERED_MAX = 50_000
_REMEMBERED_CHARS = 300
_SHORT_CHARS = 6
# A batch has a megabyte: more than any file that is read twice.
_BATCHES_MAX = 100_000


class JsonString(NamedTuple):
    """A string of a record, with its key where the key says something about it."""

    key: str
    text: str


class JsonRedactor:
    """Redacts records with one redactor, remembering short strings."""

    def __init__(self, redactor: Redactor, ordinary: Iterable[str] = ()) -> None:
        """Begin with nothing remembered but the `ordinary` keys, which say nothing about their values."""
        self.redactor = redactor
        self._remembered: dict[JsonString, str] = {}
        self._telling: dict[str, bool] = dict.fromkeys(ordinary, False)
        # For each batch of the first reading, its lines that need a closer look: the second looks at no others,
        # but for those that hold a value collected elsewhere.
        self._suspected: dict[int, array[int]] = {}
        self._growth = 0

    def collect_values(self, lines: Iterable[bytes]) -> None:
        """Read the lines of a document for the values in it, which every later call replaces wherever they occur.

        Memory stays flat: the last 10,000 values are remembered, and which lines need a closer look.
        """
        for batch in iter_batches(lines):
            self._redact_batch(batch, first_reading=True)

    def redact_document(self, value: Any) -> Redacted[Any]:
        """Return the JSON value with every string in it redacted, and how much was removed.

        A value recognized in one string is replaced in all of them.
        """
        clean = self.redact_value(value)
        return Redacted(clean, *count_removed(_encode_value(value), _encode_value(clean)))

    def redact_value(self, value: Any) -> Any:
        """Return the JSON value with every string in it redacted; deltas in a list of records are joined."""
        return self._redact_json_value(self.redactor.without_split_values(value) if isinstance(value, list) else value)

    def redact_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each line of JSON redacted; a line that is not JSON is redacted as text.

        A value counts from the batch of lines in which it is recognized, or in all lines if
        `collect_values` read them before.
        """
        for batch in iter_batches(lines):
            yield from self._redact_batch(batch)

    def redact_separate_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each line of JSON redacted as a document of its own."""
        for line in lines:
            self.redactor.known.forget_learned()
            yield from self._redact_batch([line])

    def redact_to_clean(self, lines: Iterable[bytes]) -> Clean:
        """Return lines of JSON, redacted, as text that may be published."""
        document = list(lines)
        self.collect_values(document)
        return Clean(b"".join(line + b"\n" for line in self.redact_lines(document)).decode("utf-8", "replace"))

    def redact_rows(self, rows: list[Any], indent: int = 0) -> Clean:
        """Return values, redacted, one line of JSON each, sorted, as text that may be published."""
        lines = sorted(_encode_value(row) for row in self.redact_value(rows))
        return Clean("".join(" " * indent + line.decode("utf-8", "replace") + "\n" for line in lines))

    def _redact_json_value(self, value: Any) -> Any:
        known = self.redactor.known
        for _ in range(ROUNDS_MAX):
            leaves: list[JsonString] = []
            names: set[JsonString] = set()
            growth = known.growth
            self._collect_leaves(value, "", leaves, names)
            answers = self._redact_strings([*leaves, *names])
            value = self._rebuild_value(value, "", answers) if answers else value
            # A key that has another name now may say something about its value.
            if names.isdisjoint(answers) and known.growth == growth:
                break
        return value

    def _redact_batch(self, lines: list[bytes], *, first_reading: bool = False) -> list[bytes]:
        """Redact lines, most of them by one look: what holds no trigger of any detector is done."""
        if (plain := decodings.decode_unicode_escapes(lines)) != lines:
            after = self._redact_batch(plain, first_reading=first_reading)
            return [old if new == read else new for old, read, new in zip(lines, plain, after, strict=True)]
        place = hash(raw := b"\0".join(lines))
        if contains_needle(raw, b'"delta"'):
            lines = self._redact_split_values(lines)
            raw = b"\0".join(lines)
        data = self.redactor.replace_home_dirs(raw)
        done = data.split(b"\0")
        if len(done) != len(lines):  # a line holds a NUL itself
            data = self.redactor.replace_home_dirs(b"\n".join(lines))
            done = data.split(b"\n")
            if len(done) != len(lines):
                return self._redact_by_string(lines)
            data = data.replace(b"\n", b"\0")
        known, growth = self.redactor.known, self.redactor.known.growth
        suspected = self._suspected.get(place)
        if suspected is None:
            found = dict(self._iter_suspect_lines(data, done))
            if first_reading and len(self._suspected) < _BATCHES_MAX:
                self._suspected[place] = array("I", found)
            self._replace_lines(done, list(found), list(found.values()))
        else:
            self._replace_lines(done, sorted({*suspected, *engine.lines_with_known_values(done, known)}))
        for _ in range(ROUNDS_MAX):
            if known.growth == growth:
                break
            growth = known.growth
            self._replace_lines(done, engine.lines_with_known_values(done, known))
        return done

    def _redact_split_values(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines without values that are split over the deltas of a content block."""
        heads = [5 if line.startswith(b"data:") else 0 for line in lines]
        values = [
            _decode_line(line[head:]) if b'"delta"' in line or b'_start"' in line else None
            for line, head in zip(lines, heads, strict=True)
        ]
        joined = self.redactor.without_split_values(values)
        return [
            line if new is old else line[:head] + b" " * (head > 0) + _encode_value(new)
            for line, head, old, new in zip(lines, heads, values, joined, strict=True)
        ]

    def _iter_suspect_lines(self, data: bytes, lines: list[bytes]) -> Iterator[tuple[int, list[engine.Detection]]]:
        """Yield which lines need a closer look, and what was found in them."""
        suspected = engine.find_suspect_records(data, self.redactor.known, self.redactor.make_work_budget())
        if suspected:
            starts = engine.line_starts(lines)
            for suspect in suspected:
                yield bisect_right(starts, suspect.begin) - 1, suspect.found

    def _replace_lines(
        self, lines: list[bytes], picked: list[int], found: list[list[engine.Detection]] | None = None
    ) -> None:
        """Redact the lines at `picked` in place."""
        for index, line in zip(
            picked, self._redact_until_stable([lines[index] for index in picked], found), strict=True
        ):
            lines[index] = line

    def _redact_until_stable(self, lines: list[bytes], found: list[list[engine.Detection]] | None) -> list[bytes]:
        """Redact lines until another look changes nothing: a tag can bring something else to light."""
        done, decoded = self._redact_carefully(lines, found)
        # What changed as it stood was looked at until nothing changed; what was decoded, not yet as it now stands.
        pending = [index for index in decoded if done[index] != lines[index]]
        for _ in range(ROUNDS_MAX):
            again, _ = self._redact_carefully([done[index] for index in pending])
            pending, before = [], pending
            for index, line in zip(before, again, strict=True):
                if line != done[index]:
                    done[index] = line
                    pending.append(index)
            if not pending:
                break
        return done

    def _redact_carefully(
        self, lines: list[bytes], found: list[list[engine.Detection]] | None = None
    ) -> tuple[list[bytes], set[int]]:
        """Redact lines as they stand where that is safe, else string by string; say which were read so.

        `found` is what was already found in each of them.
        """
        if any(b"\0" in line for line in lines):
            return self._redact_by_string(lines), set(range(len(lines)))
        done = list(lines)
        pending = list(range(len(lines)))
        decoded: set[int] = set()
        for _ in range(ROUNDS_MAX):
            changed, unsafe, final = self._run_round_in_place([done[index] for index in pending], found)
            found = None
            decoded |= {pending[at] for at in unsafe}
            for at, new in changed.items():
                done[pending[at]] = new
            pending = [pending[at] for at in changed if at not in final]
            if not pending:
                break
        decoded |= set(pending)
        for index, new in zip(decoded, self._redact_by_string([lines[index] for index in decoded]), strict=True):
            done[index] = new
        return done, decoded

    def _run_round_in_place(
        self, lines: list[bytes], told: list[list[engine.Detection]] | None
    ) -> tuple[dict[int, bytes], set[int], set[int]]:
        """Return the lines that one round changes, those to be read string by string, and those surely done."""
        joined = b"\0".join(lines)
        starts = list(itertools.accumulate((size + 1 for size in map(len, lines)), initial=0))
        by_line: dict[int, list[engine.Detection]] = {}
        unsafe = {bisect_right(starts, begin) - 1 for begin in engine.iter_deep_records(joined)}
        if told is None:
            every = self.redactor.detect(joined)
        else:
            every = [one.shift_by(start) for start, each in zip(starts, told, strict=False) for one in each]
        for one in every:
            at = bisect_right(starts, one.start) - 1
            by_line.setdefault(at, []).append(one)
            if not _is_in_one_string(joined, one):
                unsafe.add(at)
        changed = {}
        # A home directory is always inside a string, and without it nothing else comes to light.
        final = {at for at, found in by_line.items() if all(one.rule == HOME for one in found)}
        for at, found in by_line.items():
            if at not in unsafe:
                new = self.redactor.replace_detections(lines[at], [one.shift_by(-starts[at]) for one in found])
                if at in final or _is_json(new):
                    changed[at] = new
                else:
                    unsafe.add(at)
        return changed, unsafe, final

    def _redact_by_string(self, lines: list[bytes]) -> list[bytes]:
        """Redact lines string by string; all of them in one go, so that each value is learned once."""
        values = [_decode_line(line) for line in lines]
        clean = self._redact_json_value([None if isinstance(value, _NotJson) else value for value in values])
        return [
            self.redactor.redact_bytes(line)
            if isinstance(value, _NotJson)
            else line
            if value == new
            else _encode_value(new)
            for line, value, new in zip(lines, values, clean, strict=True)
        ]

    def _collect_leaves(self, value: Any, key: str, leaves: list[JsonString], names: set[JsonString]) -> None:
        if isinstance(value, str):
            if len(value) >= _SHORT_CHARS and (key or not _is_plain(value) or value in self.redactor.known):
                leaves.append(JsonString(key, value))
        elif isinstance(value, dict):
            for name, member in value.items():
                if len(name) > _SHORT_CHARS:
                    names.add(JsonString("", name))
                if isinstance(member, str | dict | list | tuple):
                    self._collect_leaves(member, name if self._is_secret_key(name) else "", leaves, names)
        elif isinstance(value, list | tuple):
            for member in value:
                self._collect_leaves(member, key, leaves, names)

    def _is_secret_key(self, key: str) -> bool:
        answer = self._telling.get(key)
        if answer is None:
            answer = bool(key) and len(key) < 80 and named_values.is_secret_name(key.encode("utf-8", "replace"))
            self._telling[key] = answer
        return answer

    def _redact_strings(self, leaves: list[JsonString]) -> dict[JsonString, str]:
        """Return the strings that change, and what they become."""
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.clear()
        known, unique = self.redactor.known, dict.fromkeys(leaves)
        results: dict[JsonString, str] = {}
        for _ in range(ROUNDS_MAX):
            if self._growth != known.growth:  # what was remembered may hold a value that is known by now
                self._remembered.clear()
                self._growth = known.growth
            fresh = [leaf for leaf in unique if leaf not in self._remembered and leaf not in results]
            results |= zip(fresh, self._redact_leaves(fresh), strict=True)
            if self._growth == known.growth:
                break
        self._remembered |= {leaf: text for leaf, text in results.items() if len(leaf.text) <= _REMEMBERED_CHARS}
        results |= {leaf: self._remembered[leaf] for leaf in unique if leaf not in results}
        return {leaf: text for leaf, text in results.items() if text != leaf.text}

    def _redact_leaves(self, leaves: list[JsonString]) -> list[str]:
        documents = [_leaf_document(leaf) for leaf in leaves]
        pending = list(range(len(documents)))
        hopeless: list[int] = []
        known, growth = self.redactor.known, self.redactor.known.growth
        for _ in range(ROUNDS_MAX):
            after = self._redact_documents([documents[index] for index in pending])
            changed = [(index, new) for index, new in zip(pending, after, strict=True) if new != documents[index]]
            hopeless += [index for index, new in changed if keeps_growing(documents[index], new)]
            cut = any(was_truncated(documents[index], new) for index, new in changed)
            if cut:
                self.redactor.clear_cache()
            for index, new in changed:
                documents[index] = new
            # All share what a look may cost: where one was cut, the others are seen beside what is left of it.
            again = range(len(documents)) if cut else [index for index, _ in changed]
            pending = [index for index in again if index not in hopeless]
            if known.growth != growth:
                growth = known.growth
                pending = sorted({*pending, *engine.lines_with_known_values(documents, known)}.difference(hopeless))
            if not pending:
                break
        for index in (*pending, *hopeless):
            tag = self.redactor.tag_whole_text(documents[index]).decode()
            documents[index] = _leaf_document(JsonString(leaves[index].key, tag))
        return [self._leaf_text(document, leaf) for document, leaf in zip(documents, leaves, strict=True)]

    def _redact_documents(self, documents: list[bytes]) -> list[bytes]:
        # A string that holds a NUL itself cannot be searched among others.
        together = [document for document in documents if b"\0" not in document]
        after = iter(self.redactor.redact_once(b"\0".join(together)).split(b"\0"))
        return [self.redactor.redact_once(document) if b"\0" in document else next(after) for document in documents]

    def _leaf_text(self, document: bytes, leaf: JsonString) -> str:
        prefix = _leaf_prefix(leaf.key)
        if document.startswith(prefix):
            whole = document[len(prefix) : len(document) - 1] if prefix else document
            return whole.decode("utf-8", "surrogatepass")
        return self.redactor.redact_string(leaf.text)

    def _rebuild_value(self, value: Any, key: str, answers: dict[JsonString, str]) -> Any:
        if isinstance(value, str):
            return answers.get(JsonString(key, value), value)
        if isinstance(value, list | tuple):
            return [self._rebuild_value(member, key, answers) for member in value]
        if not isinstance(value, dict):
            return value
        made: dict[str, Any] = {}
        for name, member in value.items():
            new = answers.get(JsonString("", name)) or str(name)
            while new in made:
                new += "_"
            made[new] = self._rebuild_value(member, name if self._is_secret_key(name) else "", answers)
        return made


class _NotJson:
    """A line that is not JSON."""


def _is_in_one_string(data: bytes, one: engine.Detection) -> bool:
    """Say whether a tag can take the place of `one` in raw JSON: no quote, no escape cut or hidden."""
    if len(one.spans) > 1 or data[one.start - 1 : one.start] == b"\\":
        return False
    text = data[one.start : one.end]
    return b'"' not in text and (b"\\" not in text or one.rule == "private-key") and not text.endswith(b"\\")


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True


def _decode_line(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return json.loads(line)  # half a surrogate pair is not UTF-8, yet agents write it
    except (ValueError, RecursionError):
        return _NotJson()


def _encode_value(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError):
        return json.dumps(value).encode()


def _is_plain(text: str) -> bool:
    """Say whether `text` is a bare UUID or time: most strings of a transcript are."""
    size = len(text)
    return (size == 36 and text[8] == "-" and text[13] == "-" and text[23] == "-") or (
        size == 24 and text[10] == "T" and text[-1] == "Z"
    )


def _leaf_document(leaf: JsonString) -> bytes:
    text = leaf.text.encode("utf-8", "surrogatepass")
    prefix = _leaf_prefix(leaf.key)
    return b"".join((prefix, text, b'"')) if prefix else text


def _leaf_prefix(key: str) -> bytes:
    return f'{key} = "'.encode("utf-8", "surrogatepass") if key else b""
