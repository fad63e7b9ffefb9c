"""The pages, one file for each family; the navigation shows them in the order of this table."""

from flightlog.web.family import NavSection
from flightlog.web.pages import dataset, doctor, lab, live, loops, privacy, retro, search, sessions, usage

FAMILIES: tuple[NavSection, ...] = (
    sessions.FAMILY,
    live.FAMILY,
    usage.FAMILY,
    loops.FAMILY,
    lab.FAMILY,
    retro.FAMILY,
    dataset.FAMILY,
    privacy.FAMILY,
    doctor.FAMILY,
    search.FAMILY,
)
