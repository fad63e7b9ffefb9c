"""Log who pays when a client starts, and the payloads of its status line, at most one in 2 s.

    <home>/sessions/<agent>/<session-id>/status.jsonl
    {"v":1,"id":"…","at_ms":…,"agent":"claude-code","launch":{…},"payload":{…}}

`launch` says how the session was started and which account pays: a few named variables, and a
one-way fingerprint of the account or key. The environment itself is never written. Runs as a
script, like `recorder`.
"""

import _json
import os

from flightlog.hooks import recorder, writer

AGENT = "claude-code"
EVERY_MS = 2_000  # the agent calls several times a second; the live state needs less
TAIL_BYTES = 1 << 16  # a record has some kilobytes
ACCOUNTS_BYTES_MAX = 16 << 20  # the agent's own file grows with its projects, to a few megabytes

_NAMED = {
    "alias": ("CLAUDE_ALIAS", "CLAUDE_LAUNCH_ALIAS"),
    "profile": ("CLAUDE_AUTH_PROFILE",),
    "tmux_pane": ("TMUX_PANE",),
    "tmux": ("TMUX",),
}
# Credentials in the order the client looks; they are secrets and only fingerprints are written.
_KEYS = {
    "ANTHROPIC_AUTH_TOKEN": "Token",
    "ANTHROPIC_API_KEY": "API key",
    "CLAUDE_CODE_OAUTH_TOKEN": "OAuth token",
}
KEY_CHARS_LEAST = 8  # four characters of a shorter one would say too much
_CLOUDS = {"CLAUDE_CODE_USE_BEDROCK": "bedrock", "CLAUDE_CODE_USE_VERTEX": "vertex"}
_LOGGED = tuple(
    "model context_window rate_limits cost workspace version effort prompt_cache".split()
)
_TICKING = ("total_duration_ms", "total_api_duration_ms")


def append_payload(
    home: str, payload: dict[str, object], config_dir: str, at_ms: int, *, is_start: bool = False
) -> "str | None":  # quoted: the plugin runs on Python 3.9 too
    """Append the payload and return the account's fingerprint; None if nothing was written.

    Not written is a payload if the last one was equal, or was just written and has the same cost.
    A payload with a new cost is always written, because no other payload may follow it, and one of
    the hook at a client's start, because another account may pay and no status line may be shown.
    """
    session = payload.get("session_id")
    if not recorder.is_safe(session):
        return None
    folder = os.path.join(home, "sessions", AGENT, str(session))
    path = os.path.join(folder, "status.jsonl")
    last, is_recent = (None, False) if is_start else _last_payload(path, at_ms)
    if last is not None and (
        _comparable_fields(last) == _comparable_fields(payload)
        or (is_recent and _payload_cost(last) == _payload_cost(payload))
    ):
        return None
    launch = _launch_facts(config_dir)
    head = f'{{"v":1,"id":"{at_ms:x}-{os.urandom(8).hex()}","at_ms":{at_ms},"agent":"{AGENT}",'
    names = [name for name in payload if name in _LOGGED or name.endswith(("_id", "_path", "cwd"))]
    fields = {name: payload[name] for name in names}
    line = head + f'"launch":{_to_json(launch)},"payload":{_to_json(fields)}}}'
    writer.make_dir(folder)
    writer.append_line(path, line.encode("utf-8", "replace"), durable=False)
    _mark_session(os.path.join(home, "live"), str(session), config_dir)
    writer.note_directory(home, config_dir)
    return str(launch["account"])


def _last_payload(path: str, at_ms: int) -> "tuple[dict[str, object] | None, bool]":
    """Return the payload that was logged last, if any, and whether that was just now."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None, False
    try:
        stat = os.fstat(file)
        tail = os.pread(file, TAIL_BYTES, max(0, stat.st_size - TAIL_BYTES))
    finally:
        os.close(file)
    record = recorder._decode_json(tail.rstrip(b"\n").rpartition(b"\n")[2])  # noqa: SLF001
    payload = record.get("payload") if isinstance(record, dict) else None
    is_recent = 0 <= at_ms - stat.st_mtime_ns // 1_000_000 < EVERY_MS
    return (payload if isinstance(payload, dict) and payload else None), is_recent


def _payload_cost(payload: dict[str, object]) -> object:
    cost = payload.get("cost")
    return cost.get("total_cost_usd") if isinstance(cost, dict) else None


def _comparable_fields(payload: dict[str, object]) -> list[object]:
    """Return the logged fields without the durations, which change with the clock."""
    fields = (payload.get(name) for name in _LOGGED)
    return [
        {key: field[key] for key in field if key not in _TICKING}
        if isinstance(field, dict)
        else field
        for field in fields
    ]


def _launch_facts(config_dir: str) -> dict[str, object]:
    account, account_name = find_account(config_dir)
    facts: dict[str, object] = {"config_dir": config_dir, "account": account, "name": account_name}
    for name, variables in _NAMED.items():
        values = (os.environ.get(variable) for variable in variables)
        value = next(filter(None, values), "")
        if recorder.is_safe(value) or name.startswith("tmux"):
            facts[name] = value[: 200 if name == "tmux" else 64]
    pid = os.environ.get("CLAUDE_PID", "")
    if pid.isdecimal():
        facts["pid"], facts["pid_started"] = int(pid), _process_start_ticks(pid)
    return facts


def find_account(config_dir: str) -> tuple[str, str]:
    """Return a one-way fingerprint of the paying account, and its name; empty if unknown.

    A key is named by its last four characters, as the vendor's console shows it.
    """
    for variable, name in _CLOUDS.items():
        if (os.environ.get(variable) or "0").lower() not in recorder.OFF:
            return name, name.title()
    # Beside `~/.claude` the client's own file is in the directory above; nowhere else.
    above = [os.path.dirname(config_dir)] if os.path.basename(config_dir) == ".claude" else []
    paths = [os.path.join(folder, ".claude.json") for folder in (config_dir, *above)]
    states = [writer.read_file(path, ACCOUNTS_BYTES_MAX) for path in paths]
    for variable, name in _KEYS.items():
        secret = os.environ.get(variable, "")
        if secret and not (name == "API key" and _is_declined(secret, states)):
            shown = f" …{secret[-4:]}" if len(secret) >= KEY_CHARS_LEAST else ""
            return "key-" + _fingerprint_secret(secret), name + shown
    for data in states:
        account = _find_string(data, b'"accountUuid"')
        if account:
            organization = _find_string(data, b'"organizationUuid"')
            plan = _find_string(data, b'"organizationType"').removeprefix("claude_")
            shown = _find_string(data, b'"emailAddress"') or (plan and f"{plan.title()} plan")
            return "oauth-" + _fingerprint_secret(f"{account}/{organization}"), shown
    return "", ""


def _is_declined(key: str, states: list[bytes]) -> bool:
    """Return whether the person declined the key in the dialog of the client in a terminal."""
    if os.environ.get("CLAUDE_CODE_ENTRYPOINT") != "cli":  # another one does not ask
        return False
    answers = [data.partition(b'"customApiKeyResponses"')[2] for data in states]
    declined = [data.partition(b'"rejected"')[2].partition(b"]")[0] for data in answers]
    return any(f'"{key[-20:]}"'.encode("utf-8", "replace") in keys for keys in declined)


def _find_string(data: bytes, key: bytes) -> str:
    value = data.partition(key)[2][:200].lstrip(b" :\t\r\n")
    return value[1:].partition(b'"')[0].decode("ascii", "replace") if value.startswith(b'"') else ""


def _fingerprint_secret(secret: str) -> str:
    import _blake2  # noqa: PLC0415 - `hashlib` loads ten times as much

    data = secret.encode("utf-8", "replace")
    return str(_blake2.blake2b(data, digest_size=6, person=b"flightlog").hexdigest())


def _process_start_ticks(pid: str) -> int:
    """Return when a process started, which tells it from a later process with the same pid."""
    fields = writer.read_file(f"/proc/{pid}/stat", 4096).rpartition(b")")[2].split()
    return int(fields[19]) if fields else 0


def _mark_session(folder: str, session: str, config_dir: str) -> None:
    """Write the configuration directory to a file named by the session, for the collector."""
    os.makedirs(folder, 0o700, exist_ok=True)  # a mark need not survive a power cut
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(os.path.join(folder, session), flags, 0o600)
    try:
        os.write(file, config_dir.encode("utf-8", "surrogateescape"))
    finally:
        os.close(file)


def _to_json(value: object) -> str:
    """Return a decoded JSON value as JSON, without loading `json`."""
    if isinstance(value, str):
        return str(_json.encode_basestring_ascii(value))
    if isinstance(value, dict):
        pairs = (f"{_to_json(str(key))}:{_to_json(item)}" for key, item in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_to_json, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return repr(value)
