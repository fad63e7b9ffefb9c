"""Sixteen agents at once, four of them real: every event of every one is on record."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.hooking import count_lost, payload, read_events, run_hook
from support.real_agent import make_bench, new_session
from support.waiting import until

TOOL = {"tool": "Bash", "input": {"command": "echo hello", "description": "Say hello"}}
SCENARIO = {
    "rules": [{"replies": [{"blocks": [TOOL, TOOL]}, {"blocks": [TOOL]}, {"text": "Done."}]}]
}


@pytest.mark.slow
def test_sixteen_agents_at_once_lose_nothing_and_notice_nothing(tmp_path):
    home, over = tmp_path / "home", threading.Event()
    sessions = [new_session() for _ in range(4)]

    def real(session):
        bench = make_bench(tmp_path / session, FLIGHTLOG_HOME=str(home))
        bench.install_hooks()
        return bench.run(SCENARIO, "Go.", session=session)

    def loud(number):
        count = 0
        while not over.is_set() and count < 200:
            run_hook(
                tmp_path,
                payload(session=f"loud-{number}", n=count, pad="x" * 3000),
                FLIGHTLOG_HOME=str(home),
            )
            count += 1
        return count

    with ThreadPoolExecutor(16) as pool:
        crowd = [pool.submit(loud, number) for number in range(12)]
        played = list(pool.map(real, sessions))
        over.set()
        counts = [one.result() for one in crowd]

    assert [one.result["result"] for one in played] == ["Done."] * 4
    assert [len(one.requests) for one in played] == [3] * 4
    for session in sessions:
        until(
            lambda session=session: (
                "SessionEnd" in [event["event"] for event in read_events(home, session)]
            )
        )
        names = Counter(event["event"] for event in read_events(home, session))
        assert [names[name] for name in ("SessionStart", "PreToolUse", "PostToolUse", "Stop")] == [
            1,
            3,
            3,
            1,
        ]
    for number, count in enumerate(counts):
        # A stalled disk makes the hook finish behind the agent's back: later, but not lost.
        until(lambda number=number, count=count: len(read_events(home, f"loud-{number}")) == count)
        assert sorted(
            event["payload"]["n"] for event in read_events(home, f"loud-{number}")
        ) == list(range(count))
    assert count_lost(home) == 0
