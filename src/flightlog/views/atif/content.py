"""Content of messages and tool results in ATIF's terms: text as text, pictures as files beside the document.

A kind of content ATIF has no place for leaves a mark in brackets where it stood, so that a
reader sees that something was there; `views.atif.fidelity` counts such marks.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence

from flightlog.model.events import Block, Image, Text, Thinking, ToolUse, UnknownBlock
from flightlog.views.atif.document import Content, ContentPart, MediaSource

FOLDER = "images"
_ENDINGS = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}


class ImageFiles:
    """The pictures of one bundle, each kept once under the name of its content."""

    def __init__(self, *, keep: bool) -> None:
        """Begin with none; without `keep` every picture leaves a mark instead."""
        self.files: dict[str, bytes] = {}
        self._keep = keep

    def picture_part(self, image: Image) -> ContentPart:
        """Return the part that shows `image`, or the mark of one that cannot be carried."""
        body = _decode_image(image) if self._keep and image.media_type in _ENDINGS else b""
        if not body:
            return ContentPart("text", text=omission_marker(image.media_type or "image"))
        path = f"{FOLDER}/{hashlib.sha256(body).hexdigest()[:16]}.{_ENDINGS[image.media_type]}"
        self.files[path] = body
        return ContentPart("image", source=MediaSource(image.media_type, path))


def omission_marker(kind: str) -> str:
    """Return what stands in the place of content that ATIF cannot carry."""
    return f"[{kind} left out]"


def build_content(blocks: Sequence[Block], pictures: ImageFiles) -> Content:
    """Return one block of text as a string, anything else as parts, in order."""
    parts = [part for block in blocks for part in _block_parts(block, pictures)]
    if not parts:
        return ""
    only = parts[0]
    return only.text if len(parts) == 1 and isinstance(only.text, str) else parts


def join_text_blocks(blocks: Sequence[Block], pictures: ImageFiles) -> Content:
    """Return what an agent said: its texts as one string, a blank line between them."""
    if any(isinstance(block, Image | UnknownBlock) for block in blocks):
        return build_content(blocks, pictures)
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text) and block.text)


def reasoning_text(blocks: Sequence[Block]) -> str:
    """Return what an agent thought, as far as it was shown."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, Thinking) and block.text)


def _block_parts(block: Block, pictures: ImageFiles) -> list[ContentPart]:
    match block:
        case Text():
            return [ContentPart("text", text=block.text)]
        case Image():
            return [pictures.picture_part(block)]
        case UnknownBlock():
            return [ContentPart("text", text=block.text or omission_marker(block.kind))]
        case Thinking() | ToolUse():
            return []


def _decode_image(image: Image) -> bytes:
    try:
        return base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        return b""
