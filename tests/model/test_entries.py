from flightlog.model.entries import Image, Text, Thinking, ToolUse, UnknownBlock, text_of


def test_the_words_of_content_are_its_text_a_line_for_each_block():
    content = (
        Text("one"),
        Thinking("secret"),
        ToolUse("t", "Bash", {}),
        Image("image/png", 3),
        UnknownBlock("?", "x"),
        Text("two"),
    )

    assert text_of(content) == "one\ntwo"
    assert text_of(()) == ""
