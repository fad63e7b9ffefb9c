import pytest

from flightlog.archive.search import SearchQuery, cut_snippet, parse_query
from flightlog.model.errors import Invalid


def test_words_phrases_and_columns_become_one_expression():
    query = parse_query('retry "exit code" tool:Bash -draft', int)

    assert query.match == (
        '({said output} : "retry" *) AND ({said output} : "exit code") AND (tool : "Bash" *)'
        ' NOT ({said output} : "draft" *)'
    )
    assert query.words == ("retry", "exit code")


def test_a_star_after_a_word_changes_nothing():
    assert parse_query("retry*", int) == parse_query("retry", int)


def test_a_word_of_two_letters_is_a_prefix_only_with_a_star():
    assert parse_query("te", int).match == '({said output} : "te")'
    assert parse_query("te*", int).match == '({said output} : "te" *)'
    assert parse_query("tool:te", int).match == '(tool : "te" *)'
    assert parse_query("検索", int).match == '({said output} : "検索" *)'


def test_filters_alone_are_enough():
    assert parse_query("project:shop since:5 cost:>=2", int) == SearchQuery(
        project="shop", since_ms=5, cost_min_usd=2.0
    )


def test_an_unknown_key_is_a_word():
    assert parse_query("http://x", int).words == ("http://x",)


def test_quotes_inside_are_not_syntax():
    assert parse_query('tool:a"b c', int).match == '(tool : "a" *) AND ({said output} : "b c")'


@pytest.mark.parametrize(
    "typed",
    [
        *("", "-x", "cost:x", "x tool:", "x cost:", 'since:"" x', "x -project:shop"),
        *("since:1 since:2", "project:a x project:b", "agent:codex agent:codex", "cost:>1 cost:2"),
    ],
)
def test_malformed_query_is_refused(typed):
    with pytest.raises(Invalid):
        parse_query(typed, int)


@pytest.mark.parametrize(
    ("typed", "usd", "wanted"),
    [
        ("x", None, True),
        ("x cost:>1", None, False),
        ("x cost:>1", 1.5, True),
        ("x cost:<1", 1.5, False),
        ("x cost:<1", 0, True),
        ("x cost:>1 cost:<2", 1.5, True),
        ("x cost:>1 cost:<2", 0.5, False),
        ("x cost:<=2 cost:>=1", 2.5, False),
    ],
)
def test_cost_filter_narrows_the_results(typed, usd, wanted):
    assert parse_query(typed, int).matches_cost(usd) is wanted


def test_a_snippet_is_the_passage_around_the_first_word():
    text = "a " * 500 + "needle\nin " + "b " * 500

    cut = cut_snippet(text, ("NEEDLE",))

    assert "needle in" in cut
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert len(cut) <= 162
    assert cut_snippet("short", ("none",)) == "short"
