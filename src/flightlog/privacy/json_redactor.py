"""Redact JSON records: every string, keys included; the structure stays.

A document is read twice: values are collected, then replaced wherever they occur. The strings
of many records are searched at once with NULs between them, which no detector crosses; short
strings are cached. A record without private values is returned byte for byte, and each input
line gives one output line.
"""

import itertools
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flightlog.model.output_files import Clean, Redacted
from flightlog.privacy.detect import decodings, engine, named_values
from flightlog.privacy.detect.candidates import contains_needle
from flightlog.privacy.detect.personal_data import HOME
from flightlog.privacy.redactor import (
    ROUNDS_MAX,
    Redactor,
    count_removed,
    keeps_growing,
    was_truncated,
)
from flightlog.privacy.scanner import NOT_JSON, decode_line, encode_value, is_json, iter_batches

# Cached strings, and the length up to which a string is cached: short strings repeat.
_CACHED_MAX, _CACHED_CHARS = 50_000, 300
_SHORT_CHARS = 6  # no known value is shorter
_KEY_CHARS_MAX = 80  # a longer key is text, not a name
# A batch has a megabyte: together more than any file that is read twice.
_BATCHES_MAX = 100_000


# The detections in each of some lines, if a search was already made.
_LineDetections = list[list[engine.Detection]] | None


class JsonString(NamedTuple):
    """A string of a record, with its key if the key is the name of a secret."""

    key: str
    text: str


class JsonRedactor:
    """Redacts records with one redactor, and caches short strings."""

    def __init__(self, redactor: Redactor, ordinary: Iterable[str] = ()) -> None:
        """Start with an empty cache; the `ordinary` keys are never names of secrets."""
        self.redactor = redactor
        self._cache: dict[JsonString, str] = {}
        self._secret_keys: dict[str, bool] = dict.fromkeys(ordinary, False)
        # The suspect lines of each batch of the first reading, by the hash of the batch. The second
        # reading examines only those, and the lines with a value that was collected elsewhere.
        self._suspects: dict[int, array[int]] = {}
        self._growth = 0

    def collect_values(self, lines: Iterable[bytes]) -> None:
        """Collect the private values of a document, which every later call replaces wherever they occur.

        Memory is bounded: the last 10,000 values and the numbers of suspect lines are remembered.
        """
        for batch in iter_batches(lines):
            self._redact_batch(batch, first_reading=True)

    def redact_document(self, value: Any) -> Redacted[Any]:
        """Return the JSON value with every string redacted, and how much was removed.

        A value recognized in one string is replaced in all strings.
        """
        clean = self.redact_value(value)
        return Redacted(clean, *count_removed(encode_value(value), encode_value(clean)))

    def redact_value(self, value: Any) -> Any:
        """Return the JSON value with every string redacted; a list of records may split values in deltas."""
        if isinstance(value, list):
            value = self.redactor.without_split_values(value)
        return self._redact_json_value(value)

    def redact_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each line of JSON redacted; a line that is not JSON is redacted as text.

        A value is replaced from the batch on in which it is recognized, or in all lines after
        `collect_values`.
        """
        for batch in iter_batches(lines):
            yield from self._redact_batch(batch)

    def redact_separate_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield each line of JSON redacted as a separate document."""
        for line in lines:
            self.redactor.known.forget_learned()
            yield from self._redact_batch([line])

    def redact_to_clean(self, lines: Iterable[bytes]) -> Clean:
        """Return redacted lines of JSON as text that may be published."""
        document = list(lines)
        self.collect_values(document)
        clean = b"".join(line + b"\n" for line in self.redact_lines(document))
        return Clean(clean.decode("utf-8", "replace"))

    def redact_rows(self, rows: list[Any], indent: int = 0) -> Clean:
        """Return redacted values as sorted lines of JSON that may be published."""
        lines = sorted(encode_value(row) for row in self.redact_value(rows))
        indented = (" " * indent + line.decode("utf-8", "replace") + "\n" for line in lines)
        return Clean("".join(indented))

    def _redact_json_value(self, value: Any) -> Any:
        known = self.redactor.known
        for _ in range(ROUNDS_MAX):
            leaves: list[JsonString] = []
            names: set[JsonString] = set()
            growth = known.growth
            self._collect_leaves(value, "", leaves, names)
            answers = self._redact_strings([*leaves, *names])
            value = self._rebuild_value(value, "", answers) if answers else value
            # A renamed key may now be the name of a secret.
            if names.isdisjoint(answers) and known.growth == growth:
                break
        return value

    def _redact_batch(self, lines: list[bytes], *, first_reading: bool = False) -> list[bytes]:
        """Redact lines; one search shows that most of them have no private value."""
        if (plain := decodings.decode_unicode_escapes(lines)) != lines:
            after = self._redact_batch(plain, first_reading=first_reading)
            return [
                old if new == text else new
                for old, text, new in zip(lines, plain, after, strict=True)
            ]
        digest = hash(raw := b"\0".join(lines))
        if contains_needle(raw, b'"delta"'):
            lines = self._redact_split_values(lines)
            raw = b"\0".join(lines)
        data = self.redactor.replace_home_dirs(raw)
        done = data.split(b"\0")
        if len(done) != len(lines):  # a line contains a NUL
            data = self.redactor.replace_home_dirs(b"\n".join(lines))
            done = data.split(b"\n")
            if len(done) != len(lines):
                return self._redact_by_string(lines)
            data = data.replace(b"\n", b"\0")
        known, growth = self.redactor.known, self.redactor.known.growth
        suspects = self._suspects.get(digest)
        if suspects is None:
            detections = self._find_suspect_lines(data, done)
            if first_reading and len(self._suspects) < _BATCHES_MAX:
                self._suspects[digest] = array("I", detections)
            self._replace_lines(done, list(detections), list(detections.values()))
        else:
            revealed = engine.lines_with_known_values(done, known)
            self._replace_lines(done, sorted({*suspects, *revealed}))
        for _ in range(ROUNDS_MAX):
            if known.growth == growth:
                break
            growth = known.growth
            self._replace_lines(done, engine.lines_with_known_values(done, known))
        return done

    def _redact_split_values(self, lines: list[bytes]) -> list[bytes]:
        """Remove values that are split over the deltas of a content block."""
        heads = [5 if line.startswith(b"data:") else 0 for line in lines]
        values = [
            decode_line(line[head:]) if b'"delta"' in line or b'_start"' in line else None
            for line, head in zip(lines, heads, strict=True)
        ]
        joined = self.redactor.without_split_values(values)
        return [
            line if new is old else line[:head] + b" " * (head > 0) + encode_value(new)
            for line, head, old, new in zip(lines, heads, values, joined, strict=True)
        ]

    def _find_suspect_lines(
        self, data: bytes, lines: list[bytes]
    ) -> dict[int, list[engine.Detection]]:
        """Return the numbers of suspect lines, with the detections in them."""
        budget = self.redactor.make_work_budget()
        suspects = engine.find_suspect_records(data, self.redactor.known, budget)
        starts = engine.line_starts(lines) if suspects else []
        return {bisect_right(starts, suspect.begin) - 1: suspect.detections for suspect in suspects}

    def _replace_lines(
        self, lines: list[bytes], picked: list[int], detections: _LineDetections = None
    ) -> None:
        """Redact the lines at `picked` in place until nothing changes: a tag can reveal another value.

        `detections` are those already made in each of them.
        """
        before = [lines[index] for index in picked]
        done, decoded = self._redact_carefully(before, detections)
        # Lines redacted raw are already stable; decoded lines must be searched raw, too.
        pending = [index for index in decoded if done[index] != before[index]]
        for _ in range(ROUNDS_MAX):
            again, _ = self._redact_carefully([done[index] for index in pending])
            pairs = zip(pending, again, strict=True)
            changed = [(index, line) for index, line in pairs if line != done[index]]
            for index, line in changed:
                done[index] = line
            pending = [index for index, _ in changed]
            if not pending:
                break
        for index, line in zip(picked, done, strict=True):
            lines[index] = line

    def _redact_carefully(
        self, lines: list[bytes], detections: _LineDetections = None
    ) -> tuple[list[bytes], set[int]]:
        """Redact raw lines where that is safe, else string by string; return also the numbers of the latter."""
        if any(b"\0" in line for line in lines):
            return self._redact_by_string(lines), set(range(len(lines)))
        done = list(lines)
        pending = list(range(len(lines)))
        decoded: set[int] = set()
        for _ in range(ROUNDS_MAX):
            current = [done[index] for index in pending]
            changed, unsafe, final = self._run_round_in_place(current, detections)
            detections = None
            decoded |= {pending[at] for at in unsafe}
            for at, new in changed.items():
                done[pending[at]] = new
            pending = [pending[at] for at in changed if at not in final]
            if not pending:
                break
        decoded |= set(pending)
        clean = self._redact_by_string([lines[index] for index in decoded])
        for index, new in zip(decoded, clean, strict=True):
            done[index] = new
        return done, decoded

    def _run_round_in_place(
        self, lines: list[bytes], known: _LineDetections
    ) -> tuple[dict[int, bytes], set[int], set[int]]:
        """Return the lines that one round changes, those that must be decoded, and those surely done."""
        joined = b"\0".join(lines)
        starts = list(itertools.accumulate((size + 1 for size in map(len, lines)), initial=0))
        by_line: dict[int, list[engine.Detection]] = {}
        unsafe = {bisect_right(starts, begin) - 1 for begin in engine.iter_deep_records(joined)}
        if known is None:
            detections = self.redactor.detect(joined)
        else:
            by_start = zip(starts, known, strict=False)
            detections = [
                detection.shift_by(start) for start, of_line in by_start for detection in of_line
            ]
        for detection in detections:
            at = bisect_right(starts, detection.start) - 1
            by_line.setdefault(at, []).append(detection)
            if not detection.is_in_one_string(joined):
                unsafe.add(at)
        changed = {}
        # A home directory is always inside a string, and its replacement reveals nothing else.
        final = {at for at, of_line in by_line.items() if all(one.rule == HOME for one in of_line)}
        for at, of_line in by_line.items():
            if at not in unsafe:
                shifted = [detection.shift_by(-starts[at]) for detection in of_line]
                new = self.redactor.replace_detections(lines[at], shifted)
                if at in final or is_json(new):
                    changed[at] = new
                else:
                    unsafe.add(at)
        return changed, unsafe, final

    def _redact_by_string(self, lines: list[bytes]) -> list[bytes]:
        """Redact lines string by string; all at once, so that each value is learned once."""
        values = [decode_line(line) for line in lines]
        clean = self._redact_json_value([None if value is NOT_JSON else value for value in values])
        done = []
        for line, value, new in zip(lines, values, clean, strict=True):
            if value is NOT_JSON:
                done.append(self.redactor.redact_bytes(line))
            else:
                done.append(line if value == new else encode_value(new))
        return done

    def _collect_leaves(
        self, value: Any, key: str, leaves: list[JsonString], names: set[JsonString]
    ) -> None:
        if isinstance(value, str):
            if len(value) >= _SHORT_CHARS and (
                key or not _is_plain(value) or value in self.redactor.known
            ):
                leaves.append(JsonString(key, value))
        elif isinstance(value, dict):
            for name, member in value.items():
                if len(name) > _SHORT_CHARS:
                    names.add(JsonString("", name))
                if isinstance(member, str | dict | list | tuple):
                    secret_key = name if self._is_secret_key(name) else ""
                    self._collect_leaves(member, secret_key, leaves, names)
        elif isinstance(value, list | tuple):
            for member in value:
                self._collect_leaves(member, key, leaves, names)

    def _is_secret_key(self, key: str) -> bool:
        is_secret = self._secret_keys.get(key)
        if is_secret is None:
            is_short = 0 < len(key) < _KEY_CHARS_MAX
            is_secret = is_short and named_values.is_secret_name(key.encode("utf-8", "replace"))
            self._secret_keys[key] = is_secret
        return is_secret

    def _redact_strings(self, leaves: list[JsonString]) -> dict[JsonString, str]:
        """Return the redacted text of each string that changes."""
        if len(self._cache) > _CACHED_MAX:
            self._cache.clear()
        known, unique = self.redactor.known, dict.fromkeys(leaves)
        results: dict[JsonString, str] = {}
        for _ in range(ROUNDS_MAX):
            if self._growth != known.growth:  # a cached string may contain a value now known
                self._cache.clear()
                self._growth = known.growth
            fresh = [leaf for leaf in unique if leaf not in self._cache and leaf not in results]
            results |= zip(fresh, self._redact_leaves(fresh), strict=True)
            if self._growth == known.growth:
                break
        short = {leaf: text for leaf, text in results.items() if len(leaf.text) <= _CACHED_CHARS}
        self._cache |= short
        results |= {leaf: self._cache[leaf] for leaf in unique if leaf not in results}
        return {leaf: text for leaf, text in results.items() if text != leaf.text}

    def _redact_leaves(self, leaves: list[JsonString]) -> list[str]:
        documents = [_leaf_document(leaf) for leaf in leaves]
        pending = list(range(len(documents)))
        hopeless: list[int] = []
        known, growth = self.redactor.known, self.redactor.known.growth
        for _ in range(ROUNDS_MAX):
            after = self.redactor.redact_each_once([documents[index] for index in pending])
            pairs = zip(pending, after, strict=True)
            changed = [(index, new) for index, new in pairs if new != documents[index]]
            hopeless += [index for index, new in changed if keeps_growing(documents[index], new)]
            cut = any(was_truncated(documents[index], new) for index, new in changed)
            if cut:
                self.redactor.clear_cache()
            for index, new in changed:
                documents[index] = new
            # All strings share one work budget: if one was cut, search the others again without it.
            again = range(len(documents)) if cut else [index for index, _ in changed]
            pending = [index for index in again if index not in hopeless]
            if known.growth != growth:
                growth = known.growth
                revealed = engine.lines_with_known_values(documents, known)
                pending = sorted({*pending, *revealed}.difference(hopeless))
            if not pending:
                break
        for index in (*pending, *hopeless):
            tag = self.redactor.tag_whole_text(documents[index]).decode()
            documents[index] = _leaf_document(JsonString(leaves[index].key, tag))
        texts = zip(documents, leaves, strict=True)
        return [self._leaf_text(document, leaf) for document, leaf in texts]

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
        rebuilt: dict[str, Any] = {}
        for name, member in value.items():
            new = answers.get(JsonString("", name)) or str(name)
            while new in rebuilt:
                new += "_"
            secret_key = name if self._is_secret_key(name) else ""
            rebuilt[new] = self._rebuild_value(member, secret_key, answers)
        return rebuilt


def _is_plain(text: str) -> bool:
    """Return whether `text` is a bare UUID or time: most strings of a transcript are."""
    size = len(text)
    return (size == 36 and text[8] == "-" and text[13] == "-" and text[23] == "-") or (
        size == 24 and text[10] == "T" and text[-1] == "Z"
    )


def _leaf_document(leaf: JsonString) -> bytes:
    text, prefix = leaf.text.encode("utf-8", "surrogatepass"), _leaf_prefix(leaf.key)
    return prefix + text + b'"' if prefix else text


def _leaf_prefix(key: str) -> bytes:
    return f'{key} = "'.encode("utf-8", "surrogatepass") if key else b""
