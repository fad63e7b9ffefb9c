"""Pages put on disk: a layout is a value until it comes here.

Writes what changed, whole, and removes nothing. Knows tiers only so far that a tracked page
must hold text that passed the redactor.
"""

from collections.abc import Iterable
from pathlib import Path

from flightlog.model.pages import Clean, Page, Tier
from flightlog.store.files import inside, replace, told


def publish(root: Path, pages: Iterable[Page], *, durable: bool = True) -> list[Path]:
    """Write the pages that differ from what is there and return their paths."""
    return [path for page in pages if (path := _publish(root, page, durable=durable))]


def _publish(root: Path, page: Page, *, durable: bool) -> Path | None:
    if page.tier is Tier.TRACKED and not isinstance(page.body, Clean):
        raise TypeError(f"a tracked page holds clean text only: {page.path}")
    text = page.body.text if isinstance(page.body, Clean) else page.body
    body = text.encode("utf-8", "replace")
    path = inside(root, page.path)
    with told(path):
        if path.is_file() and not path.is_symlink() and path.read_bytes() == body:
            return None
    replace(path, body, durable=durable)
    return path
