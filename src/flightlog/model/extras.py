"""What a room needs besides the rest, and the extra that brings it: one table, and one way to say so."""

from collections.abc import Iterator
from contextlib import contextmanager

from flightlog.model.errors import Unavailable

EXTRAS = {
    **dict.fromkeys(("aiohttp", "multidict", "yarl"), "web"),
    "stamina": "lab",
    "numpy": "lab,retro",
    **dict.fromkeys(("scipy", "sklearn"), "retro"),
    **dict.fromkeys(("distributed", "pyarrow"), "scale"),
}


def missing_extra_error(error: ModuleNotFoundError) -> Unavailable | None:
    """What a person can do about a package that is not there; None where no extra brings it: a bug of ours."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return None
    return Unavailable(f"this needs {name}, which is not installed", hint=f"pip install 'flightlog[{EXTRAS[name]}]'")


@contextmanager
def optional_import() -> Iterator[None]:
    """Load what an extra brings; where it is not installed, that is said."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = missing_extra_error(error)
        if told is None:
            raise
        raise told from None
