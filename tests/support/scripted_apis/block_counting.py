"""The Messages API with a count for each block of a request, by a rule of one's choice."""

from types import SimpleNamespace

from flightlog.agents.scripted import messages_api
from support.scripted_apis.counts import TextCounter, count_blocks, count_reply


def counting_api(count: TextCounter) -> SimpleNamespace:
    """Return an `ApiDialect` that counts by `count`."""

    def build_response(reply, model, body, name):
        counted = count_reply(reply, count_blocks(body, count), count)
        return messages_api.build_response(counted, model, body, name)

    names = ("decode_request", "error_body", "iter_events", "response_usage")
    same = {name: getattr(messages_api, name) for name in names}
    return SimpleNamespace(**same, build_response=build_response)
