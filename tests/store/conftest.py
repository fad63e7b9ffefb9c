"""Laws about real files run on busy machines: the clock is no judge of them."""

from hypothesis import settings

settings.register_profile("files", deadline=None, max_examples=60)
settings.load_profile("files")
