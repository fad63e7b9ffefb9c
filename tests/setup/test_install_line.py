"""The status line in the agent's settings: ours beside nobody's, and out again without a trace."""

import json
import sys
from pathlib import Path

import pytest

from flightlog.setup.install import (
    InstallOptions,
    apply_change,
    has_other_status_line,
    plan_install,
    plan_removal,
    status_line_command,
)

PYTHON = Path(sys.executable)
OTHERS = (
    '{\n    "statusLine": {"type": "command", "command": "their own"},\n    "model": "opus"\n}\n'
)


def install(settings, **more):
    apply_change(
        plan_install(settings, ["2.1.325"], PYTHON, InstallOptions(statusline=True, **more))
    )
    return json.loads(settings.read_text())


@pytest.mark.parametrize(
    "before", [None, "{}", '{"model": "opus"}', '{\n\t"a": [1],\n\t"b": {}\n}\n']
)
def test_status_line_is_added_once_and_removed_to_the_byte(tmp_path, before):
    settings = tmp_path / "settings.json"
    if before is not None:
        settings.write_text(before)

    document = install(settings)
    again = plan_install(settings, ["2.1.325"], PYTHON, InstallOptions(statusline=True))
    apply_change(plan_removal(settings))

    assert document["statusLine"] == {
        "type": "command",
        "command": status_line_command(PYTHON),
        "padding": 0,
        "refreshInterval": 10,
    }
    assert "hooks" in document
    assert not again.is_needed
    assert (settings.read_text() if settings.exists() else None) == before


def test_status_line_of_another_program_stays(tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(OTHERS)

    document = install(settings)

    assert document["statusLine"]["command"] == "their own"
    assert has_other_status_line(settings.read_bytes())
    apply_change(plan_removal(settings))
    assert settings.read_text() == OTHERS


def test_a_line_of_ours_from_another_python_is_renewed(tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(
        json.dumps(
            {
                "statusLine": {
                    "type": "command",
                    "command": "/old/python -I -S /x/flightlog/hooks/status.py",
                }
            }
        )
    )

    assert install(settings)["statusLine"]["command"] == status_line_command(PYTHON)


def test_install_without_the_option_adds_no_status_line(tmp_path):
    settings = tmp_path / "settings.json"

    apply_change(plan_install(settings, ["2.1.325"], PYTHON))

    assert "statusLine" not in json.loads(settings.read_text())


def test_a_persons_own_options_of_our_line_stay(tmp_path):
    settings = tmp_path / "settings.json"
    install(settings)
    mine = settings.read_text().replace('"refreshInterval": 10', '"refreshInterval": 3')
    settings.write_text(mine)

    assert install(settings)["statusLine"]["refreshInterval"] == 3
    assert settings.read_text() == mine
