"""Foreign Markdown as HTML that can only be read.

Raw HTML is text, pictures are links, and what comes out is cleaned once more by a second
library: a page shows what a model wrote and loads nothing because of it.
"""

import functools

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

from flightlog.model.text import make_inert

CHARS_MAX = 60_000
_TAGS = frozenset(
    {"p", "br", "hr", "em", "strong", "s", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"}
)


@functools.lru_cache(maxsize=2_000)
def render_markdown(text: str) -> Markup:
    """Render `text`; a very long one is shown as it is written."""
    if len(text) > CHARS_MAX:
        return Markup("<pre>") + make_inert(text) + Markup("</pre>")
    html = nh3.clean(
        _markdown_parser().render(make_inert(text)),
        tags=set(_TAGS),
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(html)  # noqa: S704 - cleaned in the line above


@functools.cache
def _markdown_parser() -> MarkdownIt:
    plain = MarkdownIt("commonmark", {"html": False, "linkify": False})
    return plain.enable(["table", "strikethrough"]).disable("image")
