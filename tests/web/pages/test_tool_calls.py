"""Tool calls as what they are, rows of one kind, and foreign input of any shape."""

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.session import ToolCall
from flightlog.views.session.calls import describe_call, strip_gutter
from flightlog.web.highlight import highlight_lines
from support.pages import running
from support.tool_showcase import CALLS, SESSION, write_showcase

NAMES = [*(call[0] for call in CALLS), "update_plan", "todowrite", "Task", "unheard-of"]
TODOS, QUESTIONS, PLAN = "todos", "questions", "plan"
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=12,
)
inputs = st.dictionaries(
    st.sampled_from(
        [TODOS, QUESTIONS, PLAN, "taskId", "status", "url", "pattern", "command", "prompt"]
    )
    | st.text(max_size=5),
    anything,
    max_size=5,
)


def rows_of(page):
    """Return the HTML of each step, by its id."""
    parts = re.split(r'<article class="row ', page)[1:]
    return {re.search(r'id="([\d.]+)"', part)[1]: part for part in parts}


def test_each_kind_of_call_is_drawn_as_what_it_is(tmp_path):
    write_showcase(tmp_path)

    with running(tmp_path) as pages:
        rows = rows_of(pages.ask(f"/sessions/{SESSION}").text)

    assert "<strong>tax</strong>" in rows["1"], "a prompt is Markdown"
    assert '<li class="done"><span class="hidden">done: </span>Read the cart' in rows["1.1"]
    assert '<li class="active">' in rows["1.1"]
    assert '<li class="open"><span class="hidden">open: </span>Fix rounding' in rows["1.2"]
    assert '<li class="done"><span class="hidden">done: </span>Task 1' in rows["1.3"]
    assert re.search(r'<li class="chosen"><b>19 %</b> <span class="tag">chosen', rows["1.4"])
    assert "<b>Which tax rate applies?</b>" in rows["1.4"]
    assert "<dt>path</dt><dd>src</dd>" in rows["1.5"]
    assert '<a href="https://example.com/vat" rel="noopener noreferrer' in rows["1.8"]
    assert '<b>create_issue</b> <span class="tag">tracker (MCP)' in rows["1.9"]
    assert "1→" not in rows["1.10"], "line numbers are not part of a file"
    assert '<span class="added">+ <i class="k">def</i>' in rows["1.11"]
    assert "Show 26 more lines" in rows["1.13"]
    assert "<h2>Plan</h2>" in rows["1.14"]
    assert '<img class="picture" src="data:image/png;base64,' in rows["1.16"]
    assert "{" not in re.sub(r"<[^>]+>", "", rows["1.1"] + rows["1.4"]), "no JSON"


def test_rows_of_one_kind_are_shown_alone_and_counted(tmp_path):
    write_showcase(tmp_path)

    with running(tmp_path) as pages:
        whole = pages.ask(f"/sessions/{SESSION}").text
        edits = pages.ask(f"/sessions/{SESSION}?show=edits").text
        part = pages.ask(f"/sessions/{SESSION}/rows/0?show=web").text
        other = pages.ask(f"/sessions/{SESSION}?show=nonsense").text

    counts = re.findall(r'show=([\w+%]+)"[^>]*>[^<]+<small>(\d+)', whole)
    assert ("edits", "2") in counts
    assert list(rows_of(edits)) == ["1.11", "1.12"]
    assert list(rows_of(part)) == ["1.7", "1.8"]
    assert 'data-total="2"' in edits
    assert len(rows_of(other)) == len(rows_of(whole)) == len(CALLS) + 2


@given(st.sampled_from(NAMES), inputs, anything)
def test_input_of_any_shape_has_a_view(name, given_input, detail):
    call = ToolCall(id="t", name=name, input=given_input, detail=detail)

    view = describe_call(call)

    assert all(isinstance(text, str) for pair in view.arguments for text in pair)
    assert all(isinstance(item.text, str) for item in view.items)


@given(st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=20), min_size=1))
def test_colored_lines_hold_the_same_text_as_before(lines):
    colored = highlight_lines(lines, "a.py")

    assert [html.unescape(re.sub(r"<[^>]+>", "", line)) for line in colored] == lines


def test_gutter_is_removed_only_where_every_line_has_one():
    assert strip_gutter("     1→a\n     2→  b") == "a\n  b"
    assert strip_gutter("     1→a\nno number") == "     1→a\nno number"
