"""What the status line says: segments of a small template, shortened until they fit.

Pure: payload, page and look in, text out. Text of others (labels, model and branch names) is
shown, never followed. Runs as a script, like `recorder`.
"""

import os
import time

TEMPLATE = "{profile} | {model} | {context} | {cost} | {burn} | {five} | {week} | {git} | {alerts}"
OLD_S = 600.0
COMPACTION_PERCENT = 78.0
NEAR_PERCENT = 70.0
# What goes first when there is too little room: first its long form, then all of it.
DROPPED = (
    "forecast",
    "today",
    "project",
    "week",
    "git",
    "burn",
    "five",
    "profile",
    "cost",
    "model",
    "alerts",
    "context",
)

_RED, _YELLOW, _GREEN, _DIM = "31", "33", "32", "2"
_LABEL_CHARS_MAX = 24


class Look:
    """How wide, in colour or not, and when."""

    def __init__(self, width: int, color: bool, now_s: float) -> None:  # noqa: FBT001 - a value
        """Keep the three."""
        self.width, self.color, self.now_s = width, color, now_s


class Segment:
    """A piece of the line: its long form, its short form, its colour."""

    def __init__(self, long: str, short: str = "", color: str = "") -> None:
        """Take the long form for the short one where there is none."""
        self.forms, self.color = (long, short or long), color


def render(payload: dict[str, object], page: dict[str, object], look: Look) -> str:
    """The line; empty when there is nothing to say at all."""
    return renders(payload, page, [look])[0]


def renders(payload: dict[str, object], page: dict[str, object], looks: list[Look]) -> list[str]:
    """The line in several widths, of one moment."""
    segments = {name: made for name, make in _MAKERS.items() if (made := make(payload, page, looks[0])) is not None}
    parts = _parts(_text(_at(page, "statusline", "template")) or TEMPLATE)
    return [_fitted(parts, segments, look) for look in looks]


def _fitted(parts: list[tuple[str, str]], segments: dict[str, Segment], look: Look) -> str:
    shown = {name: 0 for name, _ in parts if name in segments}
    plain = _joined(parts, segments, shown, color=False)
    for form in (1, 2):
        for name in DROPPED:
            if len(plain) <= look.width:
                break
            if name in shown and len(shown) > 1:
                shown[name] = form
                if form == 2:
                    del shown[name]
                plain = _joined(parts, segments, shown, color=False)
    if len(plain) > look.width:
        return plain[: max(look.width - 1, 1)] + "…"
    return _joined(parts, segments, shown, color=look.color)


def _parts(template: str) -> list[tuple[str, str]]:
    """The template as placeholders, each with the text before it."""
    parts, before = [], ""
    for piece in _clean(template, 400).split("{"):
        name, closed, after = piece.partition("}")
        if closed:
            parts.append((name.strip(), before))
            before = after
        else:
            before += piece
    return parts


def _joined(parts: list[tuple[str, str]], segments: dict[str, Segment], shown: dict[str, int], *, color: bool) -> str:
    said = ""
    for name, before in parts:
        if name in shown:
            text = segments[name].forms[shown[name]]
            code = segments[name].color if color else ""
            said += (before if said else before.lstrip(" |·-")) + (f"\x1b[{code}m{text}\x1b[0m" if code else text)
    return said


def _profile(_: dict[str, object], page: dict[str, object], __: Look) -> Segment | None:
    label = _text(_at(page, "launch", "label")) or _text(_at(page, "launch", "authProfile"))
    return Segment(_clean(label, _LABEL_CHARS_MAX), _clean(label, 8), _DIM) if label else None


def _model(payload: dict[str, object], page: dict[str, object], __: Look) -> Segment | None:
    name = _text(_at(payload, "model", "display_name")) or _text(_at(payload, "model", "id"))
    name = _clean(name or _text(_at(page, "model", "value")), 40)
    return Segment(name, name[:12]) if name else None


def _context(payload: dict[str, object], page: dict[str, object], _: Look) -> Segment | None:
    size = _number(_at(payload, "context_window", "context_window_size"))
    use = _at(payload, "context_window", "current_usage")
    if size and isinstance(use, dict):
        names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        share = _number(_at(page, "thresholds", "compactionPercent")) or COMPACTION_PERCENT
        percent = 100 * sum(_number(use.get(name)) for name in names) / (size * share / 100)
    elif _at(page, "context", "percentUsed") is not None:
        percent = _number(_at(page, "context", "percentUsed"))
    else:
        return Segment("ctx 0%", color=_DIM) if size else None
    near = _number(_at(page, "thresholds", "contextWarningPercent")) or NEAR_PERCENT
    if percent >= near:
        return Segment(
            f"ctx {percent:.0f}% near compaction", f"ctx {percent:.0f}%!", _RED if percent >= 90 else _YELLOW
        )
    return Segment(f"ctx {percent:.0f}%", color=_GREEN)


def _cost(payload: dict[str, object], _: dict[str, object], __: Look) -> Segment | None:
    usd = _at(payload, "cost", "total_cost_usd")
    return Segment(f"${_number(usd):.2f}") if isinstance(usd, int | float) else None


def _burn(_: dict[str, object], page: dict[str, object], look: Look) -> Segment | None:
    rate = _number(_at(page, "billing", "burnRatePerHour"))
    return Segment(f"${rate:.2f}/h", color=_DIM) if rate and _fresh(page, look) else None


def _today(_: dict[str, object], page: dict[str, object], look: Look) -> Segment | None:
    usd = _at(page, "billing", "costToday")
    return Segment(f"today ${_number(usd):.2f}") if isinstance(usd, int | float) and _fresh(page, look) else None


def _forecast(_: dict[str, object], page: dict[str, object], look: Look) -> Segment | None:
    at_ms = _number(_at(page, "billing", "forecast", "exhaustedAt"))
    if at_ms / 1000 <= look.now_s or not _fresh(page, look):
        return None
    return Segment(f"out at {time.strftime('%H:%M', time.localtime(at_ms / 1000))}", color=_YELLOW)


def _five(payload: dict[str, object], page: dict[str, object], look: Look) -> Segment | None:
    return _window("5h", "%H:%M", ("five_hour", "fiveHour"), (payload, page, look))


def _week(payload: dict[str, object], page: dict[str, object], look: Look) -> Segment | None:
    return _window("7d", "%a %H:%M", ("seven_day", "sevenDay"), (payload, page, look))


def _window(
    name: str, clock: str, keys: tuple[str, str], given: tuple[dict[str, object], dict[str, object], Look]
) -> Segment | None:
    """A limit with its reset: the payload's own, else the one last seen in another session of this profile."""
    payload, page, look = given
    percent, reset_s = _at(payload, "rate_limits", keys[0], "used_percentage"), 0.0
    if isinstance(percent, int | float):
        reset_s = _number(_at(payload, "rate_limits", keys[0], "resets_at"))
    else:
        percent = _at(page, "billing", "limits", keys[1], "usedPercent")
        reset_s = _number(_at(page, "billing", "limits", keys[1], "resetsAt")) / 1000
        if not isinstance(percent, int | float) or reset_s <= look.now_s:
            return None
    color = _RED if percent >= 90 else _YELLOW if percent >= 70 else _DIM
    until = f" until {time.strftime(clock, time.localtime(reset_s))}" if reset_s > look.now_s else ""
    return Segment(f"{name} {percent:.0f}%{until}", f"{name} {percent:.0f}%", color)


def _git(payload: dict[str, object], page: dict[str, object], _: Look) -> Segment | None:
    folder = _text(_at(payload, "workspace", "current_dir")) or _text(payload.get("cwd"))
    branch = _clean(_branch(folder) if os.path.isabs(folder) else "", 40)
    if not branch:
        return None
    if _text(_at(page, "git", "branch")) == branch:
        branch += "*" if _number(_at(page, "git", "dirty")) else ""
        for sign, key in (("↑", "ahead"), ("↓", "behind")):
            count = int(_number(_at(page, "git", key)))
            branch += f"{sign}{count}" if count else ""
    return Segment(branch, branch[:14], _DIM)


def _branch(folder: str) -> str:
    """The branch checked out, read off git's own file; nothing is run."""
    for _ in range(40):
        place = os.path.join(folder, ".git")
        if os.path.exists(place):
            head = _read(os.path.join(place, "HEAD"))
            if not head and (said := _read(place)).startswith("gitdir:"):
                head = _read(os.path.join(folder, said[7:].strip(), "HEAD"))
            return head.rpartition("refs/heads/")[2].strip() if "refs/heads/" in head else head.strip()[:8]
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
    return ""


def _read(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, 4096).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def _alerts(_: dict[str, object], page: dict[str, object], __: Look) -> Segment | None:
    said = _at(page, "health", "issues")
    issues = [_clean(_text(each), 40) for each in said if each] if isinstance(said, list) else []
    if not issues:
        return None
    critical = _at(page, "health", "status") == "critical"
    return Segment("! " + ", ".join(issues[:3]), f"!{len(issues)}", _RED if critical else _YELLOW)


def _project(payload: dict[str, object], _: dict[str, object], __: Look) -> Segment | None:
    folder = _text(_at(payload, "workspace", "project_dir"))
    return Segment(_clean(os.path.basename(folder), 30)) if folder else None


_MAKERS = {
    "profile": _profile,
    "model": _model,
    "context": _context,
    "cost": _cost,
    "burn": _burn,
    "today": _today,
    "forecast": _forecast,
    "five": _five,
    "week": _week,
    "git": _git,
    "alerts": _alerts,
    "project": _project,
}


def _fresh(page: dict[str, object], look: Look) -> bool:
    return look.now_s - _number(_at(page, "billing", "lastFetched")) / 1000 < OLD_S


def _at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0


def _clean(text: str, most: int) -> str:
    """Foreign text that can only be shown: no control, no reordering, no line end."""
    kept = "".join(letter if letter.isprintable() else "?" for letter in text[: most * 4]).strip()
    return kept if len(kept) <= most else kept[: most - 1] + "…"
