"""Every file of the five features with its tier: the reference page, and the patterns that a test checks."""

import re

from flightlog.privacy.tiers import kind_of

# feature: (root, ((path below it, what it holds), …)); `*` stays within a name, `**` does not
FILES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "live": (
        "session-health",
        (
            ("runtime-state.yaml", "profiles and running sessions; people edit it"),
            ("billing-shared.json", "billing of the profile used last, for older programs"),
            (
                "*.json",
                "one session, as the status line shows it; `sessions.json` is a summary of all",
            ),
            ("daemon.log", "a line for each collection"),
            ("archive/**", "sessions that left the file"),
            (".flightlog/**", "the journal, and caches"),
        ),
    ),
    "loop": (
        "ralph-loop-sessions",
        (
            (".gitignore", "hides loops from git"),
            ("README.md", "describes the directory"),
            ("templates/*", "the output files of a session, empty"),
            ("summaries/**", "a summary of each quarter"),
            ("archive/**", "sessions that were archived"),
            (".numbering", "lock for the next session number"),
            ("*/journal.jsonl", "the events: the record"),
            ("*/plan.yaml", "the plan, unchanged"),
            ("*/execution-log.json", "every event"),
            ("*/decision-history.json", "decisions with risks, alternatives and outcome"),
            ("*/session-metadata.yaml", "the session"),
            ("*/progress-tracking.yaml", "tasks and their progress"),
            ("*/errors-and-retries.json", "failures and recovery actions"),
            ("*/feature-inventory.json", "features that tasks reported"),
            ("*/feature-docs-generated.json", "documents that tasks reported"),
            ("*/quality-metrics.json", "metrics and gates"),
            ("*/question.yaml", "an open question to a person"),
            ("*/final-report.md", "the report, redacted"),
            ("*/checkpoint.json", "a cache"),
            ("*/activity.json", "what the runner does now"),
            ("*/runner.log", "output of a session in the background"),
            ("*/runner.lock", "the current runner"),
            ("*/control.jsonl", "requests to the runner"),
            ("*/reports/**", "reports that tasks wrote"),
            ("*/diffs/**", "changes of each attempt"),
            ("*/tree.git/**", "the shadow repository of those changes"),
            ("*/outputs/**", "output of commands"),
        ),
    ),
    "lab": (
        "runs",
        (
            (".gitignore", "hides runs from git"),
            ("*/config.yaml", "the configuration, frozen"),
            ("*/run_meta.json", "the run and each session"),
            ("*/state_changelog.jsonl", "one line for each file a step changed"),
            ("*/full_diff.patch", "the difference of the first tree and the last"),
            ("*/analysis.md", "results of `harness compare --write`, or your own text"),
            ("*/.journal.jsonl", "the events: the record"),
            ("*/.lock", "the process that carries the run out"),
            ("*/.resamples.jsonl", "resample batches: requested, paid, open"),
            ("*/.resamples.lock", "the process that sends samples"),
            ("*/.shadow_git/**", "every saved tree"),
            ("*/.attempts/**", "files of attempts that were run again"),
            ("*/.source/**", "in a replay: data from its source"),
            ("*/session_*/transcript.jsonl", "the transcript that the agent wrote"),
            ("*/session_*/trajectory.json", "the session as ATIF"),
            ("*/session_*/subagent_*.json", "a subagent as ATIF"),
            (
                "*/session_*/uuid_map.json",
                "which record, step, request, snapshot and tool call belong together",
            ),
            ("*/session_*/.changes.jsonl", "its part of the changelog"),
            ("*/session_*/session_diff.patch", "changes of the session"),
            ("*/session_*/api_captures.jsonl", "one line for each request"),
            ("*/session_*/resamples/**", "samples and variants of requests"),
            ("*/session_*/raw_dumps/**", "requests and responses, unchanged"),
            ("*/session_*/.exchanges/**", "the captured bytes, each chunk once"),
            ("*/session_*/replay_meta.json", "in a replay: its branch point and its certificate"),
            ("*/session_*/subagents/**", "transcripts of subagents"),
            ("*/session_*/tool-results/**", "results too large for the transcript"),
            ("*/session_*/agent_*.txt", "output of the agent's process"),
        ),
    ),
    "retro": (
        ".chat-retro-runtime",
        (
            (".gitignore", "what git may track"),
            (".gitattributes", "how lines are merged"),
            ("*/.gitkeep", "keeps the directory"),
            ("state/**", "the journal, the last analysis, digests"),
            ("logs/debug.jsonl", "all output of tools, only with `CHAT_RETRO_DEBUG=1`"),
            ("logs/debug_*.jsonl", "which tools were used, paths as short hashes"),
            ("logs/metrics.jsonl", "numbers only"),
            ("resume-session.json", "the session that `--resume` continues"),
            ("issue-drafts/*", "reports, raw"),
            ("issue-state.json", "issues and clusters"),
            ("issues/issue_*.json", "published issues"),
            ("issues/CHANGELOG.md", "resolved issues"),
            ("feedback/*", "ratings, answers, gaps"),
            ("outputs/*", "artifacts"),
            ("tmp/*", "emptied at the end of a session"),
        ),
    ),
    "dataset": (
        ".git-ml",
        (
            (".gitignore", "what git may track"),
            (".gitattributes", "how lines are merged"),
            ("tracked/*.jsonl", "base files"),
            ("tracked/pending/*.jsonl", "shards, named by content"),
            ("tracked/pending/.gitkeep", "keeps the directory"),
            ("chats/*", "one file for each chat, with `local_cache`"),
            ("sessions/*", "one file for each session, with `local_cache`"),
            ("actions/*", "one file for each action, with `local_cache`"),
            ("damaged/**", "copies of unreadable data"),
        ),
    ),
}
_SHAREABLE = {("loop", "*/final-report.md")}
_GIT = {(feature, ".gitignore") for feature in ("loop", "lab")}


def tier(feature: str, path: str) -> str:
    """Return the tier of a file by `privacy.tiers`, and `private` if it has no entry there."""
    if (feature, path) in _SHAREABLE:
        return "shareable"
    if (feature, path) in _GIT:
        return "tracked"
    kind = (
        kind_of(f"{FILES[feature][0]}/{path.replace('**', 'x').replace('*', 'x')}")
        if feature != "live"
        else None
    )
    return kind[1].tier.value if kind else "private"


def find_pattern(feature: str, path: str) -> str:
    """Return the first pattern of a feature that matches a path, or an empty text."""
    return next((pattern for pattern, _ in FILES[feature][1] if _matches(pattern, path)), "")


ARCHIVE = """## archive

Below `FLIGHTLOG_HOME/`; all of it is private.

| file | what |
|---|---|
| `sessions/<agent>/<session>/transcript.jsonl`, `subagents/**`, `tool-results/*` | verbatim copies |
| `*.g2.jsonl` | the next generation, begun when the agent rewrote its file |
| `*.from-N.zst` | sealed, from byte N on |
| `*.damaged-N` | a damaged file, renamed when it was restored |
| `sessions/<agent>/<session>/hooks.jsonl` | hook events |
| `sessions/<agent>/<session>/meta.json` | the manifest: size, hashes and source of each file |
| `sessions/<agent>/<session>/.lock` | held while the session is settled or verified |
| `sessions/<agent>/.damaged/<session>` | damage that a check found, until it is repaired |
| `sessions/<agent>/.rewritten/<session>` | marks a session with several generations |
| `sessions/<agent>/.verified` | where the next verification sample begins |
| `layout.json` | the layout of this directory; without it, the first |
| `lost` | number of hook events that could not be written |
| `index.db`, `index.db.gate` | the index, which can be deleted, and its lock |
| `config-dirs` | the configuration directories that a hook, status line or `init` reported |
| `init-projects` | the directories in which `init --project` wrote, for `uninstall` |
| `other-config-dirs/` | the index of those that are not configured |
"""


def files_page() -> str:
    """Return the reference page."""
    intro = """# Files

Every file of the five features and its tier. A file that is not listed is private. Details:
[live](runtime-state.md), [loop](loop-session.md), [lab](run-directory.md), [retro](retro-files.md),
[dataset](dataset.md).
"""
    parts = [intro]
    for feature, (root, rows) in FILES.items():
        lines = [f"| `{path}` | {what} | {tier(feature, path)} |" for path, what in rows]
        table = "\n".join(["| file | what | tier |", "|---|---|---|", *lines])
        parts += [f"## {feature}\n", f"Below `{root}/`.\n", f"{table}\n"]
    return "\n".join([*parts, ARCHIVE])


def _matches(pattern: str, path: str) -> bool:
    form = re.escape(pattern).replace(r"\*\*", ".+").replace(r"\*", "[^/]*")
    return re.fullmatch(form, path) is not None
