from flightlog.model.exchange import ApiRequest, BodyRef, Exchange, RequestOrigin


def test_an_exchange_has_the_number_of_its_request():
    request = ApiRequest(12, RequestOrigin.SIDE, "POST", "/v1/messages", {}, BodyRef("", 0))

    assert Exchange("2026-11-15T12:00:00Z", request).index == 12
