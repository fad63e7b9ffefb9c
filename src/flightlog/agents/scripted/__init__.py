"""A scripted model: real agents run against it offline, for tests, docs and the demo.

    scenario = load(Path("hello.yaml"))
    with serve(scenario) as model:
        ...  # point an agent's ANTHROPIC_BASE_URL at model.url

`scenario` says what a script holds, `match` which reply a request gets, `sse` what goes over
the wire, `server` listens. Nothing here starts an agent, and nothing reaches past loopback.
"""

from flightlog.agents.scripted.scenario import Scenario, load_scenario, parse_scenario
from flightlog.agents.scripted.server import ScriptedModel, ServedRequest, serve_scenario

__all__ = ["Scenario", "ScriptedModel", "ServedRequest", "load_scenario", "parse_scenario", "serve_scenario"]
