import pytest

from flightlog.model import errors

KINDS = [
    errors.NotFound,
    errors.Invalid,
    errors.Conflict,
    errors.Unreadable,
    errors.Unavailable,
    errors.Misconfigured,
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_what_and_what_to_do_next(kind):
    error = kind("no such thing: x", hint="flightlog session list")

    assert isinstance(error, errors.FlightlogError)
    assert (str(error), error.message, error.hint) == (
        "no such thing: x",
        "no such thing: x",
        "flightlog session list",
    )
    assert kind("y").hint == ""


def test_misconfigured_is_a_kind_of_invalid():
    assert issubclass(errors.Misconfigured, errors.Invalid)
