"""The scripted model in the APIs of all clients that the tests run; flightlog has Anthropic's alone."""

import functools

from flightlog.agents.scripted import server
from flightlog.agents.scripted.server import MESSAGES, ServedApi
from support.scripted_apis import chat_api, gemini_api, responses_api
from support.scripted_apis.block_counting import counting_api
from support.scripted_apis.counts import TextCounter, count_text

APIS = (
    MESSAGES,
    ServedApi(r"/responses$", "responses", responses_api),
    ServedApi(r"/chat/completions$", "chat", chat_api),
    ServedApi(r":(stream)?[gG]enerateContent$", "gemini", gemini_api),
    ServedApi(r":countTokens$", "", gemini_api, gemini_api.count_tokens),
)
serve_scenario = functools.partial(server.serve_scenario, apis=APIS)


def counting_apis(count: TextCounter = count_text) -> tuple[ServedApi, ...]:
    """Return the Messages API with counts of each block."""
    return (ServedApi(r"/messages$", "messages", counting_api(count)),)
