"""Which hook events a client knows, and which of them are worth a record.

An event name a client does not know makes old ones drop the whole settings file, deny rules
included, without a word. So only what was tried with a version is registered with it, and
where the version is in doubt only what all of them know.
"""

from collections.abc import Collection

from flightlog.model.errors import Invalid

# All that every tried version knows.
COMMON = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
    *("Stop", "SubagentStop", "PreCompact", "SessionEnd"),
)

# What each tried version knows beyond the one before it.
_SINCE: tuple[tuple[tuple[int, int, int], tuple[str, ...]], ...] = (
    ((1, 0, 128), (*COMMON, "Notification")),
    ((2, 0, 76), ("PermissionRequest", "PostToolUseFailure", "SubagentStart")),
    (
        (2, 1, 100),
        (
            *("ConfigChange", "CwdChanged", "Elicitation", "ElicitationResult", "InstructionsLoaded"),
            *("PermissionDenied", "PostCompact", "Setup", "StopFailure"),
            *("TaskCompleted", "TaskCreated", "TeammateIdle"),
        ),
    ),
    ((2, 1, 325), ("DirectoryAdded", "PostModelSwitch", "PreModelSwitch", "UserPromptExpansion")),
)

# Known to some version and never registered:
LEFT_OUT = {
    "MessageDisplay": "one event per piece of text shown: the agent would feel it",
    "PostToolBatch": "repeats every PostToolUse",
    "WorktreeCreate": "a hook there takes the place of the client's own work",
    "WorktreeRemove": "a hook there takes the place of the client's own work",
    "FileChanged": "makes the client watch files",
}


def events_for(versions: Collection[str]) -> tuple[str, ...]:
    """The events to register for the clients that share a configuration; unknown versions are empty."""
    told = {_numbers(version) for version in versions}
    if len(told) != 1 or () in told:
        return COMMON
    (version,) = told
    if version < _SINCE[0][0]:
        oldest = ".".join(map(str, _SINCE[0][0]))
        raise Invalid(
            f"Claude Code {'.'.join(map(str, version))} is older than {oldest}, the oldest tried",
            hint="update Claude Code: an older one may drop its whole settings file, deny rules included",
        )
    return tuple(event for since, events in _SINCE if since <= version for event in events)


def _numbers(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in version.split(".")) if version else ()
    except ValueError:
        return ()
