"""Rows of any origin made fit to be counted: a field of the wrong type is left out, as if it were not there.

Rows come by git, so anybody may have written them. What is wrong with one is said by `check`; the others count.
"""

import functools
import re
from typing import Any

import msgspec

from flightlog.dataset.rows import ROWS, Row

_FIELD = re.compile(r"at `\$\.(\w+)")


def drop_invalid_fields(row: Row) -> Row:
    """Return a row whose fields have the types its kind says, and an id."""
    shape = _optional_schemas().get(str(row.get("kind")))
    found = row
    while shape is not None:
        try:
            msgspec.convert(found, shape)
        except msgspec.ValidationError as error:
            named = _FIELD.search(str(error))
            assert named is not None, "a row is an object, so a complaint names a field of it"
            found = {name: value for name, value in found.items() if name != named[1]}
        else:
            break
    return found if "id" in found else {**found, "id": ""}


@functools.cache
def _optional_schemas() -> dict[str, type[Any]]:
    """The kinds of rows with no field required."""
    return {
        str(kind.__struct_config__.tag): msgspec.defstruct(
            kind.__name__,
            [(field.name, field.type, msgspec.UNSET) for field in msgspec.structs.fields(kind)],
            kw_only=True,
        )
        for kind in ROWS
    }
