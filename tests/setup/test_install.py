import json
import sys
from pathlib import Path

import pytest

from flightlog.agents.claude_code.hooks import COMMON, events_for
from flightlog.model.errors import Conflict, Misconfigured
from flightlog.setup.install import (
    CAPTURE_EVENTS,
    InstallOptions,
    apply_change,
    build_hook_command,
    find_own_groups,
    format_diff,
    is_ours,
    plan_capture_hook,
    plan_install,
    plan_removal,
)

PYTHON = Path(sys.executable)
OWN = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo mine"}]}
# As a person writes it: lists on one line, odd spaces.
THEIRS = """{
    "permissions": {"deny": ["Bash(rm:*)"],  "allow": []},
    "hooks": {
        "Stop": [ {"hooks": [{"type": "command", "command": "./notify"}]} ],
        "PreToolUse": []
    },
    "model": "opus"
}
"""


@pytest.fixture
def settings(tmp_path):
    return tmp_path / ".claude" / "settings.json"


def write(settings, text):
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(text)
    return text


def files(settings):
    return sorted(path.name for path in settings.parent.iterdir())


def test_a_new_file_holds_the_hook_for_every_event(settings):
    change = plan_install(settings, ["2.1.325"], PYTHON)

    assert apply_change(change) is None
    document = json.loads(settings.read_text())
    assert tuple(document["hooks"]) == change.events == events_for(["2.1.325"])
    (group,) = document["hooks"]["Stop"]
    assert group == {
        "matcher": "",
        "hooks": [{"type": "command", "command": build_hook_command(PYTHON), "timeout": 5}],
    }
    assert settings.stat().st_mode & 0o777 == 0o600


def test_settings_of_others_keep_every_byte(settings):
    text = write(settings, THEIRS)

    written = apply_change(plan_install(settings, [], PYTHON))

    after = settings.read_text()
    assert written.read_text() == text
    assert '"permissions": {"deny": ["Bash(rm:*)"],  "allow": []},' in after
    assert [is_ours(group["hooks"][0]) for group in json.loads(after)["hooks"]["Stop"]] == [
        False,
        True,
    ]
    assert all(
        line in after.replace(",\n", "\n") for line in ('    "model": "opus"', '"./notify"}]}')
    )


@pytest.mark.parametrize(
    "text", [THEIRS, "{}", "{ }\n", '{"hooks": {}}', json.dumps({"hooks": {"Stop": [OWN]}}), "\n"]
)
def test_init_twice_is_once_and_removal_leaves_no_trace(settings, text):
    write(settings, text)

    apply_change(plan_install(settings, ["2.1.325"], PYTHON, InstallOptions(keep_days=3650)))
    once = settings.read_text()
    again = plan_install(settings, ["2.1.325"], PYTHON, InstallOptions(keep_days=3650))
    apply_change(again)
    assert (again.is_needed, settings.read_text(), len(files(settings))) == (False, once, 2)
    apply_change(plan_removal(settings))

    assert settings.read_text() == text
    assert files(settings) == ["settings.json"]


def test_removal_takes_a_file_and_a_directory_of_ours_away(settings):
    apply_change(plan_install(settings, [], PYTHON, InstallOptions(keep_days=99)))
    apply_change(plan_removal(settings))

    assert not settings.parent.exists()


def test_removal_without_an_installation_changes_nothing(settings):
    assert not plan_removal(settings).is_needed
    write(settings, THEIRS)
    assert not plan_removal(settings).is_needed
    assert apply_change(plan_removal(settings)) is None


def test_removal_after_another_program_wrote_takes_only_ours(settings):
    write(settings, THEIRS)
    apply_change(plan_install(settings, ["2.1.325"], PYTHON))
    settings.write_text(settings.read_text().replace('"opus"', '"haiku"'))

    apply_change(plan_removal(settings))

    expected = json.loads(THEIRS.replace('"opus"', '"haiku"'))
    expected["hooks"].pop("PreToolUse")  # emptied with our hook in it: an empty list says nothing
    document = json.loads(settings.read_text())
    document["hooks"].pop("PreToolUse", None)
    assert document == expected
    assert "record.py" not in settings.read_text()


def test_a_hook_of_ours_in_a_group_with_others_is_cut_out_alone(settings):
    ours = {"type": "command", "command": build_hook_command(PYTHON)}
    mixed = {"hooks": {"Stop": [{"hooks": [ours, OWN["hooks"][0]]}]}}
    write(settings, json.dumps(mixed))

    apply_change(plan_removal(settings))

    assert json.loads(settings.read_text()) == {"hooks": {"Stop": [{"hooks": OWN["hooks"]}]}}


def test_a_new_installation_takes_the_place_of_the_old_one(settings):
    apply_change(plan_install(settings, ["2.1.325"], Path("/old/python")))
    apply_change(plan_install(settings, ["1.0.128"], PYTHON))

    groups = find_own_groups(settings.read_text())
    assert tuple(groups) == events_for(["1.0.128"])
    assert "/old/python" not in settings.read_text()


def test_the_oldest_common_events_come_first_when_in_doubt(settings):
    assert plan_install(settings, ["2.1.325", "1.0.128"], PYTHON).events == COMMON


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"hooks": {"Stop": [}}', "line 1, column 21"),
        ('{"hooks": []}', "`hooks` is not what"),
        ('{"hooks": {"Stop": {}}}', r"`hooks\.Stop` is not what"),
        ("[]", "not a JSON object"),
    ],
)
def test_broken_settings_are_refused_and_left_alone(settings, text, why):
    write(settings, text)

    with pytest.raises(Misconfigured, match=why):
        plan_install(settings, [], PYTHON)

    assert (settings.read_text(), files(settings)) == (text, ["settings.json"])


def test_settings_that_are_not_text_are_refused(settings):
    write(settings, "")
    settings.write_bytes(b"\xff\xfe{}")

    with pytest.raises(Misconfigured, match="not UTF-8"):
        plan_install(settings, [], PYTHON)


def test_retention_days_are_raised_and_never_lowered(settings):
    write(settings, '{"cleanupPeriodDays": 30}')
    apply_change(plan_install(settings, [], PYTHON, InstallOptions(keep_days=3650)))
    assert json.loads(settings.read_text())["cleanupPeriodDays"] == 3650

    apply_change(plan_install(settings, [], PYTHON, InstallOptions(keep_days=10)))
    assert json.loads(settings.read_text())["cleanupPeriodDays"] == 3650


def test_a_change_by_another_program_in_between_is_not_overwritten(settings):
    write(settings, "{}")
    change = plan_install(settings, [], PYTHON)
    write(settings, '{"model": "opus"}')

    with pytest.raises(Conflict, match="changed by another program"):
        apply_change(change)

    assert settings.read_text() == '{"model": "opus"}'


def test_the_diff_shows_the_lines_that_come_and_no_others(settings):
    write(settings, THEIRS)
    lines = format_diff(plan_install(settings, [], PYTHON)).splitlines()

    gone = [line for line in lines if line.startswith("-") and not line.startswith("---")]
    assert [line for line in lines if "record.py" in line]
    assert all("permissions" not in line for line in gone)


def test_a_path_with_spaces_and_quotes_is_one_word_for_the_shell():
    run = build_hook_command(Path("/a b/it's/python"), Path("/c d/record.py"), flags=["--inline"])

    assert run.startswith("""'/a b/it'"'"'s/python' -I -S '/c d/record.py' claude-code --inline""")


def test_another_script_of_the_same_name_stays(settings):
    theirs = "bash /opt/team/scripts/ml-session-capture-hook.sh"
    group = {"hooks": [{"type": "command", "command": theirs}]}
    write(settings, json.dumps({"hooks": {"Stop": [group]}}))

    assert not plan_removal(settings).is_needed
    assert not plan_capture_hook(settings.parents[1], remove=True).is_needed
    apply_change(plan_install(settings, ["2.1.325"], PYTHON))

    assert group in json.loads(settings.read_text())["hooks"]["Stop"]


def test_a_repository_at_the_users_settings_keeps_their_recording(settings):
    top = settings.parents[1]
    apply_change(plan_install(settings, ["2.1.325"], PYTHON, InstallOptions(statusline=True)))
    recording = settings.read_text()

    apply_change(plan_capture_hook(top, remove=False))
    both = settings.read_text()
    assert not plan_install(
        settings, ["2.1.325"], PYTHON, InstallOptions(statusline=True)
    ).is_needed
    apply_change(plan_capture_hook(top, remove=True))

    assert both.count("hooks/record.py") == recording.count("hooks/record.py")
    assert both.count("ml-session-capture-hook.sh") == len(CAPTURE_EVENTS)
    assert settings.read_text() == recording
