"""Draw the README's pictures from real runs of the demo; tests compare them with runs of their own.

    draw_picture.py docs/session.png     the page of the demo's session, as Chromium shows it
    draw_picture.py docs/rewind.svg      what `flightlog demo rewind` prints, without fonts from elsewhere

Each picture is drawn from a run that is made now against a scripted model, without a key or a login:
the session with the scripted agent, the rewind with Claude Code.
"""

import html
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from flightlog.app.runtime import open_runtime
from flightlog.setup.demo import DEMO_SCENARIO, run_demo_agent
from support.browser import Browser
from support.pages import running
from support.real_agent import PINNED, agent_program

PAGE_WIDTH, PAGE_HEIGHT = 1280, 1400
HOUR_MS = 3_600_000
COMMAND = ("demo", "rewind")
WIDTH_CHARS = 104
LINES_MAX = 46
LINE_PX = 19
CHAR_PX = 8.4
COLORS = {
    "$": "#f4f6f7",
    "original": "#ff9d97",
    "rerun": "#8ddb8c",
    "certificate": "#8ddb8c",
}
PLAIN = "#cfd6db"
# The page is drawn once its fonts are there and the strip above the steps has its bars.
_DRAWN = "document.fonts.ready.then(() => new Promise(done => setTimeout(done, 400)))"


@contextmanager
def serve_demo_session() -> Iterator[tuple[Any, str]]:
    """Run the demo's agent and serve its session; yield the server and the path of the page."""
    runtime = open_runtime({"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]})
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder:
        root = Path(folder)
        project, config = root / "subscriptions", root / "config"
        session = run_demo_agent(runtime, DEMO_SCENARIO, project, config)
        # An hour later the session is over, and the page begins at its top.
        later = runtime.clock.now_ms() + HOUR_MS
        with running(config, data_dir=root / "data", clock=lambda: later) as pages:
            yield pages, f"/sessions/{session}"


def photograph_session(browser: Browser) -> bytes:
    """Return the upper part of the page of the demo's session as PNG."""
    with serve_demo_session() as (pages, path):
        page = browser.page(PAGE_WIDTH, PAGE_HEIGHT)
        page.go(pages.door)
        page.go(pages.root + path)
        page.js(_DRAWN)
        return bytes(page.screenshot())


def print_rewind() -> list[str]:
    """Run the demo of rewinding with the real client and return what a person would see."""
    program = Path(sys.executable).with_name("flightlog")
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}
    env |= {"FLIGHTLOG_CLAUDE": str(agent_program(PINNED))}
    ran = subprocess.run([program, *COMMAND], env=env, capture_output=True, text=True, check=True)
    return [f"$ flightlog {' '.join(COMMAND)}", *ran.stdout.rstrip("\n").split("\n")][:LINES_MAX]


def draw_lines(lines: list[str]) -> str:
    """Return the lines as an SVG."""
    width, height = round(WIDTH_CHARS * CHAR_PX + 40), len(lines) * LINE_PX + 40
    rows = [
        f'<text x="20" y="{30 + place * LINE_PX}" fill="{_color(line)}" xml:space="preserve">'
        f"{html.escape(line if len(line) <= WIDTH_CHARS else line[: WIDTH_CHARS - 1] + '…')}</text>"
        for place, line in enumerate(lines)
        if line
    ]
    style = 'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            "<title>flightlog on the terminal</title>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#14191d"/>',
            f"<g {style}>",
            *rows,
            "</g></svg>\n",
        ]
    )


def _color(line: str) -> str:
    return next((color for start, color in COLORS.items() if line.startswith(start)), PLAIN)


def main(picture: Path) -> None:
    """Draw one picture; the name's ending says which."""
    if picture.suffix == ".svg":
        picture.write_text(draw_lines(print_rewind()), encoding="utf-8")
        return
    browser = Browser()
    try:
        picture.write_bytes(photograph_session(browser))
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
