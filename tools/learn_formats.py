"""Write src/flightlog/setup/formats.json: the record types and fields of the pinned agent.

    .venv/bin/python tools/learn_formats.py [DIRECTORY…]

Runs real sessions on the test bench, adds the transcripts (`<session>.jsonl` with its folder)
and hook payloads (`hooks.jsonl`) found below the directories given, and keeps names of types
and fields, never a value. Review the diff: it is what changed in the agent.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightlog.agents.claude_code.files import JOURNAL
from flightlog.setup import format_drift
from flightlog.sources.foreign_json import read_json_objects

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.real_agent import PINNED, Bench, make_bench, new_session  # noqa: E402 - it is among the tests

TARGET = REPOSITORY / "src/flightlog/setup/formats.json"
SURE = 3  # records of a type before a field counts as always there
Records = list[dict[str, Any]]


def main(directories: list[str]) -> int:
    """Learn, and write what was learned."""
    with tempfile.TemporaryDirectory() as folder:
        bench = make_bench(Path(folder))
        play(bench)
        roots = [bench.root, *map(Path, directories)]
        sessions = [session for root in roots for session in transcripts(root)]
        payloads = [
            hooks
            for root in roots
            for path in root.rglob("hooks.jsonl")
            if (hooks := list(hook_payloads(path)))
        ]
    known = {**types(sessions), **types(payloads)}
    format_ = format_drift.Format("claude-code", PINNED, known)
    TARGET.write_bytes(msgspec.json.format(msgspec.json.encode(format_), indent=1) + b"\n")
    fields = sum(len(one.always + one.sometimes) for one in known.values())
    print(f"{len(sessions)} sessions: {len(known)} types, {fields} fields")
    return 0


def play(bench: Bench) -> None:
    """Run sessions that make the agent write as many kinds of records as it can offline."""
    bench.install_hooks()
    bash = {"tool": "Bash", "input": {"command": "echo hello", "description": "Say hello"}}
    fails = {"tool": "Bash", "input": {"command": "false", "description": "Fail"}}
    task = {"description": "Count", "prompt": "SUBTASK: count.", "subagent_type": "general-purpose"}
    rules = [
        {"when": {"first": "SUBTASK"}, "replies": [{"blocks": [bash]}, {"text": "Report."}]},
        {
            "when": {"prompt": "tools"},
            "replies": [{"blocks": [{"thinking": "Hm."}, bash, fails]}, {"text": "Done."}],
        },
        {
            "when": {"prompt": "delegate"},
            "replies": [
                {"blocks": [{"tool": "Agent", "input": {**task, "run_in_background": False}}]},
                {"text": "Done."},
            ],
        },
        {
            "when": {"prompt": "retry"},
            "replies": [{"text": "Late.", "errors": [{"status": 529, "retry_after_s": 0}]}],
        },
        {"replies": [{"text": "Hello."}]},
    ]
    for prompt in ("hello", "tools", "delegate", "retry"):
        bench.run({"rules": rules}, prompt)
    session = new_session()
    bench.run({"rules": rules}, "tools", session=session)
    bench.run({"rules": rules}, "again", resume=session)
    bench.run({"rules": rules}, "/compact", resume=session)
    bench.run({"rules": rules}, "forked", resume=session, fork=True)


def transcripts(root: Path) -> Iterator[Records]:
    """Each session below `root`: its transcript and those of its subagents."""
    for folder in {
        path.parent
        for path in [*root.rglob("projects/*/*.jsonl"), *root.rglob("transcripts/*.jsonl")]
    }:
        for path in sorted(folder.glob("*.jsonl")):
            inner = (path.parent / path.stem).rglob("*.jsonl")
            files = [path, *sorted(file for file in inner if file.name != JOURNAL)]
            yield [record for file in files for record in read_json_objects(file)]


def hook_payloads(path: Path) -> Iterator[dict[str, Any]]:
    """The payloads in a file of hook events."""
    for event in read_json_objects(path):
        payload = event.get("payload") or event.get("stdin")
        if isinstance(payload, dict):
            yield payload


def types(sessions: list[Records]) -> dict[str, format_drift.TypeFormat]:
    """What was learned, as it is kept on file."""
    return {
        kind: _keep_type(one, len(sessions))
        for kind, one in sorted(format_drift.learn_types(sessions).items())
    }


def _keep_type(one: format_drift.FormatObservation, sessions: int) -> format_drift.TypeFormat:
    if one.count < SURE:
        return format_drift.TypeFormat((), tuple(sorted({*one.always, *one.sometimes})))
    return format_drift.TypeFormat(
        one.always, one.sometimes, every_session=one.sessions == sessions
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
