"""What each room finds wrong becomes one draft, by the real commands of each room; nothing private becomes public."""

import json
import subprocess
import time

from flightlog.dataset.extract.extract import capture_session
from flightlog.retro.store import ROOT
from loop.loops import environment, project
from support import labs
from support.cli_runs import FLIGHTLOG
from support.dataset_ground import Ground, turn
from support.live_files import Desk, iso

TOKEN = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
CANARY = "Quenneville"
SESSION = "13a84f73-1111-4111-8111-111111111111"
LEAKING = "24b95f84-1111-4111-8111-111111111111"
PLAN = """
    plan: trips
    config: {retry_base_seconds: 0.01, human_intervention: never, confidence_threshold: 0.0}
    circuit_breaker: {failure_threshold: 2, trips_max: 1, recovery_timeout: 0.1}
    tasks:
      - {task_id: "001", name: one, run: {command: "echo ValueError: no such Quenneville >&2; exit 1"}, max_retries: 0}
      - {task_id: "002", name: a Quenneville, run: {command: "echo KeyError: nor this >&2; exit 1"}, max_retries: 0}
      - {task_id: "003", name: never begun, run: {command: "true"}}
"""


def run(ground, *words, program="flightlog"):
    return subprocess.run(
        [FLIGHTLOG.with_name(program), *words],
        cwd=ground.top,
        env=environment(ground.root, CLAUDE_CONFIG_DIR=str(ground.config)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_incidents_of_every_room_become_drafts_once(tmp_path):
    ground = Ground(tmp_path).on()
    ground.write(SESSION, *turn(1, "x", "y", ("Read", {"file_path": "a.py"}, "z")))
    capture_session(ground.kit(), ground.recording(SESSION))
    with ground.shards[0].open("ab") as file:
        file.write(b'{"kind":"chat","id" Quenneville\n')
    now_ms = time.time() * 1000
    records = [
        {**record, "timestamp": iso(now_ms)}
        for record in turn(1, f"{CANARY}'s key is {TOKEN}", "y")
    ]
    leaking = ground.write(LEAKING, *records)
    leaking.write_text('{"torn": "Quenneville\n' + leaking.read_text())
    desk = Desk(tmp_path / "desk", int(now_ms))
    desk.config, desk.home = ground.config, tmp_path / "flightlog"
    desk.tell(LEAKING, int(now_ms), cwd=str(ground.top))
    project(ground.top, PLAN)
    run(ground, "run", "--plan", "plan.yaml", "--autonomous", program="ralph-runtime")
    scenario = {"rules": [{"replies": [{"errors": [{"status": 401}]}]}]}
    labs.run(
        ground.top,
        labs.config(ground.root, scenario, f"ask {CANARY}", engine="scripted"),
        env=labs.environment(ground.root),
    )
    assert run(ground, "watch", "--once").returncode == 0
    assert run(ground, "retro", "analyze").returncode == 0
    analysis = ground.top / ROOT / "state" / "analysis.json"
    analysis.write_text('{"schema_version": 1, "patterns": [{"label": "How do I tell Quenneville')
    assert run(ground, "retro", "patterns").returncode in (0, 1)

    first = run(ground, "issue", "process", "--yes", "--json")
    again = run(ground, "issue", "process", "--yes", "--json")

    report = json.loads(first.stdout)
    rooms = {issue["title"].split(":")[0] for issue in report["open_issues"]}
    assert rooms >= {"loop", "lab", "live", "dataset", "store", "retro"}, (rooms, first.stderr)
    titles = {issue["title"] for issue in report["open_issues"]}
    assert {"live: secret", "store: damaged recording"} <= titles
    assert any(title.startswith("loop: breaker trip: session-001") for title in titles), titles
    assert json.loads(again.stdout)["imported_issues"] == []
    public = "".join(path.read_text() for path in (ground.top / ROOT / "issues").iterdir())
    assert "breaker trip" in public
    assert TOKEN not in public
    journal = (ground.top / ROOT / "state" / "journal.jsonl").read_text()
    assert journal.count('"Noticed"') >= 6
    assert CANARY not in journal + public
    assert str(tmp_path) not in public
