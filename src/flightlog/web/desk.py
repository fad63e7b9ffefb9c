"""What every page handler works with, and how an answer is made of a template."""

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from aiohttp import web
from jinja2 import Environment
from msgspec import Struct

from flightlog.model.runtime import Runtime
from flightlog.web.data import WebData
from flightlog.web.errands import BackgroundProcesses
from flightlog.web.family import NavSection
from flightlog.web.hub import UpdateHub

ACTIVE_MS = 120_000
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class WebContext(Struct, frozen=True):
    """The parts of one running server."""

    data: WebData
    templates: Environment
    hub: UpdateHub
    families: tuple[NavSection, ...]
    errands: BackgroundProcesses
    read_only: bool = False
    root: str = ""
    sample: bool = False

    @property
    def runtime(self) -> Runtime:
        """The machine whose sessions are shown."""
        return self.data.runtime

    def render_html(self, template: str, **values: Any) -> str:
        """Fill a template."""
        common = {
            "read_only": self.read_only,
            "sample": self.sample,
            "families": self.families,
            "page": template.partition(".")[0],
            "offline": False,
            "prefix": "",
        }
        return self.templates.get_template(template).render({**common, **values})

    async def render_response(self, template: str, **values: Any) -> web.Response:
        """Fill a template, away from the event loop."""
        return html_response(await run_blocking(self.render_html, template, **values))

    async def answer_with(self, template: str, work: Callable[..., dict[str, Any]], *given: Any) -> web.Response:
        """Fill a template with what `work` returns for this runtime, away from the event loop."""
        return await self.render_response(template, **await run_blocking(work, self.runtime, *given))


DESK = web.AppKey("desk", WebContext)


async def run_blocking(work: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
    """Do blocking work in a thread."""
    return await asyncio.to_thread(work, *given, **named)


def redirect_to(request: web.Request, path: str) -> web.HTTPSeeOther:
    """Return the redirect to a page of this server, to be raised after a change."""
    return web.HTTPSeeOther(request.app[DESK].root + path)


def html_response(html: str, status: int = 200) -> web.Response:
    """Answer with HTML."""
    return web.Response(text=html, content_type="text/html", charset="utf-8", status=status)
