"""Record one hook event: append the unchanged payload as one line to the session's file.

    <home>/sessions/<agent>/<session-id>/hooks.jsonl
    {"v":1,"id":"…","at_ms":…,"agent":"claude-code","event":"Stop","payload":{…as it came…}}

A line of a repository's own hook says `"by":"project"`, one of the plugin's `"by":"plugin"`. If two
of the user's hook, the repository's and the plugin's run for one event, the second one finds the
line of the first and writes none.

A payload that is not JSON is stored as base64 under `raw`; one that is too long for a line goes
to `<home>/spool` and its line says so. The environment is never written: it holds the API key.
Runs as a script and imports only small modules (`json` and `signal` double the time).
"""

import _json
import _signal  # type: ignore[import-not-found]
import binascii
import os
import time

from flightlog.hooks import writer

# The agent waits for its hooks, and people notice a second.
HARD_STOP_S = 1.0
SAVE_S = 4.0  # the agent gives a hook five
BEHIND_S = 5.0  # a stalled disk recovers in that time, or the record is lost
LINE_BYTES_MAX = 16 << 20  # as in `store.jsonl`
SETTLE = frozenset({"Stop", "SubagentStop", "PreCompact", "SessionEnd"})
SAVE = frozenset({"SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure"})
# Settled too where training rows are collected, so that a lost machine loses no prompt and no
# finished step.
CAPTURE = frozenset({"UserPromptSubmit", "PostToolUse", "PostToolUseFailure"})
TWICE_MS = 10_000  # two hooks of one event start together; loading flightlog takes a second
_BY = b'"by":"'
_ORIGINS = {"--project": "project", "--plugin": "plugin"}  # by argument
OFF = frozenset({"0", "false", "no", "off"})  # as in `dataset.state`

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_CHUNK_BYTES = 1 << 20  # bytes per read of stdin
_HEAD_BYTES = 4096  # agents write the names first


class _StrictJsonContext:
    """The options of the scanner of `json`; `int` rejects NaN and Infinity, which are not JSON."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, int
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner reads this attribute


def main(arguments: list[str]) -> bool:
    """Record the event on stdin, then save the work tree and settle if it is due.

    Return whether there was an event.
    """
    umask = os.umask(0o077)
    home = writer.find_data_dir(os.environ)
    _release_agent_after(HARD_STOP_S, home)
    agent = next((word for word in arguments if is_safe(word)), "claude-code")
    try:
        now_ms = time.time_ns() // 1_000_000
        origin = next((_ORIGINS[word] for word in arguments if word in _ORIGINS), "")
        recorded = record_event(home, agent, now_ms, origin)
    except Exception:  # noqa: BLE001 - the hook's main: count the loss and let the agent go on
        writer.count_lost(home)
        _cancel_alarm()
        return True
    if recorded is None:  # the caller goes on in this process, with its own time and files
        os.umask(umask)
        _cancel_alarm()
        return False
    session, event, cwd, call, subagent = recorded
    directory = os.path.join(home, "sessions", agent, session)
    is_installed = origin != "plugin"  # the plugin has the hook alone, not the package
    if event in SAVE and cwd and is_installed and os.path.exists(os.path.join(home, "tracked")):
        from flightlog.hooks import settle_gate  # noqa: PLC0415 - only where a directory is tracked

        if root := settle_gate.find_tracked_root(home, cwd):
            _stop_after(SAVE_S)
            settle_gate.save_tree(root, session, call, subagent)
    collects = event in SETTLE | CAPTURE and collects_rows(cwd)
    if event in SETTLE or collects:
        from flightlog.hooks import settle_gate  # noqa: PLC0415 - most events settle nothing

        patience_s = settle_gate.PATIENCE_ROWS_S.get(event, 0.0) if collects else 0.0
        if "--inline" in arguments and event in SETTLE:
            patience_s = settle_gate.PATIENCE_INLINE_S
        # A repository's own hook loads all of flightlog first, and the agent waited for that too.
        patience_s = max(patience_s - time.process_time(), 0.0)
        _stop_after(patience_s or HARD_STOP_S)
        command = settle_gate.find_command(is_installed=is_installed)
        program = settle_gate.settle_command(session, command, is_end=event == "SessionEnd")
        is_prompt = event == "UserPromptSubmit"
        debounce_s = settle_gate.PROMPT_S if is_prompt else settle_gate.DEBOUNCE_S
        if command:  # otherwise a later `flightlog settle` archives the session
            settle_gate.run_settle_once(directory, program, patience_s, debounce_s)
    _cancel_alarm()
    return True


def record_event(
    home: str, agent: str, at_ms: int, origin: str = ""
) -> "tuple[str, str, str, str, str] | None":  # quoted: the plugin runs on Python 3.9 too
    """Record one event from stdin; return its session, name, directory, tool call and thread.

    `origin` is "project" for a repository's own hook, "plugin" for the plugin's. Returns None if
    stdin is empty.
    """
    data, is_whole = _read_stdin(LINE_BYTES_MAX)
    if not data:
        return None
    payload = _decode_json(data) if is_whole else None
    names = payload if isinstance(payload, dict) else _scan_for_names(data)
    # Copilot CLI gives one event, permissionRequest, with names of its own.
    session = _safe_session_name(names.get("session_id") or names.get("sessionId"))
    name = names.get("hook_event_name") or names.get("hookName")
    event = str(name) if is_safe(name) else "unknown"
    stamp = f"{at_ms:x}-{os.urandom(8).hex()}"
    start = f'{{"v":1,"id":"{stamp}","at_ms":{at_ms},"agent":"{agent}","event":"{event}",'.encode()
    start += _BY + origin.encode() + b'",' if origin else b""
    if payload is not None:
        # A line end can only be between tokens: inside a string it is not JSON.
        body = b'"payload":' + data.strip().replace(b"\r", b" ").replace(b"\n", b" ")
    else:
        body = b'"raw":"' + binascii.b2a_base64(data, newline=False) + b'"' if is_whole else b""
    spool = "" if body and len(start) + len(body) < LINE_BYTES_MAX else f"{session}.{stamp}.json"
    directory = os.path.join(home, "sessions", agent, session)
    if not os.path.isdir(directory):
        writer.make_dir(directory)
        writer.add_lost(os.path.join(home, "lost"), 0)
    values = [names.get(key) for key in ("cwd", "tool_use_id", "agent_id")]
    cwd, call, subagent = (x if isinstance(x, str) and "\0" not in x else "" for x in values)
    names_of_files = ("own-hook", "plugin-hook", "hooks.jsonl")
    own_hook, plugin_hook, log = (os.path.join(directory, name) for name in names_of_files)
    if origin == "project":
        _note_once(own_hook, os.environ.get("CLAUDE_PROJECT_DIR") or cwd)
    elif origin:
        _note_once(plugin_hook, "")

    def is_known(file: int) -> bool:
        has_other = origin or os.path.exists(own_hook) or os.path.exists(plugin_hook)
        return not spool and bool(has_other) and _is_recorded(file, start, body)

    line = start + (f'"truncated":true,"spool":"{spool}"'.encode() if spool else body) + b"}"
    writer.append_line(log, line, durable=event in SETTLE, is_known=is_known)
    if spool:
        _spool_payload(os.path.join(home, "spool"), spool, data)
    if event == "SessionStart" and agent == "claude-code":
        _log_start(home, names, at_ms)
    return session, event, cwd, call[:200], subagent[:200]


def _log_start(home: str, names: dict[str, object], at_ms: int) -> None:
    """Log the configuration directory, and who pays, for a session without a status line."""
    from flightlog.hooks import payload_log  # noqa: PLC0415 - once per start of a client

    config_dir = writer.find_config_dir(names.get("transcript_path"))
    launch = {key: names.get(key) for key in ("session_id", "transcript_path", "cwd")}
    if names.get("source") != "compact":  # which goes on with the account it has
        payload_log.append_payload(home, launch, config_dir, at_ms, is_start=True)
    writer.note_directory(home, config_dir)


def _is_recorded(file: int, start: bytes, body: bytes) -> bool:
    """Return whether another hook, the user's, the repository's or the plugin's, recorded this event."""
    length = 4 * len(body) + _CHUNK_BYTES
    lines = os.pread(file, length, max(0, os.fstat(file).st_size - length)).split(b"\n")
    return any(
        line.endswith(body + b"}")
        and _origin(line[: -len(body) - 1]) != _origin(start)
        and abs(_at_ms(line) - _at_ms(start)) < TWICE_MS
        for line in lines
    )


def _at_ms(line: bytes) -> int:
    digits = line.partition(b'"at_ms":')[2].partition(b",")[0]
    return int(digits) if digits.isdigit() else 0


def _origin(head: bytes) -> bytes:
    return head.partition(_BY)[2].partition(b'"')[0]


def _note_once(path: str, project: str) -> None:
    """Record once per session which repository's own settings, or that the plugin, call this hook.

    A repository's is the person's consent to write rows there.
    """
    if not os.path.exists(path):
        writer.append_line(path, os.fsencode(project), durable=False)


def collects_rows(folder: str) -> bool:
    """Return whether the repository of `folder` collects rows, as `dataset.state` does."""
    if os.environ.get("ML_COLLECTION_ENABLED", "").strip().lower() in OFF:
        return False
    while folder and os.path.isabs(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            marker = os.path.join(folder, ".git", "flightlog", "dataset", "collecting")
            tracked = os.path.join(folder, ".git-ml", "tracked")
            return os.path.isdir(tracked) or os.path.exists(marker)
        above = os.path.dirname(folder)
        folder = above if above != folder else ""
    return False


def is_safe(name: object) -> bool:
    """Return whether `name` is safe as a file name, by the rule of `model.addresses`."""
    if not isinstance(name, str) or not 0 < len(name) <= 128 or name[0] not in _LETTERS:
        return False
    return all(letter in _LETTERS or letter in "._-" for letter in name)


def _read_stdin(limit: int) -> tuple[bytes, bool]:
    """Return stdin up to `limit` bytes, and whether that was all."""
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
    """Return the JSON value in `data`; None if it is not JSON."""
    try:
        text = data.decode().strip()
        value, end = _json.make_scanner(_StrictJsonContext)(text, 0)  # type: ignore[arg-type]
    except (ValueError, StopIteration, RecursionError, SystemError):
        # SystemError: the scanner looks for the error class of `json`, which is not loaded.
        return None
    return value if end == len(text) else None


def _scan_for_names(data: bytes) -> dict[str, object]:
    """Return the session and event names of a payload that was not read whole."""
    head = data[:_HEAD_BYTES].decode("utf-8", "replace")
    names: dict[str, object] = {}
    for key in ("session_id", "hook_event_name"):
        value = head.partition(f'"{key}"')[2].lstrip(" :")
        names[key] = value[1:].partition('"')[0] if value.startswith('"') else ""
    return names


def _safe_session_name(name: object) -> str:
    if is_safe(name):
        return str(name)
    if not isinstance(name, str) or not name:
        return "unknown"
    import hashlib  # noqa: PLC0415 - slow to load, and no known agent sends such names

    return "sha256-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _spool_payload(directory: str, name: str, data: bytes) -> None:
    """Write a payload that is too long for a line, and the rest of stdin, to a file."""
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
    """Let the agent go on after `seconds`; a child finishes the record, or counts it as lost.

    Disks stall for seconds while other processes sync; a record is not lost for that, and the
    agent does not wait for it.
    """

    def continue_in_child(*_: object) -> None:
        if os.fork():
            os._exit(0)
        os.setsid()
        _signal.signal(_signal.SIGALRM, give_up)
        _signal.setitimer(_signal.ITIMER_REAL, BEHIND_S)

    def give_up(*_: object) -> None:
        # The disk may hang: counting the loss gets a moment, then the kernel ends this process.
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        _signal.setitimer(_signal.ITIMER_REAL, 0.05)
        writer.count_lost(home)
        os._exit(0)

    _signal.signal(_signal.SIGALRM, continue_in_child)
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def _cancel_alarm() -> None:
    """Take back the limit: an alarm while the interpreter ends would kill it, which is no exit 0."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)


def _stop_after(seconds: float) -> None:
    """End this process after `seconds`: work after the record may be cut short."""
    _signal.signal(_signal.SIGALRM, lambda *_: os._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)
