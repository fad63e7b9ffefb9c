"""Times as text: UTC, ISO 8601 with a Z, and seconds since 1970 for reckoning."""

from datetime import UTC, datetime


def format_utc_time(at: float | None) -> str | None:
    """Write a time; whole seconds without a fraction, as the templates do."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z").replace(".000Z", "Z")


def parse_utc_time(text: str) -> float:
    """Read a time that `stamp` wrote."""
    return datetime.fromisoformat(text).timestamp()
