"""Every command of the freeze: its help, and each way of reading the sample, as text and as JSON."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import click

from flightlog.cli.main import cli
from flightlog.dataset.rows import AnyRow
from flightlog.lab.events import RunEvent
from flightlog.lab.resample.state import SampleEvent
from flightlog.live.events import Event as LiveEvent
from flightlog.loop.events import Event as LoopEvent
from flightlog.model.entries import Block
from flightlog.model.exchange import ApiRequest, ApiResponse
from flightlog.retro.events import Event as RetroEvent

SESSION = "63180a29"
LOOP = "--session session-001-shop"
# Commands by their words; each line of arguments runs as text and with --json.
READS: dict[str, tuple[str, ...]] = {
    "doctor": ("", "--formats", "--verify"),
    "status": ("",),
    "watch": ("--once",),
    "init": ("--dry-run", "--dry-run --project", "--remove --dry-run"),
    "settle": (SESSION, ""),
    "up": ("",),
    "config show": ("", "--origin"),
    "privacy check": ("", "--quiet"),
    "privacy key show": ("",),
    "privacy key export": ("",),
    "privacy preview": ("runs/tax/run_meta.json",),
    "privacy redact": ("runs/tax/config.yaml", "runs/tax/session_01/transcript.jsonl --jsonl"),
    "privacy rules": ("--family chat",),
    "privacy scan": ("", "--secrets", "--sessions"),
    "trust": ("", "runs/tax"),
    "completion": ("bash",),
    "session list": ("", "--limit 3 --since 1d", "--since 2026-11-17", "--project none"),
    "search": ("tax", "nothing-like-it"),
    "session search": ("tax", "nothing-like-it"),
    "session findings": ("", "f79aadd6", "--project none", "f79aadd6 --since 1d"),
    "session show": (
        SESSION,
        f"{SESSION} --full",
        f"{SESSION}#1.2",
        "de349ced",
        "5057f83a",
        "nothing",
    ),
    "session export": (
        f"{SESSION} --format md",
        f"{SESSION} --format json",
        f"{SESSION} --format html --redact",
        f"{SESSION} --atif",
    ),
    "session follow": (f"{SESSION} --idle 0.1",),
    "session usage": (
        "",
        *(f"--by {by}" for by in ("session", "month", "model", "project", "block")),
        "--since 2026-11-16 --timezone Asia/Tokyo",
    ),
    "context": ("", SESSION, "--project nowhere"),
    "cache": ("", "72a5ce76", "--by project --since 2026-11-14", f"{SESSION} --by day"),
    "trace": ("run:tax/session_01", SESSION, "task:session-001-shop/001", "nothing"),
    "blame": ("shop.py:1", "README:1", "none.py:1"),
    "share": (SESSION,),
    "live cleanup": ("--dry-run",),
    "live label": ("default Work --dry-run",),
    "live profiles": ("",),
    "live state": ("",),
    "live statusline": ("", "--width 40"),
    "live swap": ("5057f83a default --dry-run",),
    "loop run": ("--plan ralph-loop-sessions/session-001-shop/plan.yaml --dry-run",),
    "loop retain": ("--dry-run",),
    "loop simulate": ("--seed 1", "--seed 3 --count 3"),
    "loop schema": ("",),
    "loop status": ("", LOOP),
    "loop monitor": (f"{LOOP} --once",),
    "loop logs": (LOOP, f"{LOOP} --tail 2", f"{LOOP} --event task_start", f"{LOOP} --task 001"),
    "loop generate-report": (LOOP,),
    "loop analyze": (LOOP,),
    "loop insights": (LOOP,),
    "loop compare": ("--sessions session-001,session-001-shop",),
    "loop pause": (LOOP,),
    "loop answer": (f"{LOOP} yes",),
    "lab branch-points": ("tax",),
    "lab collect": ("--list", f"{SESSION} --dry-run"),
    "lab compare": ("tax", "tax --by tool"),
    "lab inspect": ("tax", "tax#1.1", "tax#1.2", "none"),
    "lab lint": (
        "runs/tax/session_01/trajectory.json",
        "runs/tax/session_01/trajectory.json --strict",
    ),
    "lab list": ("",),
    "lab replay": ("tax --list-turns",),
    "lab resample": ("tax --list-requests", "tax --request 1 --count 2 --dry-run"),
    "lab resample-edit": ("tax --request 1 --dump",),
    "retro patterns": ("", "--kind cost"),
    "retro show": ("cost-models", "prompts-that-work", "nothing"),
    "retro prefs show": ("",),
    "retro feedback summary": ("",),
    "retro retain": ("--dry-run",),
    "issue list": ("", "--status prioritized"),
    "issue drafts": ("",),
    "issue clusters": ("",),
    "issue preview": ("",),
    "issue publish": ("--dry-run",),
    "dataset check": ("",),
    "dataset stats": ("",),
    "dataset status": ("",),
    "dataset export": ("", "--format sft"),
    "dataset forget": ("--text total --dry-run",),
    "dataset install-hooks": ("--dry-run",),
    "dataset retain": ("--dry-run",),
    "dataset strip-words": ("--dry-run",),
    "dataset tracked compact": ("--dry-run",),
}
LONG = "63180a29-cd3d-4009-962c-d44e433dd6f5"
BACKGROUND = "5057f83a-5171-59e8-997a-6671cd31a57b"
PAGES = (
    *(
        "/",
        "/sessions",
        "/live",
        "/live/part",
        "/usage",
        "/cache?since=all",
        "/loops",
        "/loops/session-001-shop",
        "/lab",
        "/lab/runs/tax",
    ),
    *(
        "/lab/runs/tax/1",
        "/lab/runs/tax/1/1",
        "/lab/runs/tax/1/points",
        "/lab/runs/tax/samples",
        "/lab/runs/tax/ways",
    ),
    *(
        "/lab/runs/tax/certificate",
        "/retro",
        "/retro/issues/9c2a3a8cf5bb",
        f"/retro/place?at={LONG}",
        "/dataset",
    ),
    *(
        "/privacy",
        "/doctor",
        "/doctor/findings",
        "/doctor?whole",
        "/search",
        "/search?q=tax",
        "/trace",
        "/nothing",
    ),
    *(
        "/trace?address=run:tax/session_01",
        f"/sessions/{LONG}",
        f"/sessions/{LONG}/rows/0",
        f"/sessions/{LONG}/text",
    ),
    *(
        "/sessions/72a5ce76-dfde-4696-9435-2fe6d2f3356a/cache",
        "/sessions/de349ced-4bbc-5e17-8fb2-7850b2bcd8e7/context",
        f"/sessions/{LONG}/find?q=tax",
        f"/sessions/{LONG}?find=tax",
        "/sessions/words?q=tax",
        "/sessions/more?after=20",
    ),
    *(f"/sessions/{BACKGROUND}", f"/sessions/{BACKGROUND}?subagent=ab88dc5ab8d95003e"),
    *(
        "/sessions/de349ced-4bbc-5e17-8fb2-7850b2bcd8e7",
        "/sessions/28892d4e-8862-49cd-8faa-ec192a7e47c0",
    ),
    f"/sessions/{BACKGROUND}/rows/0?subagent=ab88dc5ab8d95003e&inline=1",
)
# What each feature writes: commands, and the directories in which their changes are listed.
WRITES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "export": (
        (
            *(
                f"session export {SESSION} --format {form} --output {{root}}/out/s.{form}"
                for form in ("md", "html", "json")
            ),
            "session export --all --atif --output {root}/out/atif",
            "session export --all --atif --redact --output {root}/out/redacted",
            f"share {SESSION} --output {{root}}/out/share.html",
        ),
        ("out",),
    ),
    "archive": (("settle", "doctor --verify", "doctor --fix"), ("flightlog", "home")),
    "setup": (
        ("init --yes", "init --yes --project --guard", "init --remove --yes"),
        ("home", "project", "flightlog"),
    ),
    "live": (
        (
            "watch --once",
            "live label default Work",
            "live swap 5057f83a default",
            "live cleanup --days 0",
        ),
        ("home/.claude/session-health",),
    ),
    "loop": (
        (
            "loop example {root}/out/example",
            "loop generate-report --session session-001-shop",
        ),
        ("out", "project/ralph-loop-sessions"),
    ),
    "lab": (
        ("lab collect 5057f83a", "lab compare tax --write", "lab track {root}/project/work"),
        ("project", "flightlog"),
    ),
    "retro": (
        (
            "retro analyze --sessions",
            "retro draw --format md",
            "retro feedback rate cost-models 4",
            "retro feedback answer overall_value much --rating 4",
            "retro prefs set focus_areas a,b",
            "issue report-bug --title Broken --description Fails",
            "issue process --yes --findings",
            "issue publish",
            "issue resolve 9c2a3a8cf5bb --notes done",
        ),
        ("project",),
    ),
    "dataset": (
        (
            "dataset session sync-to-jsonl",
            "dataset tracked compact",
            *(
                f"dataset export --format {form} --output {{root}}/out/{form}"
                for form in ("jsonl", "csv", "sft")
            ),
            "dataset install-hooks",
        ),
        ("project", "out"),
    ),
}
GROUPS = sorted({name.split()[0] for name in READS} | set(cli.list_commands(click.Context(cli))))


def invocations(group: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a golden file and the words of one run, for each command of `group`."""
    root = click.Context(cli)
    command = cli.get_command(root, group)
    assert command is not None
    for path, one in _walk(command, (group,)):
        name = "-".join(path)
        yield name, [*path, "--help"]
        has_json = any("--json" in option.opts for option in one.params)
        for line in READS.get(" ".join(path), ()):
            yield name, [*path, *line.split()]
            if has_json:
                yield name, [*path, *line.split(), "--json"]


def _walk(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _walk(child, (*path, name))


UNIONS: dict[str, Any] = {
    "live": LiveEvent,
    "loop": LoopEvent,
    "lab": RunEvent,
    "resampling": SampleEvent,
    "retro": RetroEvent,
    "dataset": AnyRow,
    "exchanges": ApiRequest | ApiResponse,
    "blocks": Block,
}


def journal_tags() -> str:
    """Return a line for each kind of record that is written as one of several: its tag and its fields."""
    lines = []
    for name, union in UNIONS.items():
        for kind in get_args(union):
            config = kind.__struct_config__
            fields = ", ".join(kind.__struct_encode_fields__)
            lines.append(f"{name} {config.tag_field}={config.tag}: {fields}\n")
    return "".join(lines)


def page_name(path: str) -> str:
    """Return the name of a page's golden file."""
    return "page-" + (re.sub(r"[^\w.-]+", "-", path).strip("-")[:60] or "index")


def golden_names() -> set[str]:
    """Return the name of every golden file of the freeze."""
    commands = {name for group in GROUPS for name, _ in invocations(group)}
    return {
        "journals",
        *commands,
        *map(page_name, PAGES),
        *(f"files-{feature}" for feature in WRITES),
    }
