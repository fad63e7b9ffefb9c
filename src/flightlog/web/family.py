"""A family of pages: what the navigation says about it, and the addresses it answers.

Knows no page. `web/pages/` has one file for each family, and the table that lists them.
"""

from aiohttp import web
from msgspec import Struct


class NavSection(Struct, frozen=True):
    """Some pages that belong together; `templates` are those it is the current entry for."""

    title: str
    address: str
    templates: tuple[str, ...]
    routes: tuple[web.RouteDef, ...]
