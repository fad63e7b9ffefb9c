"""The scripted agent: follows a scenario with real tools, for tests, docs and the demo."""
