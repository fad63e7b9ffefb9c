"""A scripted model and agent that run offline, for tests, docs and the demo.

    with serve_scenario(load_scenario(Path("hello.yaml"))) as model:
        ...  # point an agent's ANTHROPIC_BASE_URL at model.url

`scenario` parses scripts and chooses replies, `messages_api`, `responses_api`, `chat_api` and
`gemini_api` read requests and write replies as those APIs do, `server` listens on loopback, `agent`
is an agent with real tools.
"""

from flightlog.agents.scripted.scenario import Scenario, load_scenario, parse_scenario
from flightlog.agents.scripted.server import ScriptedModel, ServedRequest, serve_scenario

__all__ = [
    "Scenario",
    "ScriptedModel",
    "ServedRequest",
    "load_scenario",
    "parse_scenario",
    "serve_scenario",
]
