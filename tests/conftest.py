"""Fixtures every test may ask for, and how often Hypothesis asks for luck.

At a desk every run tries new examples; in continuous integration the same ones each time, so
that a change is judged by what it changed.
"""

import os

from hypothesis import settings

pytest_plugins = ["real_agent"]

settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
