"""The web pages; the navigation shows the sections in this order."""

from flightlog.web.context import NavSection
from flightlog.web.pages import analysis, checks, home, lab, loops, retro, search, sessions, usage

SECTIONS: tuple[NavSection, ...] = (
    sessions.SESSIONS_SECTION,
    usage.LIVE_SECTION,
    usage.USAGE_SECTION,
    lab.LAB_SECTION,
    home.MORE_SECTION,
    analysis.FINDINGS_SECTION,
    search.SEARCH_SECTION,
    search.TRACE_SECTION,
    analysis.CACHE_SECTION,
    loops.LOOPS_SECTION,
    retro.RETRO_SECTION,
    checks.DATASET_SECTION,
    checks.PRIVACY_SECTION,
    checks.DOCTOR_SECTION,
)
