import json

from cli_runs import within
from transcripts import SESSION, user, write


def findings(root, **more):
    ran = within(root, "doctor", "--json", **more)
    return ran.code, {(each["level"], each["about"]) for each in json.loads(ran.out)}


def test_a_sound_machine_is_exit_code_0(tmp_path):
    write(tmp_path, SESSION, user("x"))

    code, found = findings(tmp_path)

    assert code == 0
    assert ("ok", "recordings") in found
    assert ("warning", "retention") in found


def test_damage_is_exit_code_3_and_names_the_place(tmp_path):
    path = write(tmp_path, SESSION, user("x"), b"{torn", user("y", 2))

    ran = within(tmp_path, "doctor")

    assert ran.code == 3
    assert str(path) in ran.out
    assert findings(tmp_path)[0] == 3


def test_unknown_records_and_a_clock_in_the_future_are_told(tmp_path):
    write(tmp_path, SESSION, user("x", timestamp="2199-01-01T00:00:00Z"), {"type": "hologram"})

    _, found = findings(tmp_path)

    assert ("note", "format") in found
    assert ("warning", "clock") in found


def test_a_home_that_others_can_read_is_told(tmp_path):
    write(tmp_path, SESSION, user("x"))
    (tmp_path / "open").mkdir(mode=0o755)

    assert ("warning", "home") in findings(tmp_path, FLIGHTLOG_HOME=str(tmp_path / "open"))[1]


def test_open_permissions_are_told_once(tmp_path):
    write(tmp_path, SESSION, user("x"))
    (tmp_path / "open").mkdir(mode=0o755)

    ran = within(tmp_path, "doctor", "--json", FLIGHTLOG_HOME=str(tmp_path / "open"))

    assert [each["about"] for each in json.loads(ran.out) if "other" in each["text"]] == ["home"]


def test_a_broken_edit_of_the_runtime_state_is_told_with_its_place(tmp_path):
    write(tmp_path, SESSION, user("x"))
    place = tmp_path / "session-health"
    place.mkdir()
    (place / "runtime-state.yaml").write_text("sessions:\n  - sessionId: [\n")

    assert ("warning", "live") in findings(tmp_path)[1]


def test_a_machine_without_sessions_is_told_where_to_begin(tmp_path):
    assert ("note", "sessions") in findings(tmp_path)[1]
