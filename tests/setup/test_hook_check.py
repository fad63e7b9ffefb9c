import sys
from pathlib import Path

from flightlog.model.runtime import ConfigValue
from flightlog.setup.hook_check import hook_findings, list_init_notes, status_line_findings
from flightlog.setup.install import InstallOptions, apply_change, plan_install
from flightlog.sources.hook_log import count_lost_records
from support.hooking import payload, run_hook

TEMPLATE = ConfigValue("statusline.template", "", "default")


def whats(settings, home, tmp_path, versions=("2.1.325",)):
    return [finding.kind for finding in hook_findings(settings, home, versions, tmp_path / "tmp")]


def test_a_sound_installation_has_no_findings(tmp_path):
    settings, home = tmp_path / "settings.json", tmp_path / "home"
    apply_change(plan_install(settings, ["2.1.325"], Path(sys.executable)))
    run_hook(tmp_path, payload(), FLIGHTLOG_HOME=str(home))

    assert whats(settings, home, tmp_path) == []


def test_no_hook_broken_settings_and_missing_events_are_found(tmp_path):
    settings, home = tmp_path / "settings.json", tmp_path / "home"
    assert "no hook is registered" in whats(settings, home, tmp_path)[0]

    apply_change(plan_install(settings, [], Path(sys.executable)))
    (finding,) = hook_findings(settings, home, ["2.1.325"], tmp_path)
    assert ("PostToolUseFailure" in finding.subject, finding.fix) == (True, "flightlog init")

    settings.write_text("{")
    assert "cannot be read" in whats(settings, home, tmp_path)[0]


def test_hooks_that_the_settings_turn_off_are_found(tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text('{"disableAllHooks": true}')
    change = plan_install(settings, ["2.1.325"], Path(sys.executable))
    apply_change(change)

    (note,) = list_init_notes(change.before, statusline=True)
    (problem,) = hook_findings(settings, tmp_path / "home", ["2.1.325"], tmp_path / "tmp")

    assert "nothing is recorded" in note
    assert (problem.subject, problem.fix) == ("disableAllHooks", f"edit {settings}")
    settings.write_text(settings.read_text().replace("true", "false"))
    assert whats(settings, tmp_path / "home", tmp_path) == []


def test_a_hook_that_points_nowhere_is_found(tmp_path):
    settings = tmp_path / "settings.json"
    apply_change(plan_install(settings, ["2.1.325"], tmp_path / "gone" / "python"))
    settings.write_text(settings.read_text().replace("/flightlog/hooks/", "/gone/flightlog/hooks/"))

    problems = whats(settings, tmp_path / "home", tmp_path)
    assert len(problems) == 2
    assert "Python is missing" in problems[0]
    assert "missing program" in problems[1]


def test_a_status_line_that_points_nowhere_is_found(tmp_path):
    settings = tmp_path / "settings.json"
    assert status_line_findings(settings, TEMPLATE) == []
    apply_change(
        plan_install(settings, ["2.1.325"], Path(sys.executable), InstallOptions(statusline=True))
    )
    assert status_line_findings(settings, TEMPLATE) == []
    settings.write_text(
        settings.read_text().replace("/flightlog/hooks/status", "/gone/flightlog/hooks/status")
    )

    (finding,) = status_line_findings(settings, TEMPLATE)

    assert ("status line points to a missing program" in finding.kind, finding.fix) == (
        True,
        "flightlog init",
    )


def test_lost_records_are_found(tmp_path):
    settings, home = tmp_path / "settings.json", tmp_path / "home"
    apply_change(plan_install(settings, ["2.1.325"], Path(sys.executable)))
    run_hook(tmp_path, payload(), FLIGHTLOG_HOME=str(home))
    file = home / "sessions/claude-code/session-1/hooks.jsonl"
    file.unlink()
    file.mkdir()
    run_hook(tmp_path, payload(), FLIGHTLOG_HOME=str(home))
    (home / "spool").mkdir()

    problems = whats(settings, home, tmp_path)
    assert problems == ["1 hook event lost"]
    assert count_lost_records(home, tmp_path) == 1

    (home / "spool" / "x.json.part").write_text("")
    assert "cut off" in whats(settings, home, tmp_path)[0]
