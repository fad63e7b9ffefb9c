"""`python -m tools.bench.analysis [MEGABYTES]`: all sessions analyzed first and again; one of 5,000 steps."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tools.bench.corpus import VERSION, generate
from tools.bench.measure import plain_env, run

FIRST_S_MAX = 25.0
FIRST_MB_MAX = 500.0
AGAIN_S_MAX = 0.3
SESSION_FIRST_S_MAX = 1.5
SESSION_AGAIN_S_MAX = 0.3
STEPS = 5_000
SESSION = "11111111-2222-4333-8444-555555555555"


def main(megabytes: int) -> int:
    """Analyze a corpus and a long session twice each, and say which bar was missed."""
    corpus = Path(".bench").absolute() / f"corpus-{megabytes}-{VERSION}"
    if not corpus.exists():
        generate(corpus, megabytes * 1_000_000)
    with tempfile.TemporaryDirectory(dir=os.environ.get("FLIGHTLOG_BENCH_DIR")) as folder:
        write_long_session(Path(folder) / "long", STEPS)
        env = plain_env(HOME=folder, FLIGHTLOG_HOME=f"{folder}/home")
        command = [str(Path(sys.executable).with_name("flightlog")), "cache", "--json"]
        first, again = (run(command, env | {"CLAUDE_CONFIG_DIR": str(corpus)}) for _ in range(2))
        long = env | {"CLAUDE_CONFIG_DIR": f"{folder}/long"}
        one, one_again = (run([*command, SESSION], long) for _ in range(2))
    rows = (
        (f"first analysis of {megabytes:,} MB", first.wall_s, FIRST_S_MAX, "s"),
        ("its memory", first.rss_mb, FIRST_MB_MAX, "MB"),
        ("again, nothing new", again.wall_s, AGAIN_S_MAX, "s"),
        (f"a session of {STEPS:,} steps", one.wall_s, SESSION_FIRST_S_MAX, "s"),
        ("again", one_again.wall_s, SESSION_AGAIN_S_MAX, "s"),
    )
    for name, value, bar, unit in rows:
        state = "met" if value <= bar else "MISSED"
        print(f"{name}\t{value:.2f} {unit}\t(bar {bar} {unit})\t{state}", flush=True)
    return int(any(value > bar for _, value, bar, _ in rows))


def write_long_session(config_dir: Path, steps: int) -> None:
    """Write a session whose client logged each request; every hundredth step misses the cache."""
    path = config_dir / "projects" / "-home-dev-project" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8") as file:
        for record in _records(steps):
            common = {"sessionId": SESSION, "cwd": "/home/dev/project", "version": "2.1.325"}
            file.write(json.dumps({**common, **record}, separators=(",", ":")) + "\n")


def _records(steps: int) -> Iterator[dict[str, object]]:
    params = {"model": "claude-opus-5-5", "output_config": {"effort": "medium"}, "betas": ["b"] * 9}
    parent: str | None = None
    yield {"type": "api-request-shape", "shapeHash": "s", "shape": {"system": "S" * 9000}}
    for step in range(steps):
        at = datetime.fromtimestamp(1_800_000_000 + 4 * step, UTC).isoformat()
        written = 100 if step % 100 else 20_000 + 100 * step
        usage = {
            "input_tokens": 10,
            "output_tokens": 50,
            "cache_read_input_tokens": 20_000 + 100 * step if step % 100 else 0,
            "cache_creation_input_tokens": written,
        }
        call = {"type": "tool_use", "id": f"t{step}", "name": "Bash", "input": {"command": "ls"}}
        content = [{"type": "text", "text": "Looking at it. " * 10}, call]
        reply = {"id": f"m{step}", "model": params["model"], "usage": usage, "content": content}
        result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": "a line\n" * 120}
        if step % 25 == 0:
            prompt = {"role": "user", "content": f"Prompt {step}"}
            yield {"type": "user", "uuid": f"u{step}", "parentUuid": parent, "timestamp": at} | {
                "message": prompt
            }
            parent = f"u{step}"
        base = {"base": f"r{step - 1}"} if step else {}
        logged = {"id": f"r{step}", "keep": 2 * step, "tail": [f"{step}a", f"{step}b"], **base}
        yield {"type": "api-request", "timestamp": at, "shapeHash": "s", "params": params} | logged
        for kind, uuid, more in (
            ("assistant", f"a{step}", {"message": reply, "requestRef": f"r{step}"}),
            ("user", f"x{step}", {"message": {"role": "user", "content": [result]}}),
        ):
            yield {"type": kind, "uuid": uuid, "parentUuid": parent, "timestamp": at, **more}
            parent = uuid


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
