"""Write the generated part of `plugin/`: the hook's scripts, the events, the version, the icon.

`make plugin` runs it; a test compares the bytes.
"""

import json
import shutil
import struct
import sys
import zlib
from pathlib import Path

from flightlog import __version__
from flightlog.agents.claude_code.hooks import events_for

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
# What `record.py` loads; the status line is set by `flightlog init` alone.
SCRIPTS = ("__init__", "payload_log", "record", "recorder", "settle_gate", "writer")
# The oldest tested client that has plugins; a name that a client does not know may cost the file.
EVENTS = events_for(["2.0.76"])
TIMEOUT_S = {"SessionEnd": 10}  # as `flightlog init` sets it
SETTINGS = "/flightlog/hooks/record.py"  # how `flightlog init` calls the same script
# The hook ends here if `flightlog init` registered its own: the settings name that script.
COMMAND = (
    'agent=claude-code; user="${CLAUDE_CONFIG_DIR:-$HOME/.claude}/settings.json"; '
    'own="$CLAUDE_PROJECT_DIR/.claude/settings.local.json"; '
    '[ -z "$PLUGIN_ROOT" ] || { agent=codex; user="${CODEX_HOME:-$HOME/.codex}/hooks.json"; '
    'own="$CLAUDE_PROJECT_DIR/.codex/hooks.json"; }; '
    # It has the variables of the other two as well; `flightlog init` registers nothing with it.
    '[ -z "$COPILOT_HOOK_DIR" ] || { agent=copilot; user=; own=; }; '
    f'grep -qsF {SETTINGS} "$user" "$own" || '
    'python3 -I -S "${CLAUDE_PLUGIN_ROOT}/hooks/flightlog/hooks/record.py" "$agent" --plugin '
    ">/dev/null 2>&1 || :"
)
ICON_SIDE = 512


def build(plugin: Path) -> None:
    """Write the generated files below `plugin`."""
    hooks = plugin / "hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    for path in [SOURCE / "__init__.py", *(SOURCE / "hooks" / f"{name}.py" for name in SCRIPTS)]:
        target = hooks / "flightlog" / path.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    groups = {
        event: [
            {"hooks": [{"type": "command", "command": COMMAND, "timeout": TIMEOUT_S.get(event, 5)}]}
        ]
        for event in EVENTS
    }
    (hooks / "hooks.json").write_text(json.dumps({"hooks": groups}, indent=2) + "\n")
    manifest = plugin / ".claude-plugin" / "plugin.json"
    fields = json.loads(manifest.read_text()) | {"version": __version__}
    manifest.write_text(json.dumps(fields, indent=2) + "\n")
    (plugin / "icon.png").write_bytes(draw_icon(ICON_SIDE))


def draw_icon(side: int) -> bytes:
    """Return a picture as PNG: a record dot and its tape, on a dark square."""
    rows = b"".join(
        b"\0" + b"".join(_color(x / side, y / side) for x in range(side)) for y in range(side)
    )
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*chunks, strict=True)))


def _color(x: float, y: float) -> bytes:
    ring = ((x - 0.5) ** 2 + (y - 0.44) ** 2) ** 0.5
    if ring < 0.15:
        return b"\xe8\x5d\x2a"
    if 0.22 < ring < 0.28:
        return b"\xf4\xf1\xea"
    if 0.15 < x < 0.85 and 0.78 < y < 0.83:
        return b"\xf4\xf1\xea"
    return b"\x1c\x24\x30"


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "plugin")
