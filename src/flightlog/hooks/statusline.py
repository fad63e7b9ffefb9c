"""Print the status line from the agent's payload and one small file, then log the payload.

Never folds a session, never waits, never prints a blank line. What is slow to compute (account,
burn rate, alerts) is in `<config dir>/session-health/<session>.json`, written by the last process
that collected the live state; it is left out if it is old. Runs as a script, like `recorder`.
"""

import _signal  # type: ignore[import-not-found]
import os
import time

from flightlog.hooks import payload_log, recorder, statusline_segments, writer

HARD_STOP_S = 1.0  # the agent redraws several times a second; a later line is of no use
PAYLOAD_BYTES_MAX = 1 << 20  # a payload has some kilobytes
PAGE_BYTES_MAX = 1 << 18  # a live state has some kilobytes
SHARED = "billing-shared.json"
WIDTH_DEFAULT = 100  # without a terminal to measure


def main(arguments: list[str]) -> None:
    """Print one line for the payload on stdin, then log the payload if it is new."""
    os.umask(0o077)
    printed: list[bool] = []
    _stop_after(HARD_STOP_S, printed)
    payload = _read_payload()
    now_s = time.time()
    has_color = not os.environ.get("NO_COLOR")
    style = statusline_segments.StatusStyle(_terminal_width(arguments), has_color, now_s)
    config_dir = writer.find_config_dir(payload.get("transcript_path"))
    page = _read_live_state(payload, config_dir)
    line = statusline_segments.render_line(payload, page, style) or "flightlog"
    os.write(1, line.encode("utf-8", "replace") + b"\n")
    printed.append(True)
    if "--preview" not in arguments and payload:
        try:  # noqa: SIM105 - `contextlib` is not loaded here
            _log_payload(payload, page, config_dir, int(now_s * 1000))
        except Exception:  # noqa: BLE001, S110 - the caller would print a second line
            pass


def _log_payload(
    payload: dict[str, object], page: dict[str, object], config_dir: str, at_ms: int
) -> None:
    """Log the payload if it is new; settle the session if the live state does not show it yet."""
    home = writer.find_data_dir(os.environ)
    account = payload_log.append_payload(home, payload, config_dir, at_ms)
    if account is not None and "launch" not in page:
        from flightlog.hooks import settle_gate  # noqa: PLC0415 - once per session and account

        session = str(payload["session_id"])
        directory = os.path.join(home, "sessions", payload_log.AGENT, session)
        command = settle_gate.settle_command(session, settle_gate.find_command())
        settle_gate.run_settle_once(directory, command, 0)


def _read_payload() -> dict[str, object]:
    data, _ = recorder._read_stdin(PAYLOAD_BYTES_MAX)  # noqa: SLF001 - one program in several files
    value = recorder._decode_json(data)  # noqa: SLF001
    return value if isinstance(value, dict) else {}


def _read_live_state(payload: dict[str, object], config_dir: str) -> dict[str, object]:
    """Return the live state of this session; of a new one only the settings of all sessions.

    Who pays for a new session, or for one that another account paid before, is not known yet, so
    no account's label or limits are shown.
    """
    session, folder = payload.get("session_id"), os.path.join(config_dir, "session-health")
    account = payload_log.find_account(config_dir)[0]
    names = [f"{session}.json"] if recorder.is_safe(session) else []
    for name in [*names, SHARED]:
        data = writer.read_file(os.path.join(folder, name), PAGE_BYTES_MAX, os.O_NOFOLLOW)
        value = recorder._decode_json(data)  # noqa: SLF001
        if isinstance(value, dict):
            launch = value.get("launch") if name != SHARED else None
            if isinstance(launch, dict) and launch.get("account", "") == account:
                return value
            return {key: value[key] for key in ("thresholds", "statusline") if key in value}
    return {}


def _terminal_width(arguments: list[str]) -> int:
    """Return the columns: from an argument or variable, else of the agent's terminal."""
    widths = [word.partition("=")[2] for word in arguments if word.startswith("--width=")]
    widths += [os.environ.get(name, "") for name in ("FLIGHTLOG_STATUSLINE_WIDTH", "COLUMNS")]
    for text in widths:
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
    """End this process after `seconds`; print the shortest line if none was printed."""

    def stop(*_: object) -> None:
        if not printed:
            os.write(1, b"flightlog\n")
        os._exit(0)

    _signal.signal(_signal.SIGALRM, stop)
    _signal.setitimer(_signal.ITIMER_REAL, seconds)
