"""`doctor --formats`: records of unknown format, and what the recordings of each agent contain."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from flightlog.agents import agent_label, agent_names, source_of
from flightlog.agents.recordings import find_agent_dirs, list_recorded_files
from flightlog.model.entries import Entry, UnknownRecord
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.model.text import pluralize
from flightlog.setup.doctor import CheckLevel, CheckResult
from flightlog.setup.format_drift import compare_formats, load_known_format, read_json_objects

# What a person asks of recordings, and the field of `Fidelity` that answers.
FACTS = {
    "prompt": "system_prompt",
    "tools": "tool_results",
    "thinking": "thinking",
    "usage": "usage",
    "exit_codes": "exit_codes",
    "permissions": "permissions",
    "files": "file_changes",
}


def check_formats(runtime: Runtime) -> list[CheckResult]:
    """Compare Claude Code's records with the known format, and count unknown ones of other agents."""
    files = list_recorded_files(find_agent_dirs(runtime), runtime.data_dir).files
    own = [Path(file.path) for file in files if file.agent == DEFAULT_AGENT]
    drift = compare_formats(map(read_json_objects, own), load_known_format())
    added = [*drift.added_types, *map(".".join, drift.added_fields)]
    added += _find_unknown(file for file in files if file.agent != DEFAULT_AGENT)
    dropped = [*drift.dropped_types, *map(".".join, drift.dropped_fields)] if own else []
    results = [
        CheckResult(CheckLevel.NOTE, "format", f"new: {name}", "flightlog session list")
        for name in added
    ]
    results += [
        CheckResult(CheckLevel.NOTE, "format", f"not used here: {name}") for name in dropped
    ]
    known = f"only known fields in {pluralize(len(files), 'transcript')}"
    return results or [CheckResult(CheckLevel.OK, "format", known)]


def _find_unknown(files: Iterable[SessionFile]) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter()
    for file in files:
        for item in source_of(file.agent).entries(file):
            if isinstance(item, Entry) and isinstance(item.event, UnknownRecord):
                counts[file.agent, item.event.kind] += 1
    return [
        f"{agent_label(agent)} {kind} ({pluralize(count, 'record')})"
        for (agent, kind), count in sorted(counts.items())
    ]


def list_fidelity() -> list[dict[str, Any]]:
    """Return for each agent which facts its recordings contain, as rows of a table."""
    rows = []
    for name in agent_names():
        fidelity = asdict(source_of(name).fidelity)
        facts = {fact: fidelity[field] for fact, field in FACTS.items()}
        missing = ", ".join(
            fact.replace("_", " ") for fact, is_kept in facts.items() if not is_kept
        )
        message = f"{agent_label(name)}: {f'not kept: {missing}' if missing else 'all kept'}"
        finding = CheckResult(CheckLevel.OK, "fidelity", message)
        rows.append({**asdict(finding), "agent": name, **facts})
    return rows


def tabulate_fidelity(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and cells of the rows as a table for a terminal."""
    heads = ["recorded by", *(fact.replace("_", " ") for fact in FACTS)]
    words = {True: "kept", False: "-"}
    return heads, [[row["agent"], *(words[row[fact]] for fact in FACTS)] for row in rows]
