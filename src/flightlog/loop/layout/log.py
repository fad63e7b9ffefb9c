"""`execution-log.json`: each event of the journal as the template shows it, one entry each."""

from typing import Any

import msgspec

from flightlog.loop.core.times import format_utc_time
from flightlog.loop.events import Event

_NAMED = {"task", "result", "duration_s"}


def build_log_entry(seq: int, at: float, event: Event, names: dict[str, str]) -> dict[str, Any]:
    """One event as an entry of the log; `details` names the event and holds all the rest."""
    told = msgspec.to_builtins(event)
    kind = told.pop("kind")
    shown: dict[str, Any] = {"timestamp": format_utc_time(at), "event_type": kind}
    if "task" in told:
        shown["task_id"] = told["task"]
        if told["task"] in names:
            shown["task_name"] = names[told["task"]]
    if "result" in told:
        shown["result"] = told["result"]
    if "duration_s" in told:
        shown["duration_seconds"] = round(told["duration_s"], 3)
    details = {name: value for name, value in told.items() if name not in _NAMED and value not in ("", None, [], {})}
    return {**shown, "details": {"event": f"e{seq}", **details}}
