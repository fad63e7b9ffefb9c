import re

import pytest

from flightlog.web.templates import CHARS_MAX, render_markdown
from support.hostile import PAYLOADS


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_leaves_only_text_and_plain_tags(payload):
    html = render_markdown(f"before {payload}\n\n- {payload}\n\n`{payload}`")

    tags = set(re.findall(r"<\s*/?([a-z0-9]+)", html))
    assert tags <= {"p", "ul", "li", "code", "a", "em", "strong", "pre", "blockquote", "h1", "h2"}
    assert not re.search(r"<[^>]*\son\w+=", html)
    assert not re.search(r"<[^>]*href=\"(?!https?:|mailto:)", html)


def test_plain_markdown_looks_as_it_should():
    html = render_markdown(
        "# Title\n\n*a* **b** `c`\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```py\ncode\n```"
    )

    for part in (
        "<h1>Title</h1>",
        "<em>a</em>",
        "<strong>b</strong>",
        "<td>1</td>",
        "<pre><code>code\n</code></pre>",
    ):
        assert part in html


def test_a_very_long_text_is_shown_as_it_is_written():
    html = render_markdown("<b>x</b>" * CHARS_MAX)

    assert html.startswith("<pre>&lt;b&gt;")
