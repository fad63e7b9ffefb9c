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


class StatusStyle:
    """How wide, in colour or not, and when."""

    def __init__(self, width: int, color: bool, now_s: float) -> None:  # noqa: FBT001 - a value
        """Keep the three."""
        self.width, self.color, self.now_s = width, color, now_s


class StatusSegment:
    """A piece of the line: its long form, its short form, its colour."""

    def __init__(self, long: str, short: str = "", color: str = "") -> None:
        """Take the long form for the short one where there is none."""
        self.forms, self.color = (long, short or long), color


def render_line(payload: dict[str, object], page: dict[str, object], look: StatusStyle) -> str:
    """The line; empty when there is nothing to say at all."""
    return render_widths(payload, page, [look])[0]


def render_widths(payload: dict[str, object], page: dict[str, object], looks: list[StatusStyle]) -> list[str]:
    """The line in several widths, of one moment."""
    segments = {name: made for name, make in _MAKERS.items() if (made := make(payload, page, looks[0])) is not None}
    parts = _parse_template(_text_or_empty(_value_at(page, "statusline", "template")) or TEMPLATE)
    return [_fit_to_width(parts, segments, look) for look in looks]


def _fit_to_width(parts: list[tuple[str, str]], segments: dict[str, StatusSegment], look: StatusStyle) -> str:
    shown = {name: 0 for name, _ in parts if name in segments}
    plain = _join_segments(parts, segments, shown, color=False)
    for form in (1, 2):
        for name in DROPPED:
            if len(plain) <= look.width:
                break
            if name in shown and len(shown) > 1:
                shown[name] = form
                if form == 2:
                    del shown[name]
                plain = _join_segments(parts, segments, shown, color=False)
    if len(plain) > look.width:
        return plain[: max(look.width - 1, 1)] + "…"
    return _join_segments(parts, segments, shown, color=look.color)


def _parse_template(template: str) -> list[tuple[str, str]]:
    """The template as placeholders, each with the text before it."""
    parts, before = [], ""
    for piece in _clean_text(template, 400).split("{"):
        name, closed, after = piece.partition("}")
        if closed:
            parts.append((name.strip(), before))
            before = after
        else:
            before += piece
    return parts


def _join_segments(
    parts: list[tuple[str, str]], segments: dict[str, StatusSegment], shown: dict[str, int], *, color: bool
) -> str:
    said = ""
    for name, before in parts:
        if name in shown:
            text = segments[name].forms[shown[name]]
            code = segments[name].color if color else ""
            said += (before if said else before.lstrip(" |·-")) + (f"\x1b[{code}m{text}\x1b[0m" if code else text)
    return said


def _profile_segment(_: dict[str, object], page: dict[str, object], __: StatusStyle) -> StatusSegment | None:
    label = _text_or_empty(_value_at(page, "launch", "label")) or _text_or_empty(
        _value_at(page, "launch", "authProfile")
    )
    return StatusSegment(_clean_text(label, _LABEL_CHARS_MAX), _clean_text(label, 8), _DIM) if label else None


def _model_segment(payload: dict[str, object], page: dict[str, object], __: StatusStyle) -> StatusSegment | None:
    name = _text_or_empty(_value_at(payload, "model", "display_name")) or _text_or_empty(
        _value_at(payload, "model", "id")
    )
    name = _clean_text(name or _text_or_empty(_value_at(page, "model", "value")), 40)
    return StatusSegment(name, name[:12]) if name else None


def _context_segment(payload: dict[str, object], page: dict[str, object], _: StatusStyle) -> StatusSegment | None:
    size = _number_or_zero(_value_at(payload, "context_window", "context_window_size"))
    use = _value_at(payload, "context_window", "current_usage")
    if size and isinstance(use, dict):
        names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        share = _number_or_zero(_value_at(page, "thresholds", "compactionPercent")) or COMPACTION_PERCENT
        percent = 100 * sum(_number_or_zero(use.get(name)) for name in names) / (size * share / 100)
    elif _value_at(page, "context", "percentUsed") is not None:
        percent = _number_or_zero(_value_at(page, "context", "percentUsed"))
    else:
        return StatusSegment("ctx 0%", color=_DIM) if size else None
    near = _number_or_zero(_value_at(page, "thresholds", "contextWarningPercent")) or NEAR_PERCENT
    if percent >= near:
        return StatusSegment(
            f"ctx {percent:.0f}% near compaction", f"ctx {percent:.0f}%!", _RED if percent >= 90 else _YELLOW
        )
    return StatusSegment(f"ctx {percent:.0f}%", color=_GREEN)


def _cost_segment(payload: dict[str, object], _: dict[str, object], __: StatusStyle) -> StatusSegment | None:
    usd = _value_at(payload, "cost", "total_cost_usd")
    return StatusSegment(f"${_number_or_zero(usd):.2f}") if isinstance(usd, int | float) else None


def _burn_rate_segment(_: dict[str, object], page: dict[str, object], look: StatusStyle) -> StatusSegment | None:
    rate = _number_or_zero(_value_at(page, "billing", "burnRatePerHour"))
    return StatusSegment(f"${rate:.2f}/h", color=_DIM) if rate and _is_fresh(page, look) else None


def _today_segment(_: dict[str, object], page: dict[str, object], look: StatusStyle) -> StatusSegment | None:
    usd = _value_at(page, "billing", "costToday")
    return (
        StatusSegment(f"today ${_number_or_zero(usd):.2f}")
        if isinstance(usd, int | float) and _is_fresh(page, look)
        else None
    )


def _forecast_segment(_: dict[str, object], page: dict[str, object], look: StatusStyle) -> StatusSegment | None:
    at_ms = _number_or_zero(_value_at(page, "billing", "forecast", "exhaustedAt"))
    if at_ms / 1000 <= look.now_s or not _is_fresh(page, look):
        return None
    return StatusSegment(f"out at {time.strftime('%H:%M', time.localtime(at_ms / 1000))}", color=_YELLOW)


def _five_hour_segment(payload: dict[str, object], page: dict[str, object], look: StatusStyle) -> StatusSegment | None:
    return _limit_segment("5h", "%H:%M", ("five_hour", "fiveHour"), (payload, page, look))


def _seven_day_segment(payload: dict[str, object], page: dict[str, object], look: StatusStyle) -> StatusSegment | None:
    return _limit_segment("7d", "%a %H:%M", ("seven_day", "sevenDay"), (payload, page, look))


def _limit_segment(
    name: str, clock: str, keys: tuple[str, str], given: tuple[dict[str, object], dict[str, object], StatusStyle]
) -> StatusSegment | None:
    """A limit with its reset: the payload's own, else the one last seen in another session of this profile."""
    payload, page, look = given
    percent, reset_s = _value_at(payload, "rate_limits", keys[0], "used_percentage"), 0.0
    if isinstance(percent, int | float):
        reset_s = _number_or_zero(_value_at(payload, "rate_limits", keys[0], "resets_at"))
    else:
        percent = _value_at(page, "billing", "limits", keys[1], "usedPercent")
        reset_s = _number_or_zero(_value_at(page, "billing", "limits", keys[1], "resetsAt")) / 1000
        if not isinstance(percent, int | float) or reset_s <= look.now_s:
            return None
    color = _RED if percent >= 90 else _YELLOW if percent >= 70 else _DIM
    until = f" until {time.strftime(clock, time.localtime(reset_s))}" if reset_s > look.now_s else ""
    return StatusSegment(f"{name} {percent:.0f}%{until}", f"{name} {percent:.0f}%", color)


def _git_segment(payload: dict[str, object], page: dict[str, object], _: StatusStyle) -> StatusSegment | None:
    folder = _text_or_empty(_value_at(payload, "workspace", "current_dir")) or _text_or_empty(payload.get("cwd"))
    branch = _clean_text(_read_branch(folder) if os.path.isabs(folder) else "", 40)
    if not branch:
        return None
    if _text_or_empty(_value_at(page, "git", "branch")) == branch:
        branch += "*" if _number_or_zero(_value_at(page, "git", "dirty")) else ""
        for sign, key in (("↑", "ahead"), ("↓", "behind")):
            count = int(_number_or_zero(_value_at(page, "git", key)))
            branch += f"{sign}{count}" if count else ""
    return StatusSegment(branch, branch[:14], _DIM)


def _read_branch(folder: str) -> str:
    """The branch checked out, read off git's own file; nothing is run."""
    for _ in range(40):
        place = os.path.join(folder, ".git")
        if os.path.exists(place):
            head = _read_file(os.path.join(place, "HEAD"))
            if not head and (said := _read_file(place)).startswith("gitdir:"):
                head = _read_file(os.path.join(folder, said[7:].strip(), "HEAD"))
            return head.rpartition("refs/heads/")[2].strip() if "refs/heads/" in head else head.strip()[:8]
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
    return ""


def _read_file(path: str) -> str:
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


def _alerts_segment(_: dict[str, object], page: dict[str, object], __: StatusStyle) -> StatusSegment | None:
    said = _value_at(page, "health", "issues")
    issues = [_clean_text(_text_or_empty(each), 40) for each in said if each] if isinstance(said, list) else []
    if not issues:
        return None
    critical = _value_at(page, "health", "status") == "critical"
    return StatusSegment("! " + ", ".join(issues[:3]), f"!{len(issues)}", _RED if critical else _YELLOW)


def _project_segment(payload: dict[str, object], _: dict[str, object], __: StatusStyle) -> StatusSegment | None:
    folder = _text_or_empty(_value_at(payload, "workspace", "project_dir"))
    return StatusSegment(_clean_text(os.path.basename(folder), 30)) if folder else None


_MAKERS = {
    "profile": _profile_segment,
    "model": _model_segment,
    "context": _context_segment,
    "cost": _cost_segment,
    "burn": _burn_rate_segment,
    "today": _today_segment,
    "forecast": _forecast_segment,
    "five": _five_hour_segment,
    "week": _seven_day_segment,
    "git": _git_segment,
    "alerts": _alerts_segment,
    "project": _project_segment,
}


def _is_fresh(page: dict[str, object], look: StatusStyle) -> bool:
    return look.now_s - _number_or_zero(_value_at(page, "billing", "lastFetched")) / 1000 < OLD_S


def _value_at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number_or_zero(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0


def _clean_text(text: str, most: int) -> str:
    """Foreign text that can only be shown: no control, no reordering, no line end."""
    kept = "".join(letter if letter.isprintable() else "?" for letter in text[: most * 4]).strip()
    return kept if len(kept) <= most else kept[: most - 1] + "…"
