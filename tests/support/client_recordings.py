"""What real clients of other agents wrote, as a test asks for it.

`tests/recordings/CLIENT/VERSION/CASE/` was made by `tools/record_client.py`: `session/` is the client's
directory (such as ~/.codex), `wire.jsonl` what the model's responses reported.
"""

import json
import shutil
import sqlite3
from pathlib import Path

from flightlog.agents.dialects import anthropic_messages, gemini
from flightlog.model.usage import Usage
from support.real_clients import RECIPES
from support.scripted_apis import openai_chat, openai_responses

ROOT = Path(__file__).parents[1] / "recordings"
DECODE = {
    "messages": anthropic_messages.decode_usage,
    "responses": openai_responses.decode_usage,
    "chat": openai_chat.decode_usage,
    "gemini": gemini.decode_usage,
}


def list_cases(client: str = "*") -> list[str]:
    """The recorded cases of a client, as CLIENT/VERSION/CASE."""
    cases = ROOT.glob(f"{client}/*/*/case.yaml")
    return sorted(str(path.parent.relative_to(ROOT)) for path in cases)


def lay_out_home(where: Path, *cases: str) -> Path:
    """Copy the clients' directories of these cases into the home `where`, with their databases."""
    for case in cases:
        folder = RECIPES[case.partition("/")[0]].folder
        shutil.copytree(ROOT / case / "session", where / folder, dirs_exist_ok=True)
        for dump in where.rglob("*.db.sql"):
            restore_database(dump, dump.with_suffix(""))
            dump.unlink()
    return where


def restore_database(dump: Path, path: Path) -> None:
    """Make a SQLite database from its dump, in WAL mode as the client leaves it."""
    database = sqlite3.connect(path)
    try:
        database.executescript(dump.read_text())
        database.execute("PRAGMA journal_mode=WAL")
    finally:
        database.close()


def wire_lines(case: str) -> list[dict]:
    """The responses of the model in a case: run, rule, dialect, model, status, usage."""
    return [json.loads(line) for line in (ROOT / case / "wire.jsonl").read_text().splitlines()]


def wire_usage(case: str) -> Usage:
    """The tokens of all responses of a case, by each API's own semantics."""
    lines = wire_lines(case)
    return sum((DECODE[line["dialect"]](line["usage"]) for line in lines), Usage())
