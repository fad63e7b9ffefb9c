from flightlog.model.events import Image, Other, Text, Thinking, ToolUse, words


def test_the_words_of_content_are_its_text_a_line_for_each_block():
    content = (
        Text("one"),
        Thinking("secret"),
        ToolUse("t", "Bash", {}),
        Image("image/png", 3),
        Other("?", "x"),
        Text("two"),
    )

    assert words(content) == "one\ntwo"
    assert words(()) == ""
