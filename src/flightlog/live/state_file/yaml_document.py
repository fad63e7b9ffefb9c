"""A YAML file as chunks of text with the location of every value.

The file is cut at line ends: the header, each key of the root, each item of the two lists. A
chunk stores where each value is in its text, so that one value can be replaced without changing
any other byte.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from flightlog.model.errors import Invalid, iter_yaml_events, resolve_scalar

ITEM_KEYS = {"authProfiles": "profileId", "sessions": "sessionId"}
HEADER = "header"
# Values that are text, also where a person writes one that looks like a number: `label: 2024`.
_TEXT_KEYS = {"label", "authProfile", *ITEM_KEYS.values()}


class YamlError(Invalid):
    """A file that cannot be parsed; lines and columns count from 1."""

    def __init__(self, why: str, line: int, column: int) -> None:
        """Describe what is wrong and where."""
        hint = "correct the file; nothing in it was changed"
        super().__init__(f"line {line}, column {column}: {why}", hint=hint)
        self.line, self.column = line, column


class YamlNode(Struct, array_like=True):
    """A value and its location in a chunk's text.

    `after` is the offset right behind the key's colon; `keys` are the members of a mapping, in
    order. A list is one value. `quote` is the quotation mark around a string.
    """

    start: int
    end: int
    after: int
    value: Any = None
    keys: dict[str, "YamlNode"] | None = None
    is_flow: bool = False
    indent: int = 0
    quote: str = ""
    is_opaque: bool = False
    items: list["YamlNode"] | None = None  # of a list, only while the file is cut into chunks

    def to_python(self) -> Any:
        """Return the plain value."""
        if self.keys is None:
            return self.value
        return {name: node.to_python() for name, node in self.keys.items()}


class YamlChunk(Struct):
    """A run of whole lines: `header`, `r:KEY` for a key of the root, `LIST:ID` for an item."""

    key: str
    text: str
    node: YamlNode | None = None


def parse_chunks(text: str) -> list[YamlChunk]:
    """Cut a file into chunks; raise `YamlError` with the location of an error."""
    return list(_split_chunks(text, _parse_root(text)))


def relocate_values(key: str, text: str, node: YamlNode) -> YamlChunk:
    """Return a changed chunk; notations that only a person writes are located by the parser."""
    chunk = YamlChunk(key, text, node)
    first = next(iter((node.keys or {}).values()), None)
    if first is None or (first.keys is None and not _has_flow(node)):
        return chunk
    list_name, _, name = key.partition(":")
    lead = "" if list_name == "r" else f"{list_name}:\n"
    keys = _parse_root(lead + text).keys or {}
    located = keys[name] if list_name == "r" else (keys[list_name].items or [])[0]
    return YamlChunk(key, text, _shift_node(located, -len(lead)))


def _has_flow(node: YamlNode) -> bool:
    is_flow = node.is_flow and node.keys is not None
    return is_flow or any(map(_has_flow, (node.keys or {}).values()))


def _parse_root(text: str) -> YamlNode:
    from yaml import MarkedYAMLError, YAMLError  # noqa: PLC0415 - 20 ms, only after an edit

    try:
        return _Events(iter_yaml_events(text), text).read_root()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or "not YAML", mark.line + 1, mark.column + 1) from None
    except YAMLError as error:
        offset = getattr(error, "position", 0)
        line = text.count("\n", 0, offset) + 1
        raise YamlError("a character YAML does not allow", line, 1) from None
    except ValueError as error:
        raise YamlError(str(error), 1, 1) from None


class _Events:
    """Reads the parser's events into nodes."""

    def __init__(self, events: Iterator[Any], text: str) -> None:
        self._events = events
        self._text = text

    def read_root(self) -> YamlNode:
        event = next(self._events, None)
        node = self._read_node(event, 0) if event else YamlNode(0, 0, 0)
        next(self._events, None)  # raises for a second document
        if node.keys is None and node.value is None:
            return YamlNode(0, 0, 0, None, {})
        if node.keys is None or node.is_flow:
            raise YamlError("the file is not a block of `key: value` lines", 1, 1)
        return node

    def _read_node(self, event: Any, after: int) -> YamlNode:
        kind = type(event).__name__
        start, end = event.start_mark.index, event.end_mark.index
        if kind == "AliasEvent":
            return YamlNode(start, end, after, is_opaque=True)
        if kind == "ScalarEvent":
            quote = event.style if event.style in {"'", '"'} else ""
            plain = not event.style and event.tag is None
            value = resolve_scalar(event.value) if plain else event.value
            if not event.style and not event.value:
                start = end = after  # the parser locates an empty value at the next token
            return YamlNode(start, max(end, start), after, value, quote=quote)
        if kind == "MappingStartEvent":
            return self._read_mapping(event, after)
        return self._read_sequence(event, after)

    def _read_mapping(self, event: Any, after: int) -> YamlNode:
        node = YamlNode(event.start_mark.index, 0, after, keys={}, is_flow=bool(event.flow_style))
        node.indent = event.start_mark.column
        assert node.keys is not None
        last = node.start
        while type(key := next(self._events)).__name__ != "MappingEndEvent":
            line, column = key.start_mark.line + 1, key.start_mark.column + 1
            if type(key).__name__ != "ScalarEvent":
                raise YamlError("a key that is not a word", line, column)
            if not node.keys:
                node.indent = key.start_mark.column
            if key.value in node.keys:
                raise YamlError(f"`{key.value[:40]}` twice", line, column)
            colon = self._text.find(":", key.end_mark.index) + 1
            child = self._read_node(next(self._events), colon)
            if key.value in _TEXT_KEYS and isinstance(child.value, int | float):
                child.value = self._text[child.start : child.end]
            node.keys[key.value] = child
            last = max(child.end, colon)
        # The parser ends a block at the next token, which would include comments in between.
        node.end = key.end_mark.index if node.is_flow else last
        return node

    def _read_sequence(self, event: Any, after: int) -> YamlNode:
        items: list[YamlNode] = []
        last = event.start_mark.index
        while type(child := next(self._events)).__name__ != "SequenceEndEvent":
            items.append(self._read_node(child, child.start_mark.index))
            last = items[-1].end
        is_flow = bool(event.flow_style)
        end = child.end_mark.index if is_flow else last
        node = YamlNode(event.start_mark.index, end, after, is_flow=is_flow)
        node.value = [item.to_python() for item in items]
        node.indent, node.items = event.start_mark.column, items
        return node


def _split_chunks(text: str, root: YamlNode) -> Iterator[YamlChunk]:
    keys = root.keys or {}
    starts = [_line_start(text, _key_offset(text, node)) for node in keys.values()]
    heads = [_with_comments(text, start, 0) for start in starts]
    yield YamlChunk(HEADER, text[: heads[0]] if heads else text)
    for (name, node), start, end in zip(keys.items(), heads, [*heads[1:], len(text)], strict=False):
        if name in ITEM_KEYS:
            yield from _list_chunks(text, name, node, (start, end))
        else:
            yield YamlChunk(f"r:{name}", text[start:end], _shift_node(node, -start))


def _list_chunks(
    text: str, name: str, node: YamlNode, span: tuple[int, int]
) -> Iterator[YamlChunk]:
    items = node.items or []
    start, end = span
    line = text.count("\n", 0, node.start) + 1
    if node.value is not None and not isinstance(node.value, list):
        raise YamlError(f"`{name}` is not a list", line, 1)
    if node.is_flow and items:
        message = f"write each item of `{name}` on its own lines, beginning with `- `"
        raise YamlError(message, line, 1)
    heads = [_with_comments(text, _line_start(text, item.start), node.indent) for item in items]
    root_node = None if heads else _shift_node(node, -start)
    yield YamlChunk(f"r:{name}", text[start : heads[0] if heads else end], root_node)
    seen: set[str] = set()
    for item, head, stop in zip(items, heads, [*heads[1:], end], strict=False):
        own = item.keys.get(ITEM_KEYS[name]) if item.keys is not None else None
        at = text.count("\n", 0, item.start) + 1
        if own is None or not isinstance(own.value, str):
            raise YamlError(f"an item of `{name}` without `{ITEM_KEYS[name]}`", at, node.indent + 1)
        if own.value in seen:
            raise YamlError(f"`{own.value[:40]}` twice in `{name}`", at, node.indent + 1)
        seen.add(own.value)
        yield YamlChunk(f"{name}:{own.value}", text[head:stop], _shift_node(item, -head))


def _key_offset(text: str, node: YamlNode) -> int:
    return text.rfind("\n", 0, max(node.after - 1, 0)) + 1


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _with_comments(text: str, start: int, indent: int) -> int:
    """Move `start` above the comment lines right before it that are not indented deeper."""
    while start:
        above = _line_start(text, start - 1)
        line = text[above : start - 1]
        lead = len(line) - len(line.lstrip(" "))
        if not line.strip().startswith("#") or lead > indent:
            return start
        start = above
    return start


def _shift_node(node: YamlNode, by: int) -> YamlNode:
    keys = node.keys and {name: _shift_node(child, by) for name, child in node.keys.items()}
    span = (node.start + by, node.end + by, node.after + by)
    return YamlNode(*span, node.value, keys, node.is_flow, node.indent, node.quote, node.is_opaque)
