"""What a settle after a turn costs, in work: what it loads, what it starts, what it reads."""

import json
import subprocess
import sys

from support.cli_runs import environment
from support.dataset_ground import turn

SESSION = "13a84f73-1111-4111-8111-111111111111"
SETTLE = """
import sys
from flightlog.cli import main
try:
    main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
HEAVY = {
    "rich", "jinja2", "aiohttp", "backports", "pyarrow", "tomllib", "ruamel", "asyncio", "logging",
    "concurrent", "multiprocessing", "subprocess", "difflib", "email", "http", "ssl", "socket",
}  # fmt: skip
OURS_MAX = 165


def settle_turns(ground, turns, *before):
    """Settle the session with this many turns; return the number of rows written and the modules loaded."""
    ground.write(SESSION, *(record for number in range(1, turns + 1) for record in turn(number)))
    home = {"FLIGHTLOG_HOME": str(ground.root / "home"), "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = [*before, sys.executable, "-c", SETTLE, "settle", SESSION, "--json"]
    around = environment(ground.config, **home)
    ran = subprocess.run(
        command, cwd=ground.top, env=around, capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)["dataset_rows"], set(ran.stderr.split())


def test_a_settle_starts_nothing_and_loads_no_more_than_it_needs(ground):
    ground.on()
    settle_turns(ground, 3)

    rows, modules = settle_turns(ground, 4)

    assert rows == 2
    assert HEAVY & modules == set()  # without subprocess there is no git either
    assert len([name for name in modules if name.startswith("flightlog.")]) <= OURS_MAX


def test_a_settle_reads_no_row_that_was_written_before(ground, tmp_path):
    ground.on()
    settle_turns(ground, 3)
    row_files = [*ground.shards, *ground.place.tracked_dir.glob("*.jsonl")]
    trace = tmp_path / "trace"

    rows, _ = settle_turns(ground, 4, "strace", "-f", "-e", "trace=openat,execve", "-o", str(trace))

    calls = trace.read_text()
    assert (rows, calls.count("execve(")) == (2, 1)
    assert row_files
    assert not [path.name for path in row_files if path.name in calls]
