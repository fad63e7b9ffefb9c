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
    ("python", "source", "line"),
    [
        ("/v/bin/python", f"/v/lib{SITE}", "'/v/bin/python' -m pip install 'flightlog[sql]'"),
        (
            "/h/.cache/uv/archive-v0/x/bin/python",
            f"/h{SITE}",
            "uvx --from 'flightlog[sql]' flightlog",
        ),
        ("/h/uv/tools/flightlog/bin/python", f"/h{SITE}", "uv tool install 'flightlog[sql]'"),
        (
            "/h/pipx/venvs/flightlog/bin/python",
            f"/h{SITE}",
            "pipx install --force 'flightlog[sql]'",
        ),
        (
            "/c/.venv/bin/python",
            "/c/src/flightlog/model/errors.py",
            "'/c/.venv/bin/python' -m pip install --editable '/c[sql]'",
        ),
    ],
)
def test_the_line_that_adds_an_extra_fits_the_installation(python, source, line):
    assert install_line("sql", python, source) == line


def test_a_module_that_no_extra_brings_is_a_bug_of_ours_and_stays_one():
    missing = ModuleNotFoundError("x", name="flightlog.nowhere")

    assert missing_extra_error(missing) is None
    with pytest.raises(ModuleNotFoundError), optional_import():
        raise missing
