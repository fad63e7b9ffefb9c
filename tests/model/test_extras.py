import pytest

from flightlog.model.errors import Unavailable, missing_extra_error, optional_import


def test_what_an_extra_brings_is_named_with_the_extra():
    with pytest.raises(Unavailable) as told, optional_import():
        raise ModuleNotFoundError("x", name="pyarrow.parquet")

    assert told.value.message == "this needs pyarrow, which is not installed"
    assert told.value.hint == "pip install 'flightlog[scale]'"


def test_a_module_that_no_extra_brings_is_a_bug_of_ours_and_stays_one():
    missing = ModuleNotFoundError("x", name="flightlog.nowhere")

    assert missing_extra_error(missing) is None
    with pytest.raises(ModuleNotFoundError), optional_import():
        raise missing
