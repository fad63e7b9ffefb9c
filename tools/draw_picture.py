"""Draw a picture of what commands really print, as an SVG without fonts or scripts from elsewhere.

draw_picture.py docs/up.svg                      the README's first picture
draw_picture.py docs/rewind.svg demo rewind      that of one command
"""

import html
import os
import subprocess
import sys
from pathlib import Path

COMMANDS = (("--samples", "up"), ("--samples", "session", "show", "2123f2df#1"))
WIDTH_CHARS = 104
LINES_MAX = 46
LINE_PX = 19
CHAR_PX = 8.4
COLOURS = {
    "$": "#f4f6f7",
    "    flightlog": "#7cc4f2",
    "#": "#8ddb8c",
    "→": "#7cc4f2",
    "✗": "#ff9d97",
    "original": "#ff9d97",
    "rerun": "#8ddb8c",
    "certificate": "#8ddb8c",
    "~": "#9aa6b0",
}
PLAIN = "#cfd6db"


def printed() -> list[str]:
    """Run the commands and return what a person would see."""
    program = Path(sys.executable).with_name("flightlog")
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TZ": "UTC", "LANG": "C.UTF-8"}
    env |= {name: os.environ[name] for name in ("FLIGHTLOG_CLAUDE",) if name in os.environ}
    lines = []
    for command in (tuple(sys.argv[2:]),) if sys.argv[2:] else COMMANDS:
        ran = subprocess.run(
            [program, *command], env=env, capture_output=True, text=True, check=True
        )
        shown = " ".join(word if "#" not in word else f"'{word}'" for word in command)
        lines += [f"$ flightlog {shown}", *ran.stdout.rstrip("\n").split("\n"), ""]
    return lines[:LINES_MAX]


def colour(line: str) -> str:
    """Colour a line by how it begins."""
    bare = line.lstrip()
    return next(
        (
            value
            for mark, value in COLOURS.items()
            if line.startswith(mark) or bare.startswith(mark)
        ),
        PLAIN,
    )


def draw(lines: list[str]) -> str:
    """Return the picture."""
    width, height = round(WIDTH_CHARS * CHAR_PX + 40), len(lines) * LINE_PX + 40
    rows = [
        f'<text x="20" y="{30 + place * LINE_PX}" fill="{colour(line)}" xml:space="preserve">'
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


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(printed()), encoding="utf-8")
