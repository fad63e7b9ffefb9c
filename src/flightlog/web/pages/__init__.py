"""The pages, one file for each family; the navigation shows them in the order of this table."""

from flightlog.web.family import Family
from flightlog.web.pages import live, loops, sessions, usage

FAMILIES: tuple[Family, ...] = (
    sessions.FAMILY,
    live.FAMILY,
    usage.FAMILY,
    loops.FAMILY,
)
