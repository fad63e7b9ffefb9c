"""Fixtures every test may ask for, and how Hypothesis looks for examples.

At a desk every run tries new examples; in continuous integration the same ones each time, so
that a change is judged by what it changed.
"""

import os
import tempfile

import hypothesis

pytest_plugins = ["support.real_agent"]

# What runs in this process must not write into the data directory of the person who runs the tests.
HOME = tempfile.TemporaryDirectory(prefix="flightlog-tests-")
os.environ["FLIGHTLOG_HOME"] = HOME.name
os.environ["XDG_CACHE_HOME"] = f"{HOME.name}/cache"

# Time is measured by the bench, not here: two noisy cores make any deadline a coin toss.
hypothesis.settings.register_profile("flightlog", deadline=None, max_examples=50)
hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=50, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "flightlog")
