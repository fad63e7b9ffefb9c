"""The shape of the source: contracts, sizes, and rules that only hold when something checks them."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "recordings" not in path.parts)
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50

# Modules without behaviour, or whose behaviour a neighbour's test holds.
UNTESTED = {
    "app/live.py": "tests/cli/test_live.py",
    "live/accounts.py": "tests/live/test_gather.py, its sums against the ledger",
    "live/events.py": "tests/live/test_gather.py, with the journal thrown away and kept",
    "live/health.py": "tests/live/test_gather.py",
    "live/keeping.py": "tests/cli/test_live.py and tests/live/test_gather.py",
    "live/layout.py": "tests/live/test_gather.py",
    "live/observe.py": "tests/live/test_gather.py, work counted; tests/live/test_with_real_agent.py",
    "live/payloads.py": "tests/live/test_with_real_agent.py",
    "live/state.py": "tests/live/file/test_runtime_state.py",
    "app/everywhere.py": "tests/web/test_whole.py",
    "web/pages/dataset.py": "tests/web/test_whole.py",
    "web/pages/doctor.py": "tests/web/test_whole.py",
    "web/pages/privacy.py": "tests/web/test_whole.py",
    "web/pages/search.py": "tests/web/test_whole.py",
    "cli/completing.py": "tests/cli/test_completion.py",
    "cli/trace.py": "tests/app/test_tracing.py",
    "dataset/links.py": "tests/app/test_tracing.py",
    "lab/links.py": "tests/app/test_tracing.py",
    "loop/links.py": "tests/app/test_tracing.py",
    "retro/links.py": "tests/app/test_tracing.py",
    "sources/git/side_line.py": "tests/dataset/test_fixed_names.py; R6 in tests/dataset/test_histories.py",
    "sources/git/lines.py": "tests/app/test_tracing.py",
    "app/trajectories.py": "tests/cli/test_lab_lint.py and tests/cli/test_trajectory.py",
    "model/known.py": "two values; tests/sources/claude_code/test_known.py",
    "views/atif/content.py": "tests/views/atif/test_emit.py",
    "views/atif/findings.py": "data; tests/views/atif/test_lint.py shows each rule",
    "views/atif/metrics.py": "tests/views/atif/test_emit.py",
    "views/atif/rules_calls.py": "tests/views/atif/test_lint.py",
    "views/atif/rules_links.py": "tests/views/atif/test_lint.py",
    "views/atif/rules_steps.py": "tests/views/atif/test_lint.py",
    "views/atif/rules_sums.py": "tests/views/atif/test_lint.py",
    "views/atif/shape.py": "tests/views/atif/test_lint.py",
    "views/atif/values.py": "tests/views/atif/test_lint.py",
    "app/settle.py": "tests/cli/test_settle.py, and real sessions in tests/archive/test_with_real_agent.py",
    "app/status.py": "tests/cli/test_settle.py",
    "cli/status.py": "tests/cli/test_settle.py",
    "app/privacy.py": "tests/cli/test_privacy.py",
    "cli/trust.py": "tests/cli/test_privacy.py",
    "privacy/records.py": "tests/privacy/test_redact.py",
    "__main__.py": "two lines; tests/cli/test_main.py runs it",
    "agents/driver.py": "a protocol",
    "model/retention.py": "values; tests/views/test_retention.py",
    "agents/process.py": "run by tests/agents/test_claude_code.py",
    "agents/scripted/__main__.py": "run by tests/agents/scripted/test_server.py",
    "agents/scripted/sse.py": "every form of it goes over the wire in tests/agents/scripted/test_server.py",
    "sources/claude_code/shapes.py": "data; tests/sources/claude_code/test_decode.py",
    "views/price_table.py": "data; tests/views/test_prices.py",
    "cli/output.py": "tests/cli/test_hostile.py",
    "cli/story.py": "tests/cli/test_hostile.py",
    "cli/usage.py": "tests/cli/test_session.py",
    "cli/search.py": "tests/cli/test_hostile.py",
    "cli/root.py": "tests/cli/test_main.py",
    "app/capturing.py": "tests/dataset/test_with_real_agent.py, tests/dataset/test_cli.py",
    "app/collecting.py": "tests/dataset/test_cli.py",
    "app/collector.py": "tests/dataset/test_hooks.py",
    "app/dataset.py": "tests/dataset/test_cli.py",
    "app/dataset_setup.py": "tests/dataset/test_cli.py",
    "cli/dataset.py": "tests/dataset/test_cli.py",
    "cli/dataset_talk.py": "tests/dataset/test_cli.py",
    "dataset/book.py": "tests/dataset/test_compact.py; R6 in tests/dataset/test_histories.py",
    "dataset/commits.py": "tests/dataset/test_capture.py, tests/dataset/test_sync.py",
    "dataset/consent.py": "tests/dataset/test_capture.py; tests/test_canary.py",
    "dataset/layout.py": "tests/dataset/test_capture.py, tests/dataset/test_compact.py",
    "dataset/memory.py": "tests/dataset/test_capture.py",
    "dataset/older.py": "tests/dataset/test_sync.py",
    "dataset/orchestration.py": "tests/dataset/test_capture.py, tests/dataset/test_exports.py",
    "dataset/rows.py": "tests/dataset/test_capture.py",
    "dataset/shards.py": "tests/dataset/test_histories.py",
    "dataset/stats.py": "tests/dataset/test_exports.py",
    "dataset/telling.py": "tests/dataset/test_capture.py",
    "dataset/window.py": "tests/dataset/test_capture.py",
    "dataset/exports/examples.py": "tests/dataset/test_exports.py",
    "dataset/exports/files.py": "tests/dataset/test_exports.py",
    "dataset/exports/tables.py": "tests/dataset/test_exports.py",
    "sources/git/history.py": "tests/sources/git/test_repository.py",
    "sources/git/own_ref.py": "tests/sources/git/test_repository.py; eight writers in tests/dataset/test_remote.py",
    "cli/issue.py": "tests/retro/test_defects.py, tests/retro/test_commands.py",
    "agents/command.py": "tests/lab/test_running.py: any command can be the agent",
    "agents/scripted/play.py": "a process of its own in tests/lab/running/test_kill.py and tests/cli/test_lab.py",
    "app/lab.py": "tests/cli/test_lab.py",
    "app/lab_resample.py": "tests/lab/resampling/test_sending.py, tests/lab/resampling/test_kill.py",
    "cli/lab_resample.py": "tests/cli/test_lab.py, tests/lab/resampling/test_kill.py",
    "lab/resampling/asking.py": "tests/lab/resampling/test_sending.py",
    "lab/resampling/batch.py": "tests/lab/resampling/test_sending.py",
    "lab/resampling/events.py": "data; tests/lab/resampling/test_sending.py",
    "lab/resampling/layout.py": "tests/lab/resampling/test_sending.py",
    "lab/resampling/ledger.py": "tests/lab/resampling/test_sending.py",
    "lab/resampling/pacing.py": "tests/lab/resampling/test_sending.py",
    "lab/resampling/recorded.py": "tests/lab/resampling/test_sending.py",
    "lab/resampling/sweep.py": "tests/lab/resampling/test_sweeps.py",
    "lab/resampling/variants.py": "tests/lab/resampling/test_sending.py",
    "app/whole_archive.py": "tests/cli/test_whole_archive.py, tests/app/test_jobs.py",
    "cli/places.py": "one option",
    "cli/loop_options.py": "one option",
    "model/jobs.py": "a value and a protocol; tests/app/test_jobs.py",
    "lab/running/elsewhere.py": "on a real cluster in tests/app/test_jobs.py",
    "app/lab_collect.py": "tests/cli/test_lab.py",
    "cli/lab_collect.py": "tests/cli/test_lab.py",
    "cli/lab_look.py": "tests/cli/test_lab.py",
    "cli/lab_options.py": "two options",
    "cli/lab_progress.py": "tests/cli/test_lab.py",
    "cli/lab_run.py": "tests/cli/test_lab.py",
    "cli/lab_show.py": "tests/cli/test_lab.py",
    "app/demo_rewind.py": "tests/cli/test_demo_rewind.py",
    "app/tracking.py": "tests/lab/replaying/test_recorded.py",
    "cli/lab_track.py": "tests/lab/replaying/test_recorded.py",
    "app/lab_replay.py": "tests/lab/replaying/test_kill.py, tests/cli/test_demo_rewind.py",
    "cli/lab_branch.py": "tests/cli/test_demo_rewind.py",
    "cli/lab_replay.py": "tests/cli/test_demo_rewind.py, tests/lab/replaying/test_kill.py",
    "lab/replaying/branch.py": "tests/lab/replaying/test_branch.py, test_drift.py, test_kill.py",
    "lab/replaying/aligned.py": "tests/lab/replaying/test_ledger.py",
    "lab/replaying/certificate.py": "tests/lab/replaying/test_context.py",
    "lab/replaying/differences.py": "tests/lab/replaying/test_context.py, test_drift.py",
    "lab/replaying/following.py": "real sessions in tests/lab/replaying/test_branch.py",
    "lab/replaying/meta.py": "tests/lab/replaying/test_branch.py",
    "lab/replaying/points.py": "tests/lab/replaying/test_ledger.py",
    "lab/replaying/sweeping.py": "tests/lab/replaying/test_places.py, test_kill.py",
    "lab/replaying/source.py": "tests/lab/replaying/test_branch.py",
    "lab/replaying/trimmed.py": "tests/lab/replaying/test_branch.py",
    "lab/running/verifying.py": "tests/cli/test_demo_rewind.py",
    "lab/book.py": "tests/lab/test_running.py, tests/lab/running/test_kill.py",
    "lab/changelog.py": "real sessions in tests/lab/running/test_exactness.py",
    "lab/collect.py": "tests/cli/test_lab.py",
    "lab/events.py": "data; tests/lab/test_state.py",
    "lab/layout.py": "tests/lab/test_running.py",
    "lab/lineage.py": "tests/lab/test_running.py, tests/lab/test_inspect.py",
    "lab/reading.py": "tests/lab/test_inspect.py",
    "lab/told.py": "tests/lab/test_inspect.py",
    "cli/lab.py": "a group; tests/cli/test_main.py",
    "cli/retro.py": "tests/retro/test_defects.py, tests/retro/test_commands.py",
    "cli/retro_feedback.py": "tests/retro/test_defects.py",
    "app/retro.py": "tests/retro/test_commands.py",
    "app/retro_session.py": "tests/retro/test_commands.py",
    "retro/analysis/activity.py": "tests/retro/test_commands.py",
    "retro/analysis/alike.py": "tests/retro/test_planted.py",
    "retro/analysis/findings.py": "tests/retro/test_planted.py, tests/retro/test_commands.py",
    "retro/analysis/repetition.py": "tests/retro/test_planted.py",
    "retro/analysis/topics.py": "tests/retro/test_planted.py",
    "retro/analysis/words.py": "tests/retro/test_planted.py",
    "retro/chats.py": "tests/sources/test_exports.py, tests/retro/test_planted.py",
    "retro/digest.py": "tests/retro/test_sessions.py",
    "retro/events.py": "values",
    "retro/feedback.py": "tests/retro/test_defects.py",
    "retro/layout.py": "tests/retro/test_commands.py",
    "retro/logs.py": "tests/retro/test_defects.py",
    "retro/looking.py": "tests/retro/test_commands.py",
    "retro/room.py": "tests/retro/test_defects.py",
    "retro/state.py": "tests/retro/test_defects.py",
    "retro/workflow.py": "tests/retro/test_issues.py, tests/retro/test_defects.py",
    "cli/loop.py": "tests/loop/test_look.py runs every command",
    "cli/loop_look.py": "tests/loop/test_look.py",
    "cli/loop_run.py": "tests/loop/test_run.py",
    "app/loop.py": "tests/loop/test_run.py",
    "app/loop_look.py": "tests/loop/test_look.py",
    "app/loop_retention.py": "tests/loop/test_api.py",
    "app/ralph.py": "tests/loop/test_api.py",
    "agents/shell.py": "tests/loop/test_run.py",
    "loop/events.py": "data; tests/loop/test_layout.py and every test of a session",
    "app/demo.py": "tests/cli/test_demo.py",
    "app/doctor.py": "tests/cli/test_doctor.py",
    "app/overview.py": "tests/cli/test_up.py",
    "app/paths.py": "tests/cli/test_main.py",
    "app/setup.py": "tests/cli/test_init.py",
    "cli/config.py": "tests/app/test_config.py; its screen in tests/cli/test_main.py",
    "sources/api/dumps.py": "tests/sources/api/test_recorder.py",
    "sources/api/encodings.py": "tests/sources/api/test_proxy.py",
    "sources/api/scrub.py": "tests/sources/api/test_recorder.py",
    "sources/api/serving.py": "tests/sources/api/test_proxy.py",
    "sources/api/sse.py": "tests/sources/api/test_rebuild.py",
    "sources/api/wire.py": "tests/sources/api/test_rebuild.py",
    "sources/claude_code/records.py": "tests/archive/test_finder.py",
    "store/git.py": "tests/store/test_trees.py, test_trees_crash.py",
    "store/treediff.py": "tests/store/test_trees.py",
    "store/treelook.py": "tests/store/test_trees.py",
    "store/pieces.py": "tests/store/test_exchanges.py",
    "store/kept.py": "tests/sources/claude_code/test_kept.py",
    "store/index/chunks.py": "tests/archive/test_finder.py",
    "store/index/database.py": "tests/archive/test_books.py",
    "store/index/files.py": "tests/archive/test_books.py",
    "store/index/lines.py": "tests/archive/test_finder.py",
    "store/index/sessions.py": "tests/archive/test_books.py",
    "store/index/text.py": "tests/archive/test_finder.py",
    "store/index/usage.py": "tests/archive/test_books.py",
    "views/outline/rows.py": "tests/views/outline/test_fold.py",
    "views/outline/shape.py": "tests/views/outline/test_fold.py",
    "views/outline/tail.py": "tests/views/outline/test_fold.py",
    "views/outline/told.py": "tests/views/outline/test_fold.py",
    "views/slim.py": "tests/views/outline/test_fold.py",
    "views/report.py": "tests/views/test_digest.py, held against tests/views/test_usage.py",
    "app/lab_statistics.py": "tests/lab/test_questions.py",
    "cli/lab_compare.py": "tests/lab/test_questions.py",
    "lab/statistics/against.py": "tests/lab/statistics/test_analysis.py",
    "lab/statistics/gathering.py": "tests/lab/test_questions.py",
    "lab/statistics/groups.py": "values; tests/lab/statistics/test_analysis.py",
    "lab/statistics/shape.py": "values; tests/lab/statistics/test_analysis.py",
    "app/lab_pages.py": "tests/web/test_lab.py",
    "lab/kin.py": "tests/cli/test_lab.py, tests/web/test_lab.py",
    "web/errands.py": "tests/web/test_lab.py",
    "web/pages/lab.py": "tests/web/test_lab.py",
    "web/pages/lab_step.py": "tests/web/test_lab.py",
    "web/desk.py": "tests/web/test_server.py",
    "web/family.py": "a value; tests/web/test_server.py",
    "web/looking.py": "tests/web/test_data.py",
    "web/searching.py": "tests/web/test_data.py",
    "web/shelf.py": "tests/web/test_data.py",
    "web/news.py": "tests/web/test_server.py",
    "web/pages/session.py": "tests/web/test_server.py",
    "web/pages/sessions.py": "tests/web/test_server.py",
    "web/pages/retro.py": "tests/web/test_retro.py",
    "web/pages/usage.py": "tests/web/test_server.py",
}


def name(path):
    return str(path.relative_to(SOURCE))


def tree(path):
    return ast.parse(path.read_text("utf-8"))


def functions(path):
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_is_short_its_functions_are_shorter_and_it_says_what_it_is(path):
    source = path.read_text("utf-8")
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions(path)}

    assert source.count("\n") <= FILE_LINES_MAX
    assert {function: length for function, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}
    assert ast.get_docstring(ast.parse(source)), "a module opens with what it is"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_use_real_parts(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            assert not any(re.search(r"(^|\.)mock$", each) for each in names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "monkeypatch":
            assert node.attr in {"setenv", "delenv", "chdir", "syspath_prepend"}


WRITING_CALLS = {
    *("write_text", "write_bytes", "rename", "renames", "replace_file", "unlink", "rmdir", "rmtree", "symlink_to"),
    *(
        "hardlink_to",
        "touch",
        "mkdir",
        "makedirs",
        "copy",
        "copy2",
        "copyfile",
        "copytree",
        "move",
        "truncate",
        "mkfifo",
    ),
}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}
MODULES_THAT_WRITE = {"os", "shutil"}


def writes(path):
    """Yield each place where `path` writes to the file system."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr in WRITING_FLAGS:
            yield node.lineno, node.attr
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        of = function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
        if called in WRITING_CALLS or (called in {"remove", "replace", "link", "symlink"} and of in MODULES_THAT_WRITE):
            yield node.lineno, called
        if called == "open" and of != "os" and _mode(node) & set("wax+"):
            yield node.lineno, "open"


def _mode(call):
    """The mode of `open(path, mode)` or `path.open(mode)`."""
    place = 0 if isinstance(call.func, ast.Attribute) else 1
    said = [*call.args[place : place + 1], *(each.value for each in call.keywords if each.arg == "mode")]
    return set().union(*(each.value for each in said if isinstance(each, ast.Constant) and isinstance(each.value, str)))


def test_only_the_store_and_the_hook_write_files():
    allowed = (SOURCE / "store", SOURCE / "app" / "hook")
    found = {
        f"{name(path)}:{line} {what}"
        for path in MODULES
        if not path.is_relative_to(allowed[0]) and not path.is_relative_to(allowed[1])
        for line, what in writes(path)
    }

    # Directories of the demo's own making, gone when it ends.
    assert {each for each in found if not each.startswith("app/demo.py")} == set()


def test_the_check_for_writing_sees_every_way_to_write(tmp_path):
    ways = """
        open('x', 'w')  open('x', mode='ab')  p.open('x+')  p.write_text('')  p.write_bytes(b'')  p.unlink()  p.touch()
        os.open('x', os.O_RDWR)  os.rename('a', 'b')  os.replace('a', 'b')  shutil.copy('a', 'b')  os.remove('a')
    """
    for way in re.split(r"\s{2,}", ways.strip()):
        path = tmp_path / "x.py"
        path.write_text(way)
        assert list(writes(path)), way
    path.write_text("open('x')\nopen('x', 'rb')\n'abc'.replace('a', 'b')\nos.open('x', os.O_RDONLY)\nitems.remove(1)\n")
    assert list(writes(path)) == []


def test_clean_text_is_made_by_the_redactor_alone():
    makers = {
        name(path)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Clean"
    }

    assert makers <= {"privacy/redact.py", "privacy/records.py"}


def test_every_module_has_a_test_of_its_own():
    missing = []
    for path in MODULES:
        place = path.relative_to(SOURCE)
        if path.name == "__init__.py" or "hook" in place.parts or str(place) in UNTESTED:
            continue
        own = ROOT / "tests" / place.parent / f"test_{place.name}"
        package = ROOT / "tests" / place.parent.parent / f"test_{place.parent.name}.py"
        if not own.exists() and not package.exists():
            missing.append(str(place))

    assert missing == []
    assert [each for each in UNTESTED if not (SOURCE / each).exists()] == []


def test_a_stray_package_breaks_the_import_contract(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "src" / "flightlog", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports_command as main; main()"

    def linted():
        ran = subprocess.run(
            [sys.executable, "-c", program, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return ran.returncode, ran.stdout + ran.stderr

    assert linted()[0] == 0, linted()[1]
    stray = tmp_path / "src" / "flightlog" / "stray"
    stray.mkdir()
    (stray / "__init__.py").write_text('"""Lost."""\n')
    code, said = linted()
    assert code != 0
    assert "stray" in said
    shutil.rmtree(stray)
    (tmp_path / "src/flightlog/model/damage.py").write_text('"""Upwards."""\nimport flightlog.store.lines\n')
    assert linted()[0] != 0


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / each for each in listed.splitlines()]


def test_no_lock_file_names_where_a_package_came_from():
    for path in tracked():
        if path.name == "package-lock.json":
            packages = json.loads(path.read_text())["packages"].values()
            assert not any("resolved" in package for package in packages)
        if path.suffix in {".txt", ".in", ".toml", ".lock"} and "requirements" in str(path):
            assert not re.search(r"--(extra-)?index-url|--find-links|https?://", path.read_text())
        assert path.name != "uv.lock"


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 120
