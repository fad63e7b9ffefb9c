"""The Messages API with a count for each block of a request. This module is an `ApiDialect`."""

from flightlog.agents.scripted import messages_api
from flightlog.agents.scripted.messages_api import (
    decode_request,
    error_body,
    iter_events,
    response_usage,
)
from support.scripted_apis.counts import count_blocks, count_reply

__all__ = ["build_response", "decode_request", "error_body", "iter_events", "response_usage"]


def build_response(reply, model, body, name):
    return messages_api.build_response(count_reply(reply, count_blocks(body)), model, body, name)
