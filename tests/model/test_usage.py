from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.usage import ClientTotals, ModelTotal, Usage

usages = st.builds(Usage, *[st.integers(0, 10**9)] * 6)


@given(usages, usages, usages)
def test_usage_adds_like_numbers_do(one, two, three):
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == one
    assert (one + two) - two == one
    assert one + -one == Usage()


def test_total_tokens_are_the_sum_of_their_classes():
    usage = Usage(
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=4,
        cache_write_tokens=24,
        cache_write_1h_tokens=16,
        web_searches=32,
    )

    assert usage.cache_write_5m_tokens == 8
    assert usage.prompt_tokens == 29
    assert usage.total_tokens == 31


@given(usages)
def test_zero_usage_is_falsy(usage):
    assert bool(usage) == (usage != Usage())
    assert bool(Usage(web_searches=1))
    assert bool(Usage(1) - Usage(output_tokens=1))


def test_a_clients_total_is_the_sum_of_its_models():
    totals = ClientTotals(
        "s",
        3.0,
        0,
        (
            ModelTotal("a", 1.0, input_tokens=1, output_tokens=2),
            ModelTotal("b", 2.0, input_tokens=3, output_tokens=4),
        ),
    )

    assert totals.usage == Usage(4, 6)
    assert ClientTotals("s", 0.0, 0).usage == Usage()
