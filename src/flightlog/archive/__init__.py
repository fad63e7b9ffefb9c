"""All recordings of this machine: `Archive` lists, reads and follows sessions."""

from flightlog.archive.archive import Archive, Place, Progress, SessionFiles

__all__ = ["Archive", "Place", "Progress", "SessionFiles"]
