"""When a person was at it: by day, and by weekday and hour in their own time."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

from msgspec import Struct

from flightlog.retro.digest import ConversationDigest

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class Activity(Struct, frozen=True):
    """Prompts by day (ISO), by month, and by weekday (0 is Sunday) and hour."""

    days: dict[str, int]
    months: dict[str, int]
    hours: dict[str, int]  # "day-hour"

    @property
    def grid(self) -> list[list[int]]:
        """Seven rows of 24."""
        return [[self.hours.get(f"{day}-{hour}", 0) for hour in range(24)] for day in range(7)]


def count_activity(digests: Iterable[ConversationDigest], zone: tzinfo) -> Activity:
    """Count every prompt with a time."""
    days: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    for digest in digests:
        for prompt in digest.prompts:
            if prompt.at_ms:
                moment = datetime.fromtimestamp(prompt.at_ms / 1000, UTC).astimezone(zone)
                days[f"{moment:%Y-%m-%d}"] += 1
                hours[f"{(moment.weekday() + 1) % 7}-{moment.hour}"] += 1
    months: Counter[str] = Counter()
    for day, count in days.items():
        months[day[:7]] += count
    return Activity(dict(sorted(days.items())), dict(sorted(months.items())), dict(sorted(hours.items())))
