"""Fixtures every test may ask for."""

import hypothesis

pytest_plugins = ["real_agent"]

# Time is measured by the bench, not here: two noisy cores make any deadline a coin toss.
hypothesis.settings.register_profile("flightlog", deadline=None, max_examples=50)
hypothesis.settings.load_profile("flightlog")
