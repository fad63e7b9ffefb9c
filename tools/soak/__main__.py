"""`python -m tools.soak --minutes 30`: the whole at once, then what is lost, left behind or growing."""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench.table import Table
from tools.soak.actors import Pages, agent, loop, replays
from tools.soak.ground import Ground, find_leftover_processes, scenario

from flightlog.agents.scripted.server import serve_scenario
from flightlog.archive.archive import Archive

_EVENTS = {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"}
_SETTLED_S = 20.0
_MINUTES_FOR_GROWTH = 5.0


def main() -> int:
    """Run it; exit code 1 when something is not as promised."""
    given = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    given.add_argument("--minutes", type=float, default=30.0)
    given.add_argument("--agents", type=int, default=8)
    given.add_argument("--seed", type=int, default=int(time.time()))
    options = given.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="flightlog-soak-") as folder,
        serve_scenario(scenario()) as model,
    ):
        ground = Ground(Path(folder), options.seed, time.monotonic() + 60 * options.minutes)
        ground.url = model.url
        pages = _run_actors(ground, options.agents)
        return _judge(ground, pages, options.minutes, options.seed)


def _run_actors(ground: Ground, agents: int) -> Pages:
    pages = Pages(ground)
    jobs: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        *((agent, (ground, number)) for number in range(agents)),
        *((loop, (ground, number)) for number in (1, 2)),
    ]
    jobs += [(replays, (ground,)), (pages.watch, ()), (_weigh, (ground,))]
    threads = [threading.Thread(target=_safely, args=(ground, work, args)) for work, args in jobs]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:  # judge what there is; nothing may be left running
        ground.ends = time.monotonic()
        for thread in threads:
            thread.join()
    if pages.close() not in {0, 130}:
        ground.fail("the pages did not end as they should")
    return pages


def _safely(ground: Ground, work: object, args: tuple[object, ...]) -> None:
    try:
        work(*args)  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - an actor that dies is a finding
        ground.fail(f"{getattr(work, '__name__', work)}: {error!r}")


def _weigh(ground: Ground) -> None:
    """What the recordings take, in bytes and sessions, from time to time."""
    with (ground.root / "weights.jsonl").open("a") as noted:
        while not ground.is_over:
            sessions = list((ground.recordings / "sessions").glob("*/*/meta.json"))
            size = sum(
                _size(path)
                for path in ground.recordings.rglob("*")
                if not path.name.endswith(("-wal", "-shm"))
            )
            parts = {path.name: _below(path) for path in ground.recordings.iterdir()}
            noted.write(
                json.dumps({"sessions": len(sessions), "bytes": size, "parts": parts}) + "\n"
            )
            noted.flush()
            time.sleep(2.0)


def _below(path: Path) -> int:
    return _size(path) if path.is_file() else sum(map(_size, path.rglob("*")))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _judge(ground: Ground, pages: Pages, minutes: float, seed: int) -> int:
    table = Table()
    table.title(f"{minutes:g} minutes, seed {seed}")
    for what, times in sorted(ground.counts.items()):
        table.note(what, times)
    ground.run(ground.root / "work", "flightlog", "settle")
    lost_events, lost_bytes = _count_lost(ground)
    table.most("events of ended sessions that are lost", lost_events, 0)
    table.most("bytes of transcripts that are lost", lost_bytes, 0)
    table.most("promises broken on the way", len(ground.wrong), 0)
    table.most("processes left behind", len(_remaining(ground)), 0)
    table.most("temporary files left behind", len(_litter(ground)), 0)
    _, output = ground.run(ground.root / "work", "flightlog", "doctor", "--json")
    findings = (
        json.loads(output)
        if output.startswith("[")
        else [{"level": "damage", "text": output[:200]}]
    )
    damage = [
        finding["text"]
        for finding in findings
        if finding["level"] == "damage" and "torn at the end" not in finding["text"]
    ]
    table.most("damage the doctor finds", len(damage), 0)
    third = max(len(pages.rss_mb) // 3, 1)
    early, late = max(pages.rss_mb[:third], default=0.0), max(pages.rss_mb[-third:], default=0.0)
    table.most("memory of the pages, last third over first", late / (early or 1), 1.5)
    slowest = sorted(pages.slowest_s.items(), key=lambda pair: -pair[1])
    table.note(
        "slowest pages, s", ", ".join(f"{path} {seconds:.1f}" for path, seconds in slowest[:4])
    )
    table.note("where the bytes are", _parts(ground))
    if minutes < _MINUTES_FOR_GROWTH:
        table.note(
            "bytes a session, last half over first", f"{_growth(ground):.2f} (too short to judge)"
        )
    else:
        table.most("bytes a session, last half over first", _growth(ground), 1.3)
    for problem in [*ground.wrong, *_remaining(ground), *_litter(ground), *damage][:30]:
        sys.stdout.write(f"  {problem}\n")
    return 1 if table.failed else 0


def _count_lost(ground: Ground) -> tuple[int, int]:
    """Events that hooks of ended sessions must have recorded, and transcript bytes our copies must hold."""
    ended = [line for path in ground.root.glob("ended-*.txt") for line in path.read_text().split()]
    events = 0
    for session in ended:
        files = (ground.recordings / "sessions" / "claude-code" / session).glob("hooks.jsonl*")
        lines = [json.loads(line) for path in files for line in path.read_bytes().splitlines()]
        events += len(_EVENTS - {_event(line) for line in lines})
    ours = Archive({"claude-code": (str(ground.root / "nowhere"),)}, str(ground.recordings))
    theirs = Archive({"claude-code": (str(ground.config),)})
    missing = 0
    for name, recording in theirs.recordings.items():
        sizes = (
            {file.subagent: file.size for file in ours.recordings[name].files}
            if name in ours.recordings
            else {}
        )
        missing += sum(max(file.size - sizes.get(file.subagent, 0), 0) for file in recording.files)
    return events, missing


def _event(line: dict[str, object]) -> str:
    payload = line.get("payload")
    event = payload if isinstance(payload, dict) else line
    return str(event.get("hook_event_name") or line.get("event") or "")


def _remaining(ground: Ground) -> list[str]:
    """What still runs some time after everything was told to end; settles may finish their work."""
    deadline = time.monotonic() + _SETTLED_S
    while (remaining := find_leftover_processes(ground.root.name)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return remaining


def _litter(ground: Ground) -> list[str]:
    every = [path for path in ground.root.rglob("*") if path.is_file()]
    places = [str(path.relative_to(ground.root)) for path in every]
    ours = [place for place in places if place.endswith(".tmp") or "/.work-" in place]
    return [place for place in ours if not place.startswith(("tmp/", "home/"))]


def _parts(ground: Ground) -> str:
    lines = (ground.root / "weights.jsonl").read_text().splitlines()
    parts = json.loads(lines[-1])["parts"] if lines else {}
    return ", ".join(
        f"{name} {size // 1000:,} kB"
        for name, size in sorted(parts.items(), key=lambda one: -one[1])[:4]
    )


def _growth(ground: Ground) -> float:
    weights = [
        json.loads(line) for line in (ground.root / "weights.jsonl").read_text().splitlines()
    ]
    weights = [weight for weight in weights if weight["sessions"]]
    if len(weights) < 4:
        return 1.0
    half = weights[len(weights) // 2]
    first = half["bytes"] / half["sessions"]
    more = max(weights[-1]["sessions"] - half["sessions"], 1)
    return float((weights[-1]["bytes"] - half["bytes"]) / more / first)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
