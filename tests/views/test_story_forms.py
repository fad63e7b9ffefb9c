import re

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from flightlog.model.addresses import short_address
from flightlog.views.transcript import TranscriptLine, TranscriptLineKind
from flightlog.views.transcript_formats import as_markdown, as_text

pieces = st.sampled_from(
    [
        "```",
        "````",
        "~~~",
        "\n",
        "\n\n",
        "text",
        "<script>",
        "    ",
        "> ",
        "- ",
        "a",
        "`",
        "[x](y)",
        "&lt;",
    ]
)
foreign = st.text() | st.lists(pieces, max_size=12).map("".join)
stories = st.lists(
    st.builds(
        TranscriptLine,
        st.sampled_from(TranscriptLineKind),
        st.integers(0, 12),
        foreign,
        st.sampled_from(["", "s#1", "s@a#1.2"]),
    )
)


@given(stories)
def test_no_text_in_markdown_becomes_html_a_link_or_an_image(lines):
    tokens = MarkdownIt("commonmark").parse(as_markdown(lines))
    inner = [child for token in tokens for child in token.children or ()]

    kinds = {token.type for token in (*tokens, *inner)}
    assert not kinds & {"html_block", "html_inline", "link_open", "image"}


@example(["a\n```\nb", "````\n~~~\n```"])
@given(st.lists(foreign, min_size=1, max_size=5))
def test_every_word_in_markdown_stays_in_its_own_fence(texts):
    tokens = MarkdownIt("commonmark").parse(
        as_markdown(TranscriptLine(TranscriptLineKind.RESULT, 1, text) for text in texts)
    )

    assert sum(token.type == "fence" for token in tokens) == len(texts)
    assert {token.type for token in tokens} == {
        "paragraph_open",
        "inline",
        "paragraph_close",
        "fence",
    }


@given(stories)
def test_plain_text_holds_no_control_character(lines):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", as_text(lines))


def test_depth_marks_and_addresses_are_shown():
    lines = [
        TranscriptLine(TranscriptLineKind.TITLE, 0, "t", "s1"),
        TranscriptLine(TranscriptLineKind.TURN, 0, "person", "s1#1"),
        TranscriptLine(TranscriptLineKind.CALL, 2, "Bash\nls", ""),
    ]

    assert as_text(lines) == "t\n\n#1  person\n    → Bash\n      ls\n"


def test_the_session_is_left_out_of_an_address_its_reader_knows():
    assert [short_address(address) for address in ("s1", "s1#1.2", "s1@a#1", "")] == [
        "s1",
        "#1.2",
        "@a#1",
        "",
    ]


def test_empty_story_renders_as_empty_text():
    assert as_text([]) == ""
