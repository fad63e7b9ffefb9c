"""The status line: printed from the agent's payload and one small page, then the payload noted.

Never folds, never waits, never blank. What is slow to find out (who pays, burn rate, alerts) was
written into `<config dir>/session-health/<session>.json` by whoever gathered last; this script
only shows it, and leaves it out when it has grown old. Runs as a script, like `recorder`.
"""

import _signal  # type: ignore[import-not-found]
import os
import time

from flightlog.hooks import recorder, statusline_segments

HARD_STOP_S = 1.0
PAYLOAD_BYTES_MAX = 1 << 20
PAGE_BYTES_MAX = 1 << 18
WIDTH_DEFAULT = 100


def main(arguments: list[str]) -> None:
    """Print one line for the payload on stdin, then note the payload if it says something new."""
    os.umask(0o077)
    printed: list[bool] = []
    _stop_after(HARD_STOP_S, printed)
    payload = _read_payload()
    now_s = time.time()
    page = _read_live_state(payload)
    shown = statusline_segments.render_line(
        payload,
        page,
        statusline_segments.StatusStyle(_terminal_width(arguments), not os.environ.get("NO_COLOR"), now_s),
    )
    branch_shown = shown or "flightlog"
    os.write(1, branch_shown.encode("utf-8", "replace") + b"\n")
    printed.append(True)
    if "--preview" not in arguments and payload:
        from flightlog.hooks import payload_log, writer  # noqa: PLC0415 - the line is printed first

        payload_log.append_payload(writer.find_data_dir(os.environ), payload, config_dir(payload), int(now_s * 1000))


def config_dir(payload: dict[str, object]) -> str:
    """Where the agent keeps its files: its transcript says it best."""
    said = payload.get("transcript_path")
    if isinstance(said, str) and os.path.isabs(said):
        projects = os.path.dirname(os.path.dirname(said))
        if os.path.basename(projects) == "projects":
            return os.path.dirname(projects)
    given = os.environ.get("CLAUDE_CONFIG_DIR", "").partition(",")[0].strip()
    return os.path.expanduser(given or "~/.claude")


def _read_payload() -> dict[str, object]:
    data, _ = recorder._read_stdin(PAYLOAD_BYTES_MAX)  # noqa: SLF001 - the scripts are one program in several files
    value = recorder._decode_json(data)  # noqa: SLF001
    return value if isinstance(value, dict) else {}


def _read_live_state(payload: dict[str, object]) -> dict[str, object]:
    """What was gathered about this session, or about all of them when it is new."""
    folder = os.path.join(config_dir(payload), "session-health")
    session = payload.get("session_id")
    names = [f"{session}.json"] if recorder.is_safe(session) else []
    for name in [*names, "billing-shared.json"]:
        try:
            file = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            value = recorder._decode_json(os.read(file, PAGE_BYTES_MAX))  # noqa: SLF001
        finally:
            os.close(file)
        if isinstance(value, dict):
            return value
    return {}


def _terminal_width(arguments: list[str]) -> int:
    """The columns there are: told, else of the terminal the agent runs in."""
    said = [word.partition("=")[2] for word in arguments if word.startswith("--width=")]
    for text in [*said, os.environ.get("FLIGHTLOG_STATUSLINE_WIDTH", ""), os.environ.get("COLUMNS", "")]:
        if text.isdecimal() and 0 < int(text) < 10_000:
            return int(text)
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # The agent indents the line and keeps the last column free.
            return max(os.get_terminal_size(terminal).columns - 4, 20)
        finally:
            os.close(terminal)
    except OSError:
        return WIDTH_DEFAULT


def _stop_after(seconds: float, printed: list[bool]) -> None:
    """End this process after `seconds`; a line stands by then, be it the shortest."""

    def stop(*_: object) -> None:
        if not printed:
            os.write(1, b"flightlog\n")
        os._exit(0)

    _signal.signal(_signal.SIGALRM, stop)
    _signal.setitimer(_signal.ITIMER_REAL, seconds)
