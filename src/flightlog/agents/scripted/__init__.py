"""A scripted model: real agents run against it offline, for tests, docs and the demo.

    scenario = load(Path("hello.yaml"))
    with serve(scenario) as model:
        ...  # point an agent's ANTHROPIC_BASE_URL at model.url

`scenario` says what a script holds, `match` which reply a request gets, `sse` what goes over
the wire, `server` listens. Nothing here starts an agent, and nothing reaches past loopback.
"""

from flightlog.agents.scripted.scenario import Scenario, load, parse
from flightlog.agents.scripted.server import Seen, Serving, serve

__all__ = ["Scenario", "Seen", "Serving", "load", "parse", "serve"]
