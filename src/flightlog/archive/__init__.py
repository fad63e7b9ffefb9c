"""The door to recordings: rooms and faces reach them through here.

`Archive` (door) tells sessions and follows them; `Books` counts usage, `Finder` searches, both
from the index. The parts are loaded when asked for: a usage report does not wait for decoders.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flightlog.archive.door import Archive, Place, Progress, Recording

__all__ = ["Archive", "Place", "Progress", "Recording"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from flightlog.archive import door  # noqa: PLC0415 - see above

        return getattr(door, name)
    raise AttributeError(name)
