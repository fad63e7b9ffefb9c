"""The legend: every symbol that commands print, and what it means."""

from flightlog.views.transcript import TranscriptLineKind
from flightlog.views.transcript_formats import MARKS

_MEANINGS = {
    TranscriptLineKind.PROMPT: "a prompt: what the person, or the caller of a subagent, wrote",
    TranscriptLineKind.THINKING: "the model's thinking",
    TranscriptLineKind.CALL: "a tool call and its input",
    TranscriptLineKind.RESULT: "the result of the call",
    TranscriptLineKind.FAILURE: "the result of a call that failed",
    TranscriptLineKind.NOTE: "a note: a finding, an event of the client, or what is missing",
}
DASHBOARD_SYMBOLS = {
    "needs permission": "the session waits for a yes or no",
    "needs answer": "the session asked a question",
    "Bash 12s": "this tool call has run for 12 seconds",
    "responding": "the model writes",
    "idle": "done for now",
    "crashed": "the process is gone without an end of the session",
    "71%!": "context near compaction",
    "5-hour, 7-day": "limits that the vendor reports",
}
SYMBOLS: dict[str, dict[str, str]] = {
    "Transcripts (session show, session follow)": {
        **{mark.strip(): _MEANINGS[kind] for kind, mark in MARKS.items()},
        "#2, #2.3": "turn 2; step 3 of turn 2",
        "@a18a8ad0": "a subagent's thread",
        "+ -": "a line that a call adds to a file, or removes",
    },
    "Amounts": {
        "≥": "at least: not all usage was recorded",
        "unknown": "not recorded; never the same as zero",
        "?": "a time or name that was not recorded",
        "-": "no value",
        "±": "a mean and its standard deviation",
        "…": "text was cut here",
    },
    "Bars": {
        "████░░░░": "share that is used",
        "█████▎": "cost, as a share of the most expensive row",
        "▁▂▃▄▅▆▇█": "cost of each of the last 24 hours, now at the right",
        "██████···": "tasks of a loop that are done",
        "██▓▓░░··": "a share (█) and its confidence interval (▓ below, ░ above)",
    },
    "Dashboard (watch, status)": DASHBOARD_SYMBOLS,
    "Status line": {
        "ctx 71%": "context used, up to the point of compaction",
        "5h, 7d": "limits that the vendor reports, with the time of their reset",
        "main*↑1↓2": "branch, with uncommitted changes, 1 commit ahead, 2 behind",
        "cache 93% 4m": "share of prompts that the cache served; it stays warm for 4 minutes",
        "#12, !12": "pull request, merge request",
        "wt NAME": "worktree",
        "! Secrets detected": "alerts; !2 is two of them",
    },
    "Runs side by side (demo rewind, lab compare)": {
        "=": "same calls, same results",
        "~": "same calls, other results",
        "≠": "other calls",
    },
    "Session pages": {
        "quiet": "no response of a model on record",
        "good": "nothing to look at",
        "look": "failed calls, compactions or unknown records; the reasons are beside it",
        "bad": "damage, or a quarter of the calls failed",
    },
}
