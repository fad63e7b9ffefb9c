"""What the hook left in the data directory besides sessions: the count of records it lost."""

from pathlib import Path


def count_lost_records(home: Path, temporary: Path) -> int:
    """Return how many events the hook could not write down."""
    return sum(_read_count(path) for path in list_loss_counts(home, temporary))


def list_loss_counts(home: Path, temporary: Path) -> list[Path]:
    """Return the files that count events the hook could not write down, if they count any."""
    paths = (home / "lost", *temporary.glob("flightlog-lost-*"))
    return [path for path in paths if _read_count(path)]


def _read_count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
