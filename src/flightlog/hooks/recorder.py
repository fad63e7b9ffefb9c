"""Recording one hook event: the payload as it came, one line, whole, in the session's file.

    <home>/sessions/<agent>/<session-id>/hooks.jsonl
    {"v":1,"id":"…","at_ms":…,"agent":"claude-code","event":"Stop","payload":{…as it came…}}

What is not JSON is kept as base64 under `raw`; what is too long for a line goes whole to
`<home>/spool` and its line says so. The environment is never written: it holds the API key.
Runs as a script: library modules only, and the small ones (`json` and `signal` double the time).
"""

import _json
import _signal  # type: ignore[import-not-found]
import binascii
import os
import time

from flightlog.hooks import writer

HARD_STOP_S = 1.0
SAVE_S = 4.0  # the agent gives a hook five
BEHIND_S = 5.0
LINE_BYTES_MAX = 16 << 20
SETTLE = frozenset({"Stop", "SubagentStop", "PreCompact", "SessionEnd"})
# Only where training rows are collected, so that a machine that vanishes takes no finished step with it.
SAVE = frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure"})
CAPTURE = frozenset({"PostToolUse", "PostToolUseFailure"})

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 4096


class _StrictJsonContext:
    """How the scanner of `json` reads; `int` refuses NaN and its kin, which are not JSON."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, int
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner asks for it


def main(arguments: list[str]) -> None:
    """Record what stands on stdin, then start a settle when the event asks for one."""
    os.umask(0o077)
    home = writer.find_data_dir(os.environ)
    _release_agent_after(HARD_STOP_S, home)
    agent = next((word for word in arguments if is_safe(word)), "claude-code")
    try:
        recorded = record_event(home, agent, time.time_ns() // 1_000_000)
    except Exception:  # noqa: BLE001 - the hook's main: a loss is counted and the agent goes on
        writer.count_lost(home)
        return
    if recorded is None:
        return
    session, event, cwd, call, lane = recorded
    directory = os.path.join(home, "sessions", agent, session)
    if "--project" in arguments:
        _note_project(directory, os.environ.get("CLAUDE_PROJECT_DIR") or cwd)
    if event in SAVE and cwd and os.path.exists(os.path.join(home, "tracked")):
        from flightlog.hooks import settle_gate  # noqa: PLC0415 - only where a directory is tracked

        if root := settle_gate.find_tracked_root(home, cwd):
            _stop_after(SAVE_S)
            settle_gate.save_tree(root, session, call, lane)
    if event in SETTLE or (event in CAPTURE and collects_rows(cwd)):
        from flightlog.hooks import settle_gate  # noqa: PLC0415 - most events settle nothing

        waits = "--inline" in arguments and event in SETTLE
        patience_s = settle_gate.PATIENCE_S.get(event, settle_gate.PATIENCE_OTHERS_S) if waits else 0.0
        _stop_after(HARD_STOP_S + patience_s)
        settle_gate.run_settle_once(directory, settle_gate.settle_command(session), patience_s)


def record_event(home: str, agent: str, at_ms: int) -> tuple[str, str, str, str, str] | None:
    """Record one event from stdin; its session, name, directory, tool call and thread, or None when nothing came."""
    data, is_whole = _read_stdin(LINE_BYTES_MAX)
    if not data:
        return None
    payload = _decode_json(data) if is_whole else None
    names = payload if isinstance(payload, dict) else _scan_for_names(data)
    session, event = _safe_session_name(names.get("session_id")), _safe_event_name(names.get("hook_event_name"))
    stamp = f"{at_ms:x}-{os.urandom(8).hex()}"
    start = f'{{"v":1,"id":"{stamp}","at_ms":{at_ms},"agent":"{agent}","event":"{event}",'.encode()
    if payload is not None:
        # A line end can only stand between tokens: inside a string it would not be JSON.
        body = b'"payload":' + data.strip().replace(b"\r", b" ").replace(b"\n", b" ")
    else:
        body = b'"raw":"' + binascii.b2a_base64(data, newline=False) + b'"' if is_whole else b""
    spool = "" if body and len(start) + len(body) < LINE_BYTES_MAX else f"{session}.{stamp}.json"
    directory = os.path.join(home, "sessions", agent, session)
    if not os.path.isdir(directory):
        writer.make_dir(directory)
        writer.add_lost(os.path.join(home, "lost"), 0)
    line = start + (f'"truncated":true,"spool":"{spool}"'.encode() if spool else body) + b"}"
    writer.append_line(os.path.join(directory, "hooks.jsonl"), line, durable=event in SETTLE)
    if spool:
        _spool_payload(os.path.join(home, "spool"), spool, data)
    cwd, call, lane = (names.get(name) for name in ("cwd", "tool_use_id", "agent_id"))
    told = [each if isinstance(each, str) and "\0" not in each else "" for each in (cwd, call, lane)]
    return session, event, told[0], told[1][:200], told[2][:200]


def _note_project(directory: str, project: str) -> None:
    """Leave, once for a session, the repository whose own settings call this hook: consent to write rows there."""
    path = os.path.join(directory, "own-hook")
    if not os.path.exists(path):
        writer.append_line(path, os.fsencode(project), durable=False)


def collects_rows(folder: str) -> bool:
    """Whether the repository that holds `folder` collects training rows: the rule of `app.collecting`, in short."""
    while folder and os.path.isabs(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            own = os.path.join(folder, ".git", "flightlog", "dataset", "collecting")
            return os.path.isdir(os.path.join(folder, ".git-ml", "tracked")) or os.path.exists(own)
        above = os.path.dirname(folder)
        folder = above if above != folder else ""
    return False


def is_safe(name: object) -> bool:
    """The rule of `model.ids`: letters, digits, `.`, `_`, `-`, at most 128, a letter or digit first."""
    if not isinstance(name, str) or not 0 < len(name) <= 128 or name[0] not in _LETTERS:
        return False
    return all(letter in _LETTERS or letter in "._-" for letter in name)


def _read_stdin(limit: int) -> tuple[bytes, bool]:
    """Read stdin up to `limit` bytes and say whether that was all."""
    chunks: list[bytes] = []
    size = 0
    while size <= limit:
        chunk = os.read(0, _CHUNK_BYTES)
        if not chunk:
            return b"".join(chunks), True
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks), False


def _decode_json(data: bytes) -> object:
    """The JSON value in `data`; None when it is not one."""
    try:
        text = data.decode().strip()
        value, end = _json.make_scanner(_StrictJsonContext)(text, 0)  # type: ignore[arg-type]
    except (ValueError, StopIteration, RecursionError, SystemError):
        # SystemError: the scanner looks for the error of `json`, which nobody loaded.
        return None
    return value if end == len(text) else None


def _scan_for_names(data: bytes) -> dict[str, str]:
    """The names in a payload that could not be read whole; agents write them first."""
    head, found = data[:_HEAD_BYTES].decode("utf-8", "replace"), {}
    for key in ("session_id", "hook_event_name"):
        value = head.partition(f'"{key}"')[2].lstrip(" :")
        found[key] = value[1:].partition('"')[0] if value.startswith('"') else ""
    return found


def _safe_session_name(name: object) -> str:
    if is_safe(name):
        return str(name)
    if not isinstance(name, str) or not name:
        return "unknown"
    import hashlib  # noqa: PLC0415 - only for names nobody should send

    return "sha256-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _safe_event_name(name: object) -> str:
    return str(name) if is_safe(name) else "unknown"


def _spool_payload(directory: str, name: str, data: bytes) -> None:
    """Put a payload too long for a line, and the rest of stdin, into a file; `.part` until it is whole."""
    writer.make_dir(directory)
    path = os.path.join(directory, name)
    file = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :] or os.read(0, _CHUNK_BYTES)
    finally:
        os.close(file)
    os.rename(path + ".part", path)


def _release_agent_after(seconds: float, home: str) -> None:
    """Let the agent go on after `seconds`: the record is finished behind its back, or counted as lost.

    Disks stall for seconds when others sync; that is no reason to lose a record, nor to wait for it.
    """

    def let_go(*_: object) -> None:
        if os.fork():
            os._exit(0)
        os.setsid()
        _signal.signal(_signal.SIGALRM, give_up)
        _signal.setitimer(_signal.ITIMER_REAL, BEHIND_S)

    def give_up(*_: object) -> None:
        # The disk may be what hangs: counting the loss gets a moment, then the kernel ends us.
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        _signal.setitimer(_signal.ITIMER_REAL, 0.05)
        writer.count_lost(home)
        os._exit(0)

    _signal.signal(_signal.SIGALRM, let_go)
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def _stop_after(seconds: float) -> None:
    """End this process after `seconds`: what comes after the record may be cut short."""
    _signal.signal(_signal.SIGALRM, lambda *_: os._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)
