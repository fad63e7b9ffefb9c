import pytest

from flightlog.model.errors import (
    Unavailable,
    install_line,
    missing_extra_error,
    optional_import,
)

SITE = "/python3.11/site-packages/flightlog/model/errors.py"


def test_what_an_extra_brings_is_named_with_the_extra():
    with pytest.raises(Unavailable) as error, optional_import():
        raise ModuleNotFoundError("x", name="pyarrow.parquet")

    assert error.value.message == "this needs pyarrow, which is not installed"
    assert error.value.hint.endswith("[tables]'")


@pytest.mark.parametrize(
    ("prefix", "source", "line"),
    [
        ("/usr", f"/usr/lib{SITE}", "pip install 'flightlog[sql]'"),
        ("/h/.cache/uv/archive-v0/x", f"/h{SITE}", "uvx --from 'flightlog[sql]' flightlog"),
        ("/h/uv/tools/flightlog", f"/h{SITE}", "uv tool install 'flightlog[sql]'"),
        ("/h/pipx/venvs/flightlog", f"/h{SITE}", "pipx install --force 'flightlog[sql]'"),
        (
            "/c/.venv",
            "/c/src/flightlog/model/errors.py",
            "'/c/.venv/bin/python' -m pip install --editable '/c[sql]'",
        ),
    ],
)
def test_the_line_that_adds_an_extra_fits_the_installation(prefix, source, line):
    assert install_line("sql", prefix, source) == line


def test_a_module_that_no_extra_brings_is_a_bug_of_ours_and_stays_one():
    missing = ModuleNotFoundError("x", name="flightlog.nowhere")

    assert missing_extra_error(missing) is None
    with pytest.raises(ModuleNotFoundError), optional_import():
        raise missing
