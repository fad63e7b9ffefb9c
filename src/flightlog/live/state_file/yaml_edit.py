"""Write values into chunks: replace, add, remove or render them; every other byte stays.

Locations are updated with the text, so that a chunk as we render it need not be parsed again. One
with notations that only a person writes is parsed after each change.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flightlog.live.state_file.yaml_document import YamlChunk, YamlNode, relocate_values
from flightlog.model.errors import resolve_scalar

# Strings that need no quotation marks; stricter than YAML.
_PLAIN = re.compile(r"[A-Za-z0-9_/~.][A-Za-z0-9_ ./~@+:()%-]*")
NOTES = "#"  # the value of a key that begins with it is rendered as a comment line


class TextEdit(NamedTuple):
    """A span of a chunk's text to replace; nodes that begin in it get its start and end."""

    start: int
    end: int
    text: str


def to_yaml_scalar(value: Any, quote: str = "") -> str:
    """Return a value as YAML on one line; a string keeps its quotation marks."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if quote == "'" and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        return value if not quote and _is_plain(value) else _quote_scalar(value)
    if isinstance(value, Mapping):
        members = [
            f"{to_yaml_scalar(str(key))}: {to_yaml_scalar(item)}" for key, item in value.items()
        ]
        return "{" + ", ".join(members) + "}"
    items = [
        _quote_scalar(item) if isinstance(item, str) else to_yaml_scalar(item) for item in value
    ]
    return "[" + ", ".join(items) + "]"


def render_block(
    item: Mapping[str, Any], indent: int, comments: Mapping[str, str]
) -> tuple[str, YamlNode]:
    """Render a mapping as a block with the locations of its values; `comments` follow their keys."""
    node = YamlNode(0, 0, 0, keys={}, indent=indent)
    return _render_lines(item, node, 0, comments), node


def new_item(
    key: str, item: Mapping[str, Any], indent: int, comments: Mapping[str, str]
) -> YamlChunk:
    """Return a chunk for a new item of a list."""
    text, node = render_block(item, indent + 2, comments)
    # The dash replaces the indentation of the first line.
    return YamlChunk(key, " " * indent + "- " + text[indent + 2 :], node)


def new_root(name: str, item: Mapping[str, Any], lead: str) -> YamlChunk:
    """Return a chunk for a new key of the root, behind the comment lines `lead`."""
    text, node = render_block({f"{NOTES}lead": lead, name: item}, 0, {})
    return YamlChunk(f"r:{name}", text, (node.keys or {})[name])


def prepare_insertion(before: YamlChunk, last: YamlChunk, name: str) -> None:
    """Change `before` so that new items can follow; its blank line moves behind the last one."""
    if before.key == f"r:{name}":
        node = before.node
        # `sessions: []`, `~` or `null` becomes `sessions:`
        if node is not None and node.keys is None and node.end > node.after:
            comments = _comments_around(before.text, node)
            before.text = before.text[: node.after] + comments + before.text[node.end :]
        else:
            before.text = re.sub(rf"(?m)^({name}:)[ \t]*\[\s*\]", r"\1", before.text, count=1)
        before.node = None
    if before.text.endswith("\n\n"):
        before.text = before.text[:-1]
        last.text += "\n"
    elif not before.text.endswith("\n"):
        before.text += "\n"


def _comments_around(text: str, node: YamlNode) -> str:
    """Return the comments before an empty value and between its brackets, which stay."""
    inner = text[node.start + 1 : node.end - 1] if text[node.start] == "[" else ""
    return text[node.after : node.start].rstrip() + inner.rstrip()


def show_empty_list(root: YamlChunk, name: str) -> YamlChunk:
    """Return the root chunk of a list without items as `sessions: []`."""
    text = re.sub(rf"(?m)^({name}:)(?=[ \t]*(?:#|$))", r"\1 []", root.text, count=1)
    return YamlChunk(root.key, text, root.node) if text == root.text else YamlChunk(root.key, text)


def apply_values(
    chunk: YamlChunk, new: Mapping[str, Any], comments: Mapping[str, str]
) -> YamlChunk:
    """Return the chunk with the values of `new`; other values stay."""
    assert chunk.node is not None
    node, text = chunk.node, chunk.text
    for edit in sorted(_iter_edits(text, node, new), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
        _shift_after_edit(node, edit)
    chunk = relocate_values(chunk.key, text, node)
    for addition in list(_missing_values(node, new)):
        assert chunk.node is not None
        text = _add_values(chunk.text, chunk.node, addition, comments)
        chunk = relocate_values(chunk.key, text, chunk.node)
    return chunk


def drop_absent(chunk: YamlChunk, fields: Mapping[str, Any], new: Mapping[str, Any]) -> YamlChunk:
    """Return the chunk without those members named in `fields` that `new` does not contain.

    Members and comments of a person stay.
    """
    assert chunk.node is not None
    for path in list(_absent_members(chunk.node, fields, new)):
        chunk = _remove_member(chunk, path)
    return chunk


def _absent_members(
    node: YamlNode, fields: Mapping[str, Any], new: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of members to remove, those of a mapping before the mapping itself."""
    for key, inner in fields.items():
        child, value = (node.keys or {}).get(key), new.get(key)
        if child is None or node.is_flow:
            continue
        if child.keys and isinstance(value, dict | None):
            yield from _absent_members(child, inner, value or {}, (*path, key))
        if value is None:
            yield (*path, key)


def _remove_member(chunk: YamlChunk, path: tuple[str, ...]) -> YamlChunk:
    """Remove the lines of a member; a comment behind its value gets a line of its own.

    A block with members of a person stays.
    """
    text, root = chunk.text, chunk.node
    assert root is not None
    node, key = root, path[-1]
    for name in path[:-1]:
        node = (node.keys or {})[name]
    assert node.keys is not None
    child = node.keys[key]
    if child.keys and not child.is_flow:
        return chunk
    start = text.rfind("\n", 0, child.after) + 1
    if text[start:].lstrip(" ").startswith("- "):  # without this line the item has no dash
        edit = _replace_value(text, child, None)
        _shift_after_edit(root, edit)
        return relocate_values(chunk.key, text[: edit.start] + edit.text + text[edit.end :], root)
    del node.keys[key]
    end = text.find("\n", max(child.end, child.after)) + 1 or len(text)
    comment = text[max(child.end, child.after) : end].strip()
    comment_line = f"{' ' * node.indent}{comment}\n" if comment.startswith("#") else ""
    _shift_after_removal(root, end, end - start - len(comment_line))
    return relocate_values(chunk.key, text[:start] + comment_line + text[end:], root)


def drop_members(chunk: YamlChunk, new: Mapping[str, Mapping[str, Any]]) -> YamlChunk:
    """Return the chunk without the lines of members that the mappings in `new` do not contain."""
    assert chunk.node is not None
    paths = [
        (name, key)
        for name, node in (chunk.node.keys or {}).items()
        for key, child in (node.keys or {}).items()
        if not node.is_flow and key not in new.get(name, {}) and child.keys is None
    ]
    for path in paths:
        chunk = _remove_member(chunk, path)
    return chunk


def _is_plain(value: str) -> bool:
    is_plain = _PLAIN.fullmatch(value) and value == value.strip()
    if not is_plain or ": " in value or value.endswith(":"):
        return False
    is_word = value.lower() in {"yes", "no", "on", "off", "y", "n"}
    return isinstance(resolve_scalar(value), str) and not is_word


def _quote_scalar(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # JSON would escape a code point above 16 bits as a surrogate pair, which YAML does not join.
    return text if text.isprintable() else "".join(map(_escape_char, text))


def _escape_char(char: str) -> str:
    code = ord(char)
    return char if char.isprintable() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _iter_edits(text: str, node: YamlNode, new: Mapping[str, Any]) -> Iterator[TextEdit]:
    for key, value in new.items():
        child = (node.keys or {}).get(key)
        if child is None or key.startswith(NOTES):
            continue
        if isinstance(value, dict) and child.keys is not None:
            yield from _iter_edits(text, child, value)
            continue
        is_same = type(child.value) is type(value) and child.value == value
        if child.is_opaque or child.keys is not None or not is_same:
            yield _replace_value(text, child, value)


def _replace_value(text: str, child: YamlNode, value: Any) -> TextEdit:
    # A block begins on the next line; the value that replaces it follows the colon.
    on_line = child.start < child.end and "\n" not in text[child.after : child.end]
    start = child.start if on_line else child.after
    child.value, child.keys, child.is_opaque, child.is_flow = _copy_value(value), None, False, False
    scalar = to_yaml_scalar(value, child.quote)
    return TextEdit(start, max(child.end, start), scalar if on_line else " " + scalar)


def _copy_value(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _shift_after_edit(node: YamlNode, edit: TextEdit) -> None:
    """Move the nodes behind an edit, and resize the edited node."""
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
        node.end = _block_end(node, node.end)


def _block_end(node: YamlNode, default: int) -> int:
    """Return the end of the last member of a block."""
    children = (node.keys or {}).values()
    return max((max(child.end, child.after) for child in children), default=default)


def _move_node(node: YamlNode, by: int) -> None:
    node.start, node.end, node.after = node.start + by, node.end + by, node.after + by
    for child in (node.keys or {}).values():
        _move_node(child, by)


def _missing_values(
    node: YamlNode, new: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values to add, by the path of their mapping."""
    missing = {}
    for key, value in new.items():
        child = (node.keys or {}).get(key)
        if child is None:
            if value is not None and not (key.startswith(NOTES) and _has_note(node, new, key)):
                missing[key] = value
        elif isinstance(value, dict) and child.keys is not None:
            yield from _missing_values(child, value, (*path, key))
    if any(not key.startswith(NOTES) for key in missing):
        yield path, missing


def _has_note(node: YamlNode, new: Mapping[str, Any], note: str) -> bool:
    """Return whether a note was written before: then a key that follows it exists."""
    names = list(new)
    after = names[names.index(note) + 1 :]
    return any(name in (node.keys or {}) for name in after)


def _add_values(
    text: str, root: YamlNode, addition: tuple[tuple[str, ...], Any], comments: Mapping[str, str]
) -> str:
    path, values = addition
    node = root
    for key in path:
        assert node.keys is not None
        node = node.keys[key]
    assert node.keys is not None
    if node.is_flow:
        return _add_to_flow(text, root, node, values)
    at = text.find("\n", node.end)
    at = len(text) if at < 0 else at + 1
    lead = "" if at == 0 or text[at - 1] == "\n" else "\n"
    added = YamlNode(0, 0, 0, keys={}, indent=node.indent)
    lines = lead + _render_lines(values, added, at + len(lead), comments)
    _shift_after_insert(root, at, len(lines))
    node.keys.update(added.keys or {})
    _extend_parents(root, path)
    return text[:at] + lines + text[at:]


def _add_to_flow(text: str, root: YamlNode, node: YamlNode, values: Mapping[str, Any]) -> str:
    """Add members to `{a: 1}` on its line, where comments are not possible."""
    assert node.keys is not None
    at = text.rindex("}", 0, node.end)
    members, added = "", {}
    for key, value in values.items():
        if not key.startswith(NOTES):
            lead = ", " if node.keys or members else ""
            scalar, name = to_yaml_scalar(value), to_yaml_scalar(key)
            start = at + len(members) + len(lead) + len(name) + 2
            added[key] = YamlNode(start, start + len(scalar), start - 1, _copy_value(value))
            members += f"{lead}{name}: {scalar}"
    _shift_after_insert(root, at, len(members))
    node.keys.update(added)
    return text[:at] + members + text[at:]


def _shift_after_removal(node: YamlNode, end: int, by: int) -> None:
    """Move the nodes behind removed lines."""
    for child in (node.keys or {}).values():
        if child.after >= end:
            _move_node(child, -by)
        elif child.keys is not None:
            _shift_after_removal(child, end, by)
            child.end = _block_end(child, child.after)
            child.start = min(child.start, child.end)  # a block without members is empty
    node.end = _block_end(node, node.end)


def _shift_after_insert(root: YamlNode, at: int, by: int) -> None:
    for child in (root.keys or {}).values():
        if child.start >= at:
            _move_node(child, by)
        else:
            _shift_after_insert(child, at, by)
            if child.end >= at:
                child.end += by


def _extend_parents(root: YamlNode, path: tuple[str, ...]) -> None:
    """Let the mappings along `path` end where their last member does."""
    chain = [root]
    for key in path:
        chain.append((chain[-1].keys or {})[key])
    for node in reversed(chain):
        node.end = max(child.end for child in (node.keys or {}).values())


def _render_lines(
    item: Mapping[str, Any], node: YamlNode, at: int, comments: Mapping[str, str]
) -> str:
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
        after = at + len(text) + len(lead) + len(name) + 1
        if isinstance(value, Mapping) and value:
            child = YamlNode(after + 1, 0, after, keys={}, indent=node.indent + 2)
            text += f"{lead}{name}:\n"
            text += _render_lines(value, child, at + len(text), comments)
            members = (child.keys or {}).values()
            child.start = min((member.after for member in members), default=after)
            child.end = max((member.end for member in members), default=after)
        else:
            scalar = to_yaml_scalar(value)
            child = YamlNode(after + 1, after + 1 + len(scalar), after, _copy_value(value))
            child.is_opaque = isinstance(value, Mapping)
            comment = f"  {comments[key]}" if key in comments else ""
            text += f"{lead}{name}: {scalar}{comment}\n"
        node.keys[key] = child
        node.end = max(node.end, child.end)
    return text
