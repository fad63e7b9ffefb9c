"""Which lines a session wrote."""

from flightlog.model.address import parse
from flightlog.model.links import near
from flightlog.views.written import Edit, prints, wrote

LINES = prints(["def a():", "    return 1", "", "def b():", "    return 1", "}"])


def edit(*lines):
    return Edit("s#1.1", 1, "a.py", 1, prints(lines))


def test_a_line_belongs_to_the_edit_that_holds_most_of_its_neighbours():
    near_b = edit("def b():", "    return 1", "}")
    only = edit("    return 1")

    assert wrote(near_b, LINES, 4) == 3
    assert wrote(only, LINES, 4) == 1
    assert wrote(near_b, LINES, 0) == 0


def test_an_empty_line_is_nobodys():
    assert wrote(edit("", "x"), LINES, 2) == 0


def test_a_print_does_not_mind_the_indent_and_holds_no_words():
    (one, other) = prints(["  secret word", "secret word\t"])

    assert one == other
    assert "secret" not in one


def test_how_near_two_places_are():
    step = parse("s#2.3")

    assert near(step, parse("s")) == near(parse("s"), step) == "here"
    assert near(step, parse("s#2")) == "here"
    assert near(step, parse("s#2.4")) == "same turn"
    assert near(step, parse("s#1.1")) == near(step, parse("s@lane#2.3")) == "same session"
    assert near(step, parse("t#2.3")) == ""
