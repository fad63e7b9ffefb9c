"""The web pages; the navigation shows the sections in this order."""

from flightlog.web.context import NavSection
from flightlog.web.pages import checks, lab, loops, retro, search, sessions, usage

SECTIONS: tuple[NavSection, ...] = (
    sessions.SESSIONS_SECTION,
    usage.LIVE_SECTION,
    usage.USAGE_SECTION,
    loops.LOOPS_SECTION,
    lab.LAB_SECTION,
    retro.RETRO_SECTION,
    checks.DATASET_SECTION,
    checks.PRIVACY_SECTION,
    checks.DOCTOR_SECTION,
    search.SEARCH_SECTION,
)
