from flightlog.model.exchange import Body, Context, Exchange, Request


def test_an_exchange_has_the_number_of_its_request():
    request = Request(12, Context.SIDE, "POST", "/v1/messages", {}, Body("", 0))

    assert Exchange("2026-11-15T12:00:00Z", request).index == 12
