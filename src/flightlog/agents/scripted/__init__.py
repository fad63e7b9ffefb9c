"""A scripted model and agent that run offline, for tests, docs and the demo.

    with serve_scenario(load_scenario(Path("hello.yaml"))) as model:
        ...  # point an agent's ANTHROPIC_BASE_URL at model.url

`scenario` parses scripts and chooses replies, `messages_api` reads requests and writes replies as
that API does, `server` listens on loopback, `agent` is an agent with real tools.
"""
