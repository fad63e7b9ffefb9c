import json
from pathlib import Path

import pytest

from support.cli_runs import within
from support.transcripts import SESSION, user, write


def findings(root, **more):
    ran = within(root, "doctor", "--json", **more)
    return ran.code, {(finding["level"], finding["subject"]) for finding in json.loads(ran.out)}


def test_doctor_exits_0_on_a_sound_machine(tmp_path):
    write(tmp_path, SESSION, user("x"))

    code, pairs = findings(tmp_path)

    assert code == 0
    assert ("ok", "recordings") in pairs
    assert ("warning", "retention") in pairs


def test_a_directory_in_the_settings_that_does_not_exist_is_named(tmp_path):
    more = {"FLIGHTLOG_AGENTS_DIRECTORIES": f"codex={tmp_path}/old"}

    ran = within(tmp_path, "doctor", **more)

    assert f"names a directory that does not exist: {tmp_path}/old" in ran.out
    assert ("warning", "sessions") in findings(tmp_path, **more)[1]


def test_doctor_exits_3_on_damage_and_names_its_location(tmp_path):
    path = write(tmp_path, SESSION, user("x"), b"{torn", user("y", 2))

    ran = within(tmp_path, "doctor")

    assert ran.code == 3
    assert str(path) in ran.out
    assert findings(tmp_path)[0] == 3


def test_unknown_records_and_a_clock_in_the_future_are_reported(tmp_path):
    write(tmp_path, SESSION, user("x", timestamp="2199-01-01T00:00:00Z"), {"type": "hologram"})

    _, pairs = findings(tmp_path)

    assert ("note", "format") in pairs
    assert ("warning", "clock") in pairs


def test_a_home_that_others_can_read_is_reported(tmp_path):
    write(tmp_path, SESSION, user("x"))
    (tmp_path / "open").mkdir(mode=0o755)

    assert ("warning", "home") in findings(tmp_path, FLIGHTLOG_HOME=str(tmp_path / "open"))[1]


def test_open_permissions_are_reported_once(tmp_path):
    write(tmp_path, SESSION, user("x"))
    (tmp_path / "open").mkdir(mode=0o755)

    ran = within(tmp_path, "doctor", "--json", FLIGHTLOG_HOME=str(tmp_path / "open"))

    assert [
        finding["subject"] for finding in json.loads(ran.out) if "other" in finding["message"]
    ] == ["home"]


def test_a_broken_edit_of_the_runtime_state_is_reported_with_its_line(tmp_path):
    write(tmp_path, SESSION, user("x"))
    place = tmp_path / "session-health"
    place.mkdir()
    (place / "runtime-state.yaml").write_text("sessions:\n  - sessionId: [\n")

    assert ("warning", "live") in findings(tmp_path)[1]


def test_a_machine_without_sessions_gets_a_first_command(tmp_path):
    assert ("note", "sessions") in findings(tmp_path)[1]


def everything(folder):
    """Every byte below a directory."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_second_fix_changes_nothing_and_no_byte_is_lost(tmp_path):
    write(tmp_path, SESSION, user("x"), b"{torn", user("y", 2))
    home = tmp_path / "home"
    within(tmp_path, "settle")
    (index,) = home.glob("index*.db")
    index.write_bytes(b"this is no database" * 100)
    for side in ("-wal", "-shm"):
        Path(f"{index}{side}").unlink(missing_ok=True)
    (home / "notes.txt").write_text("mine")
    (home / "notes.txt").chmod(0o644)
    before = everything(home)

    first = json.loads(within(tmp_path, "doctor", "--fix", "--json").out)
    after = everything(home)
    within(tmp_path, "session", "usage")
    assert index.is_file(), "there is a sound index again, which is left alone"
    second = json.loads(within(tmp_path, "doctor", "--fix", "--json").out)
    settled = everything(home)
    index.write_bytes(b"damaged once more" * 100)
    within(tmp_path, "doctor", "--fix")

    repaired = [finding["message"] for finding in first if finding["subject"] == "repaired"]
    assert any("damaged index" in text for text in repaired)
    assert any("notes.txt" in text for text in repaired)
    assert set(before.values()) <= set(after.values()), "what was damaged is somewhere else, whole"
    assert [finding for finding in second if finding["subject"] == "repaired"] == []
    assert {name: body for name, body in settled.items() if "index-" not in name} == {
        name: body for name, body in after.items() if "index-" not in name
    }
    set_aside = {body for name, body in everything(home).items() if ".damaged-" in name}
    assert {b"this is no database" * 100, b"damaged once more" * 100} <= set_aside


def test_data_of_a_later_version_is_reported_and_left_alone(tmp_path):
    write(tmp_path, SESSION, user("x"))
    home = tmp_path / "home"
    within(tmp_path, "settle")
    (home / "layout.json").write_text('{"layout": 99}')

    assert ("warning", "layout") in findings(tmp_path)[1]
    assert within(tmp_path, "doctor", "--fix").code == 4
    assert (home / "layout.json").read_text() == '{"layout": 99}'
    (home / "layout.json").write_text("{")
    assert findings(tmp_path)[0] == 3


def test_a_hook_that_a_project_registered_counts_there_and_nowhere_else(tmp_path, monkeypatch):
    write(tmp_path, SESSION, user("x"))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    before = findings(tmp_path)[1]

    assert within(tmp_path, "init", "--project", "--yes", "--no-guard").code == 0

    assert ("warning", "hooks") in before
    assert ("ok", "hooks") in findings(tmp_path)[1]
    monkeypatch.chdir(tmp_path)
    assert ("warning", "hooks") in findings(tmp_path)[1]


@pytest.mark.parametrize("folder", ["", f"{SESSION}/subagents/workflows/wf_1/"])
def test_damage_of_a_subagent_leads_to_its_session(tmp_path, folder):
    agent = user("x", 1, agentId="a1", isSidechain=True)
    write(tmp_path, SESSION, user("x"))
    write(tmp_path, f"{folder}agent-a1", agent, b"{torn")

    reported = json.loads(within(tmp_path, "doctor", "--json").out)

    (damage,) = [finding for finding in reported if finding["subject"] == "damage"]
    assert damage["next_command"] == f"flightlog session show {SESSION}"


def test_damage_is_reported_once_a_file_with_a_command(tmp_path):
    write(tmp_path, SESSION, user("x"), b"{torn", user("y", 2), b"{torn", user("z", 3))

    reported = json.loads(within(tmp_path, "doctor", "--json").out)

    (damage,) = [finding for finding in reported if finding["subject"] == "damage"]
    assert "(2)" in damage["message"]
    assert damage["next_command"] == f"flightlog session show {SESSION}"
    lines = sum(path.read_bytes().count(b"\n") for path in tmp_path.rglob("*.jsonl"))
    (read,) = [finding for finding in reported if finding["subject"] == "recordings"]
    assert f"{lines} records read" in read["message"]


def test_samples_are_not_warned_about(tmp_path):
    ran = within(tmp_path, "--samples", "doctor", "--json", XDG_CACHE_HOME=str(tmp_path))

    assert {finding["level"] for finding in json.loads(ran.out)} == {"ok"}
