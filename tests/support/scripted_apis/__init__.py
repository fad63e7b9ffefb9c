"""The scripted model in the APIs of all clients that the tests run; flightlog has Anthropic's alone."""

import functools

from flightlog.agents.scripted import server
from flightlog.agents.scripted.server import MESSAGES, ServedApi
from support.scripted_apis import block_counting, chat_api, gemini_api, responses_api

APIS = (
    MESSAGES,
    ServedApi(r"/responses$", "responses", responses_api),
    ServedApi(r"/chat/completions$", "chat", chat_api),
    ServedApi(r":(stream)?[gG]enerateContent$", "gemini", gemini_api),
    ServedApi(r":countTokens$", "", gemini_api, gemini_api.count_tokens),
)
COUNTING_APIS = (ServedApi(r"/messages$", "messages", block_counting),)
serve_scenario = functools.partial(server.serve_scenario, apis=APIS)
