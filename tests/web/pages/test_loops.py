"""The loop pages, asked as a browser would ask them; a question is answered there."""

from flightlog.loop.directories import open_loop_session
from loop.loops import TWO, conduct, journal, project, ralph, session_of, start
from support.pages import running
from support.recordings import config_dir
from support.waiting import until

PLAN = """
plan: on a page <b>
config: {human_intervention: on_error, retry_base_seconds: 0.01, answer_timeout_seconds: 60}
quality_gates: [{name: coverage, metric: coverage, threshold: 0.5, phase: 1}]
review_points: REVIEW
tasks:
  - task_id: a
    name: <script>alert(1)</script>
    run: {command: 'echo "{\\"metric\\": \\"coverage\\", \\"value\\": 0.9}" >> "$FLIGHTLOG_REPORT"'}
  - {task_id: b, name: at last, run: {command: "test -e x || { touch x; echo connection lost; exit 1; }"}}
"""


def test_a_loop_shows_tasks_gates_decisions_calibration_and_inert_words(tmp_path, monkeypatch):
    root = project(tmp_path / "p", PLAN.replace("REVIEW", "[]"))
    directory = conduct(root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "flightlog"))

    with running(config_dir(tmp_path / "config")) as served:
        listed = served.ask("/loops").text
        html = served.ask(f"/loops/{directory.name}").text
        missing = served.ask("/loops/session-099")

    assert f'href="/loops/{directory.name}"' in listed
    assert "2 of 2 tasks completed" in html
    assert "<strong>passed</strong>" in html
    assert "connection lost" in html
    assert "Too few decisions have an outcome" in html
    assert "<strong>start</strong> plan «on a page &lt;b&gt;»" in html
    assert "<script>alert" not in html
    assert missing.status == 404


def test_a_session_in_a_directory_of_its_own_has_a_page(tmp_path, monkeypatch):
    root, home = project(tmp_path / "p", TWO), str(tmp_path / "flightlog")
    words = ("run", "--plan", "plan.yaml", "--autonomous", "--session", "work/night")
    assert ralph(root, *words, FLIGHTLOG_HOME=home).returncode == 0
    monkeypatch.chdir(root)
    monkeypatch.setenv("FLIGHTLOG_HOME", home)

    with running(config_dir(tmp_path / "config")) as served:
        listed = served.ask("/loops").text
        statuses = [served.ask(f"/loops/{name}").status for name in ("night", "work%2Fnight")]

    assert 'href="/loops/night"' in listed
    assert statuses[0] == 200
    assert statuses[1] == 404, "an address names a session, and no directory"


def test_a_question_is_answered_on_its_page(tmp_path, monkeypatch):
    root = project(tmp_path / "p", PLAN.replace("REVIEW", "[b]"))
    runner = start(root, "run", "--plan", "plan.yaml", "--autonomous")
    until(lambda: list((root / "ralph-loop-sessions").glob("session-001-*/journal.jsonl")))
    directory = session_of(root)
    until(lambda: open_loop_session(directory).state.question)
    monkeypatch.chdir(root)
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "flightlog"))

    with running(config_dir(tmp_path / "config")) as served:
        html = served.ask(f"/loops/{directory.name}").text
        address, own = (
            f"/loops/{directory.name}/answer",
            {"Origin": served.origin, "X_Flightlog": "1"},
        )
        foreign = served.ask(address, "POST", body="answer=continue")
        wrong = served.ask(address, "POST", body="answer=perhaps", **own)
        done = served.ask(address, "POST", body="answer=continue", **own)

    runner.communicate(timeout=60)
    assert 'value="continue"' in html
    assert (wrong.status, foreign.status) == (400, 403)
    assert done.status in {200, 303}
    assert runner.returncode == 0
    (answered,) = [event for event in journal(directory) if event["kind"] == "answer"]
    assert (answered["answer"], answered["answered_by"]) == ("continue", "person")
