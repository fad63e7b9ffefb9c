"""Pages put on disk: a layout is a value until it comes here.

Writes what changed, whole, and removes nothing. Knows tiers only so far that a tracked page
must hold text that passed the redactor.
"""

from collections.abc import Iterable
from pathlib import Path

from flightlog.model.pages import Clean, OutputFile, Tier
from flightlog.store.files import os_errors_as_unavailable, replace_file, resolve_inside


def write_output_files(root: Path, pages: Iterable[OutputFile], *, durable: bool = True) -> list[Path]:
    """Write the pages that differ from what is there and return their paths."""
    return [path for page in pages if (path := _write_output_file(root, page, durable=durable))]


def _write_output_file(root: Path, page: OutputFile, *, durable: bool) -> Path | None:
    if page.tier is Tier.TRACKED and not isinstance(page.body, Clean):
        raise TypeError(f"a tracked page holds clean text only: {page.path}")
    text = page.body.text if isinstance(page.body, Clean) else page.body
    body = text.encode("utf-8", "replace")
    path = resolve_inside(root, page.path)
    with os_errors_as_unavailable(path):
        if path.is_file() and not path.is_symlink() and path.read_bytes() == body:
            return None
    replace_file(path, body, durable=durable)
    return path
