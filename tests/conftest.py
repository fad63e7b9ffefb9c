"""Fixtures every test may ask for."""

pytest_plugins = ["real_agent"]
