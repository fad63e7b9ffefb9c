"""What a runner says on its error output while it works."""

import os
import subprocess

from loop.loops import RALPH, TWO, environment, project, ralph, session_of


def test_a_runner_says_what_happens_and_how_to_answer(tmp_path):
    secret = "sk-ant-" + "api03-" + "Zq8Rt2Lm9Xc4Vb7Nn1Pp5Ww3Kk6Jj0Hh" * 3
    root = project(
        tmp_path / "p",
        f"""
        plan: told
        config: {{answer_timeout_seconds: 0.2, max_retries: 0}}
        tasks:
          - {{task_id: a, name: "first \\e[31mred", run: {{command: "true"}}, verify: ["true"]}}
          - {{task_id: b, name: second, dependencies: [a], run: {{command: "echo {secret} >&2; exit 3"}}}}
        """,
    )

    errors = ralph(root, "run", "--plan", "plan.yaml", "--autonomous").stderr
    lines = errors.splitlines()

    assert lines[0] == f"started {session_of(root).name}"
    assert lines[1] == "a first red: attempt 1"
    assert lines[2].startswith("a completed after ")
    assert "b second: attempt 1" in lines
    assert any(line.startswith("b attempt 1: failure: ") for line in lines)
    assert f"  ralph-runtime answer --session {session_of(root).name} " in errors
    assert "no answer came: " in errors
    assert "\x1b" not in errors
    assert secret not in errors


def test_a_closed_connection_does_not_stop_the_work(tmp_path):
    root = project(tmp_path / "p", TWO)
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [RALPH, "run", "--plan", "plan.yaml", "--autonomous"],
        cwd=root, env=environment(root), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writing,
        check=False, timeout=60,
    )  # fmt: skip
    os.close(writing)

    assert ran.returncode == 0
    assert (root / "two.txt").read_text() == "one\n"
