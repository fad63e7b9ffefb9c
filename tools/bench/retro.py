"""`python -m tools.bench.retro [MEGABYTES]`: a ChatGPT export looked at for the first time, and again; its pictures."""

import json
import os
import random
import sys
import tempfile
import uuid
from pathlib import Path
from typing import NamedTuple

from tools.bench.measure import plain_env, run
from tools.bench.words import Words

FIRST_S_MAX = 60.0
FIRST_MB_MAX = 500.0
AGAIN_S_MAX = 1.0
OPEN_S_MAX = 3.0
CHAT_BYTES = 18_000
SUBJECTS = 60


def main(megabytes: int) -> int:
    """Make an export, look at it twice, open the pictures, and say which bar was missed."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("FLIGHTLOG_BENCH_DIR")) as folder:
        top = Path(folder)
        project = top / "project"
        project.mkdir()
        count = generate(top / "conversations.json", megabytes * 1_000_000)
        env = plain_env(HOME=folder, FLIGHTLOG_HOME=f"{folder}/home")
        flightlog = Path(sys.executable).with_name("flightlog")
        words = ["retro", "analyze", str(top / "conversations.json"), "--no-sessions"]
        command = ["env", "-C", str(project), str(flightlog), *words]
        first, again = run(command, env), run(command, env)
        artifact = next(iter(sorted((project / ".chat-retro-runtime" / "outputs").glob("*.html"))))
        opened = seconds_to_open(artifact, count)
        size = artifact.stat().st_size / 1e6
    rows = (
        (
            f"first analysis of {megabytes:,} MB, {count:,} conversations, {first.cpu_s:.0f} s of CPU",
            first.wall_s,
            FIRST_S_MAX,
            "s",
        ),
        ("its memory", first.rss_mb, FIRST_MB_MAX, "MB"),
        ("again, nothing new", again.wall_s, AGAIN_S_MAX, "s"),
        (f"pictures of {count:,} conversations opened ({size:.0f} MB)", opened, OPEN_S_MAX, "s"),
    )
    for name, value, bar, unit in rows:
        print(
            f"{name}\t{value:.2f} {unit}\t(bar {bar} {unit})\t{'met' if value <= bar else 'MISSED'}",
            flush=True,
        )
    return int(any(value > bar for _, value, bar, _ in rows))


def generate(path: Path, size: int) -> int:
    """Write an export of about `size` bytes; return the number of its conversations."""
    draw = random.Random("retro:1")
    pool = Words(7)
    spoken = [word for word in pool.cut(draw, 2_000_000).split() if word.isalpha()]
    subjects = [draw.sample(sorted(set(spoken)), 10) for _ in range(SUBJECTS)]
    count = written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        while written < size:
            text = conversation(draw, pool, Talk(draw.choice(subjects), spoken), count)
            written += file.write(text if count == 0 else f", {text}")
            count += 1
        file.write("]")
    return count


class Talk(NamedTuple):
    """What a conversation is about, and the words people use, common ones often."""

    subject: list[str]
    spoken: list[str]


def conversation(draw: random.Random, pool: Words, talk: Talk, number: int) -> str:
    """One conversation about a subject: a few questions, long answers, the fields a vendor writes around them."""
    name = str(uuid.UUID(int=draw.getrandbits(128), version=4))
    start = 1.6e9 + number * 3000 + draw.randrange(2000)
    asked = draw.randint(1, 5)
    nodes = ['"root": {"id": "root", "message": null, "parent": null, "children": ["user-0"]}']
    for turn in range(asked):
        question = " ".join(
            [*draw.sample(talk.subject, 4), *draw.choices(talk.spoken, k=draw.randint(6, 50))]
        )
        answer = pool.cut(draw, 2 * CHAT_BYTES // 6 - draw.randrange(1500))
        above = f"assistant-{turn - 1}" if turn else "root"
        below = f"user-{turn + 1}" if turn + 1 < asked else ""
        nodes.append(_node("user", turn, (above, f"assistant-{turn}"), question, start + turn * 60))
        nodes.append(
            _node("assistant", turn, (f"user-{turn}", below), answer, start + turn * 60 + 9)
        )
    return (
        f'{{"title": "{talk.subject[0]} {talk.subject[1]}", "create_time": {start}, "update_time": {start + 600}, '
        f'"mapping": {{{", ".join(nodes)}}}, "current_node": "assistant-{asked - 1}", "conversation_id": "{name}", '
        f'"id": "{name}", '
        '"moderation_results": [], "plugin_ids": null, "gizmo_id": null, "is_archived": false, "safe_urls": []}'
    )


def _node(role: str, turn: int, beside: tuple[str, str], text: str, at: float) -> str:
    name, (parent, child) = f"{role}-{turn}", beside
    return (
        f'"{name}": {{"id": "{name}", "message": {{"id": "{name}", "author": {{"role": "{role}", "name": null, '
        f'"metadata": {{}}}}, "create_time": {at}, "update_time": null, "content": {{"content_type": "text", '
        f'"parts": ["{text}"]}}, "status": "finished_successfully", "end_turn": true, "weight": 1.0, "metadata": '
        f'{{"model_slug": "gpt-4o", "citations": [], "finish_details": {{"type": "stop", "stop_tokens": [200002]}}, '
        f'"timestamp_": "absolute"}}, "recipient": "all", "channel": null}}, "parent": "{parent}", '
        f'"children": {json.dumps([child] if child else [])}}}'
    )


def seconds_to_open(artifact: Path, count: int) -> float:
    """Seconds from asking for the page until the list counts every conversation."""
    sys.path.append("tests")
    from support.browser import Browser  # type: ignore[import-not-found]  # noqa: PLC0415 - the tests' own

    browser = Browser()
    try:
        page = browser.page()
        page.go(artifact.as_uri())
        page.until(f"document.getElementById('count').textContent === '{count} of {count}'")
        return float(page.js("window.readyMs || performance.now()")) / 1000
    finally:
        browser.close()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
