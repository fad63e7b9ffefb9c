"""Writing values into chunks: one exchanged, one added, an item laid out; every other byte stays.

Places are kept up as the text changes, so that a chunk need not be parsed again.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flightlog.live.state_file.yaml_document import YamlChunk, YamlNode, resolve_scalar

_PLAIN = re.compile(r"[A-Za-z0-9_/~.][A-Za-z0-9_ ./~@+:()%-]*")
NOTES = "#"  # a key that begins so is a comment line of its own


class TextEdit(NamedTuple):
    """A stretch of a chunk's text to be exchanged; nodes that begin in it begin and end where it does."""

    start: int
    end: int
    text: str


def to_yaml_scalar(value: Any, quote: str = "") -> str:
    """A value as YAML on one line; a string keeps the quotation marks it had."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if quote == "'" and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        return value if not quote and _is_plain(value) else _quote_scalar(value)
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{to_yaml_scalar(str(key))}: {to_yaml_scalar(each)}" for key, each in value.items()) + "}"
        )
    return (
        "[" + ", ".join(_quote_scalar(each) if isinstance(each, str) else to_yaml_scalar(each) for each in value) + "]"
    )


def render_block(item: Mapping[str, Any], indent: int, comments: Mapping[str, str]) -> tuple[str, YamlNode]:
    """Lay a mapping out as a block, and say where each value stands; `comments` go behind the keys they name."""
    node = YamlNode(0, 0, 0, keys={}, indent=indent)
    return _render_lines(item, node, 0, comments), node


def new_item(key: str, item: Mapping[str, Any], indent: int, comments: Mapping[str, str]) -> YamlChunk:
    """A chunk for a new item of a list."""
    text, node = render_block(item, indent + 2, comments)
    # The dash takes the place of the first line's indentation.
    return YamlChunk(key, " " * indent + "- " + text[indent + 2 :], node)


def apply_values(chunk: YamlChunk, new: Mapping[str, Any], comments: Mapping[str, str]) -> YamlChunk:
    """The chunk with the values of `new` in place of its own; what `new` does not name stays."""
    assert chunk.node is not None
    node, text = chunk.node, chunk.text
    edits = sorted(_iter_edits(text, node, new), reverse=True)
    for edit in edits:
        text = text[: edit.start] + edit.text + text[edit.end :]
        _shift_after_edit(node, edit)
    for path, missing in list(_missing_values(node, new)):
        text = _add_values(text, node, (path, missing), comments)
    return YamlChunk(chunk.key, text, node)


def drop_members(chunk: YamlChunk, new: Mapping[str, Mapping[str, Any]]) -> YamlChunk:
    """The chunk without the lines of members that a mapping in `new` no longer names."""
    root, text = chunk.node, chunk.text
    assert root is not None
    for name, node in (root.keys or {}).items():
        if node.keys is None or node.is_flow:
            continue
        for key in [key for key, child in node.keys.items() if key not in new.get(name, {}) and child.keys is None]:
            child = node.keys.pop(key)
            start = text.rfind("\n", 0, child.after) + 1
            end = text.find("\n", child.end) + 1 or len(text)
            text = text[:start] + text[end:]
            _shift_after_removal(root, end, end - start)
    return YamlChunk(chunk.key, text, root)


def _is_plain(value: str) -> bool:
    if not _PLAIN.fullmatch(value) or value != value.strip() or ": " in value or value.endswith(":"):
        return False
    return isinstance(resolve_scalar(value), str) and value.lower() not in {"yes", "no", "on", "off", "y", "n"}


def _quote_scalar(value: str) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    # JSON would write what is beyond 16 bits in two halves, which YAML does not put together.
    return shown if shown.isprintable() else "".join(map(_escape_char, shown))


def _escape_char(letter: str) -> str:
    code = ord(letter)
    return letter if letter.isprintable() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _iter_edits(text: str, node: YamlNode, new: Mapping[str, Any]) -> Iterator[TextEdit]:
    for key, value in new.items():
        child = (node.keys or {}).get(key)
        if child is None or key.startswith(NOTES):
            continue
        if isinstance(value, dict) and child.keys is not None:
            yield from _iter_edits(text, child, value)
        elif child.is_opaque or child.keys is not None or not _is_same_value(child.value, value):
            yield _replace_value(text, child, value)


def _is_same_value(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)


def _replace_value(text: str, child: YamlNode, value: Any) -> TextEdit:
    # What a block holds begins on the next line; its stand-in follows the colon.
    on_line = child.start < child.end and "\n" not in text[child.after : child.end]
    start = child.start if on_line else child.after
    child.value, child.keys, child.is_opaque, child.is_flow = _unchanged_value(value), None, False, False
    shown = to_yaml_scalar(value, child.quote)
    return TextEdit(start, max(child.end, start), shown if on_line else " " + shown)


def _unchanged_value(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _shift_after_edit(node: YamlNode, edit: TextEdit) -> None:
    """Move what stands behind an edit, and fit what was exchanged."""
    by = len(edit.text) - (edit.end - edit.start)
    for child in (node.keys or {}).values():
        if child.start >= edit.end and child.start > edit.start:
            _move_node(child, by)
        elif child.end >= edit.end and child.keys is not None:
            _shift_after_edit(child, edit)
        elif child.end >= edit.end:
            child.start = edit.start + (len(edit.text) - len(edit.text.lstrip(" ")))
            child.end = edit.start + len(edit.text)
    if node.is_flow:
        node.end += by
    else:
        node.end = max((max(child.end, child.after) for child in (node.keys or {}).values()), default=node.end)


def _move_node(node: YamlNode, by: int) -> None:
    node.start, node.end, node.after = node.start + by, node.end + by, node.after + by
    for child in (node.keys or {}).values():
        _move_node(child, by)


def _missing_values(
    node: YamlNode, new: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What is to be added, by the mapping it is added to."""
    more = {}
    for key, value in new.items():
        child = (node.keys or {}).get(key)
        if child is None:
            if value is not None and not (key.startswith(NOTES) and path_has(node, new, key)):
                more[key] = value
        elif isinstance(value, dict) and child.keys is not None:
            yield from _missing_values(child, value, (*path, key))
    if any(not key.startswith(NOTES) for key in more):
        yield path, more


def path_has(node: YamlNode, new: Mapping[str, Any], note: str) -> bool:
    """Whether a note was written before: the key after it stands already."""
    names = list(new)
    after = names[names.index(note) + 1 :]
    return any(name in (node.keys or {}) for name in after)


def _add_values(text: str, root: YamlNode, found: tuple[tuple[str, ...], Any], comments: Mapping[str, str]) -> str:
    path, more = found
    node = root
    for key in path:
        assert node.keys is not None
        node = node.keys[key]
    assert node.keys is not None
    if node.is_flow:
        return _add_to_flow(text, root, node, more)
    at = text.find("\n", node.end)
    at = len(text) if at < 0 else at + 1
    lead = "" if at == 0 or text[at - 1] == "\n" else "\n"
    fresh = YamlNode(0, 0, 0, keys={}, indent=node.indent)
    said = lead + _render_lines(more, fresh, at + len(lead), comments)
    _shift_after_insert(root, at, len(said))
    node.keys.update(fresh.keys or {})
    _extend_parents(root, path)
    return text[:at] + said + text[at:]


def _add_to_flow(text: str, root: YamlNode, node: YamlNode, more: Mapping[str, Any]) -> str:
    """Add to `{a: 1}` on its line; comments have no place there."""
    assert node.keys is not None
    at = text.rindex("}", 0, node.end)
    said, fresh = "", {}
    for key, value in more.items():
        if not key.startswith(NOTES):
            lead = ", " if node.keys or said else ""
            shown = to_yaml_scalar(value)
            name = to_yaml_scalar(key)
            start = at + len(said) + len(lead) + len(name) + 2
            fresh[key] = YamlNode(start, start + len(shown), start - 1, _unchanged_value(value))
            said += f"{lead}{name}: {shown}"
    _shift_after_insert(root, at, len(said))
    node.keys.update(fresh)
    return text[:at] + said + text[at:]


def _shift_after_removal(node: YamlNode, end: int, by: int) -> None:
    """Move what stands behind lines that were taken out."""
    for child in (node.keys or {}).values():
        if child.after >= end:
            _move_node(child, -by)
        elif child.keys is not None:
            _shift_after_removal(child, end, by)
            child.end = max((max(each.end, each.after) for each in child.keys.values()), default=child.after)
    node.end = max((max(each.end, each.after) for each in (node.keys or {}).values()), default=node.end)


def _shift_after_insert(root: YamlNode, at: int, by: int) -> None:
    for child in (root.keys or {}).values():
        if child.start >= at:
            _move_node(child, by)
        else:
            _shift_after_insert(child, at, by)
            if child.end >= at:
                child.end += by


def _extend_parents(root: YamlNode, path: tuple[str, ...]) -> None:
    """A mapping ends where its last member does."""
    chain = [root]
    for key in path:
        chain.append((chain[-1].keys or {})[key])
    for node in reversed(chain):
        node.end = max(child.end for child in (node.keys or {}).values())


def _render_lines(item: Mapping[str, Any], node: YamlNode, at: int, comments: Mapping[str, str]) -> str:
    assert node.keys is not None
    lead = " " * node.indent
    text = ""
    for key, value in item.items():
        if key.startswith(NOTES):
            text += f"{lead}{value}\n"
            continue
        if value is None:
            continue
        name = to_yaml_scalar(key)
        place = at + len(text) + len(lead) + len(name) + 1
        if isinstance(value, Mapping) and value:
            child = YamlNode(place + 1, 0, place, keys={}, indent=node.indent + 2)
            text += f"{lead}{name}:\n"
            text += _render_lines(value, child, at + len(text), comments)
            child.start = min((each.after for each in (child.keys or {}).values()), default=place)
            child.end = max((each.end for each in (child.keys or {}).values()), default=place)
        else:
            shown = to_yaml_scalar(value)
            child = YamlNode(
                place + 1, place + 1 + len(shown), place, _unchanged_value(value), is_opaque=isinstance(value, Mapping)
            )
            text += f"{lead}{name}: {shown}" + (f"  {comments[key]}" if key in comments else "") + "\n"
        node.keys[key] = child
        node.end = max(node.end, child.end)
    return text
