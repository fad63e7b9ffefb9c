"""Every file of the five layouts, with who may see it: the page, and the patterns a test holds real directories to."""

import re

from flightlog.privacy.tiers import kind_of

# room: (root, ((path below it, what it holds), …)); `*` stays within a name, `**` does not
FILES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "live": (
        "session-health",
        (
            ("runtime-state.yaml", "profiles and running sessions; people edit it"),
            ("billing-shared.json", "billing of the profile used last, for older programs"),
            ("*.json", "one session, as the status line shows it; `sessions.json` is a summary"),
            ("daemon.log", "a line for each look"),
            ("archive/**", "sessions that left the file"),
            (".flightlog/**", "the journal, and caches"),
        ),
    ),
    "loop": (
        "ralph-loop-sessions",
        (
            (".gitignore", "git sees nothing of a loop"),
            ("README.md", "what the directory is"),
            ("templates/*", "the pages of a session, empty"),
            ("summaries/**", "what is left of sessions whose logs were deleted"),
            ("archive/**", "sessions that were archived"),
            (".numbering", "who draws the next number"),
            ("*/journal.jsonl", "what happened: the record"),
            ("*/plan.yaml", "the plan, as it was given"),
            ("*/execution-log.json", "every event"),
            ("*/decision-history.json", "decisions with risks, alternatives and outcome"),
            ("*/session-metadata.yaml", "the session"),
            ("*/progress-tracking.yaml", "tasks and how far they are"),
            ("*/errors-and-retries.json", "what failed and what was done about it"),
            ("*/feature-inventory.json", "features that tasks reported"),
            ("*/feature-docs-generated.json", "documents that tasks reported"),
            ("*/quality-metrics.json", "metrics and gates"),
            ("*/question.yaml", "a question that waits for a person"),
            ("*/final-report.md", "the report, redacted"),
            ("*/checkpoint.json", "a cache"),
            ("*/runner.lock", "who is at work"),
            ("*/control.jsonl", "what was asked of the runner"),
            ("*/reports/**", "what tasks wrote to their report"),
            ("*/diffs/**", "what each attempt of an agent changed"),
            ("*/tree.git/**", "the shadow repository those come from"),
            ("*/outputs/**", "what commands said"),
        ),
    ),
    "lab": (
        "runs",
        (
            (".gitignore", "git sees nothing of a run"),
            ("*/config.yaml", "the configuration, frozen"),
            ("*/run_meta.json", "the run and each session"),
            ("*/state_changelog.jsonl", "one line for each file a step changed"),
            ("*/full_diff.patch", "from the first tree to the last"),
            ("*/analysis.md", "yours"),
            ("*/.journal.jsonl", "what happened: the record"),
            ("*/.lock", "who carries the run out"),
            ("*/.resamples.jsonl", "what was asked again, paid and left"),
            ("*/.resamples.lock", "who asks"),
            ("*/.shadow_git/**", "every saved tree"),
            ("*/.attempts/**", "what attempts left that were run again"),
            ("*/.source/**", "in a replay: what it took from its source"),
            ("*/session_*/transcript.jsonl", "what the agent wrote"),
            ("*/session_*/trajectory.json", "the session as ATIF"),
            ("*/session_*/subagent_*.json", "a subagent as ATIF"),
            ("*/session_*/uuid_map.json", "which record, step, request, snapshot and tool call belong together"),
            ("*/session_*/.changes.jsonl", "its part of the changelog"),
            ("*/session_*/session_diff.patch", "what the session changed"),
            ("*/session_*/api_captures.jsonl", "one line for each request"),
            ("*/session_*/resamples/**", "samples and variants of requests"),
            ("*/session_*/raw_dumps/**", "requests and responses as they were"),
            ("*/session_*/.exchanges/**", "the captured bytes, each piece once"),
            ("*/session_*/replay_meta.json", "in a replay: where it goes on from, and its certificate"),
            ("*/session_*/subagents/**", "what subagents wrote"),
            ("*/session_*/tool-results/**", "results too large for the transcript"),
            ("*/session_*/agent_*.txt", "what the agent's process said"),
        ),
    ),
    "retro": (
        ".chat-retro-runtime",
        (
            (".gitignore", "what git may see"),
            (".gitattributes", "how lines are merged"),
            ("*/.gitkeep", "keeps the directory"),
            ("state/**", "the journal, the last analysis, digests"),
            ("logs/debug.jsonl", "all that tools said, only with `CHAT_RETRO_DEBUG=1`"),
            ("logs/debug_*.jsonl", "which tools were used, paths as short hashes"),
            ("logs/metrics.jsonl", "numbers only"),
            ("resume-session.json", "the session `--resume` goes on with"),
            ("issue-drafts/*", "reports, raw"),
            ("issue-state.json", "issues and clusters"),
            ("issues/issue_*.json", "published issues"),
            ("issues/CHANGELOG.md", "what was resolved"),
            ("feedback/*", "ratings, answers, gaps"),
            ("outputs/*", "artifacts"),
            ("tmp/*", "emptied at the end of a session"),
        ),
    ),
    "dataset": (
        ".git-ml",
        (
            (".gitignore", "what git may see"),
            (".gitattributes", "how lines are merged"),
            ("tracked/*.jsonl", "base files"),
            ("tracked/pending/*.jsonl", "shards, named by what they hold"),
            ("tracked/pending/.gitkeep", "keeps the directory"),
            ("chats/*", "one file for each chat, with `local_cache`"),
            ("sessions/*", "one file for each session, with `local_cache`"),
            ("actions/*", "one file for each action, with `local_cache`"),
            ("damaged/**", "copies of what could not be read"),
        ),
    ),
}
_SHAREABLE = {("loop", "*/final-report.md")}
_GIT = {(room, ".gitignore") for room in ("loop", "lab")}


def tier(room: str, path: str) -> str:
    """Who may see a file: by the table of tiers, and private where that has none."""
    if (room, path) in _SHAREABLE:
        return "shareable"
    if (room, path) in _GIT:
        return "tracked"
    known = kind_of(f"{FILES[room][0]}/{path.replace('**', 'x').replace('*', 'x')}") if room != "live" else None
    return known[1].tier.value if known else "private"


def named(room: str, path: str) -> str:
    """The line of the table that a file of a layout falls under; empty when there is none."""
    return next((pattern for pattern, _ in FILES[room][1] if _matches(pattern, path)), "")


ARCHIVE = """## archive

Below `FLIGHTLOG_HOME/`; all of it is private.

| file | what |
|---|---|
| `sessions/<agent>/<session>/transcript.jsonl`, `subagents/*`, `tool-results/*` | verbatim copies |
| `*.g2.jsonl` | the next generation, after the agent rewrote its file |
| `*.from-N.zst` | sealed, from byte N on |
| `*.damaged-N` | a damaged file that was set aside when it was restored |
| `sessions/<agent>/<session>/hooks.jsonl` | hook events |
| `sessions/<agent>/<session>/meta.json` | the manifest: size, hashes and source of each file |
| `sessions/<agent>/<session>/.lock` | held while the session is settled or verified |
| `sessions/<agent>/.damaged/<session>` | what a check found wrong, until it is repaired |
| `sessions/<agent>/.rewritten/<session>` | marks a session with several generations |
| `sessions/<agent>/.verified` | where the next sample begins |
| `layout.json` | the layout of this directory; without it, the first |
| `lost` | how many hook events could not be written |
| `index.db`, `index.db.gate` | the index, which can be deleted, and the lock to open it |
"""


def files_page() -> str:
    """The page."""
    said = """# Files

Every file of the five layouts and who may see it. What is not named is private. Details:
[live](runtime-state.md), [loop](loop-session.md), [lab](run-directory.md), [retro](retro-files.md),
[dataset](dataset.md).
"""
    parts = [said]
    for room, (root, rows) in FILES.items():
        lines = [f"| `{path}` | {what} | {tier(room, path)} |" for path, what in rows]
        table = "\n".join(["| file | what | tier |", "|---|---|---|", *lines])
        parts += [f"## {room}\n", f"Below `{root}/`.\n", f"{table}\n"]
    return "\n".join([*parts, ARCHIVE])


def _matches(pattern: str, path: str) -> bool:
    form = re.escape(pattern).replace(r"\*\*", ".+").replace(r"\*", "[^/]*")
    return re.fullmatch(form, path) is not None
