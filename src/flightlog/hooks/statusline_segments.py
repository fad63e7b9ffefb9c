"""Render the status line: segments of a template, shortened until they fit.

Foreign text (labels, model and branch names) is made inert. Runs as a script, like `recorder`.
"""

import os
import time

from flightlog.hooks import writer

TEMPLATE = (
    "{profile} | {model} | {context} | {cost} | {burn} | {five} | {week} | {models} | {spend} | "
    "{cache} | {worktree} | {git} | {pr} | {alerts}"
)
OLD_S = 600.0  # burn rate and forecast of an older live state would mislead
IDLE_S = 120.0  # the burn rate of a session that did nothing for longer is not shown
# The client compacts where less than this is left of the window: 20,000 tokens for its answer and
# 13,000 to spare (2.0.76 to 2.1.325), so at 167,000 of 200,000 and at 967,000 of a million.
RESERVED_TOKENS = 33_000
NEAR_ISSUE = "Context near compaction"
NEAR_PERCENT = 70.0  # of that limit: early enough to finish a step before compaction
# The order in which segments are shortened, then dropped, when the line is too wide.
DROPPED = tuple(
    "forecast today project worktree cache pr models week git burn spend five profile cost model "
    "alerts context".split()
)

_RED, _YELLOW, _GREEN, _DIM = "31", "33", "32", "2"
_MODEL_LIMIT = "seven_day_"  # then the model, as in "seven_day_opus"
_LABEL_CHARS_MAX = 24  # a profile label leaves room for the other segments

JsonObject = dict[str, object]


class StatusStyle:
    """The width of the line, whether it has color, and the current time."""

    def __init__(self, width: int, color: bool, now_s: float) -> None:  # noqa: FBT001 - a value
        self.width, self.color, self.now_s = width, color, now_s


class StatusSegment:
    """A part of the line: its long form, its short form, its color."""

    def __init__(self, long: str, short: str = "", color: str = "") -> None:
        self.forms, self.color = (long, short or long), color


def render_line(payload: JsonObject, page: JsonObject, style: StatusStyle) -> str:
    """Return the line; empty if there is nothing to show."""
    return render_widths(payload, page, [style])[0]


def render_widths(payload: JsonObject, page: JsonObject, styles: list[StatusStyle]) -> list[str]:
    """Return the line in the width of each style, all at the time of the first."""
    made = {name: make(payload, page, styles[0]) for name, make in _MAKERS.items()}
    segments = {name: segment for name, segment in made.items() if segment is not None}
    parts = parse_template(_text(_value_at(page, "statusline", "template")) or TEMPLATE)
    return [_fit_to_width(parts, segments, style) for style in styles]


def _fit_to_width(
    parts: list[tuple[str, str]], segments: dict[str, StatusSegment], style: StatusStyle
) -> str:
    shown = {name: 0 for name, _ in parts if name in segments}
    plain = _join_segments(parts, segments, shown, color=False)
    for form in (1, 2):
        for name in DROPPED:
            if len(plain) <= style.width:
                break
            if name in shown and len(shown) > 1:
                shown[name] = form
                if form == 2:
                    del shown[name]
                plain = _join_segments(parts, segments, shown, color=False)
    if len(plain) > style.width:
        return plain[: max(style.width - 1, 1)] + "…"
    return _join_segments(parts, segments, shown, color=style.color)


def parse_template(template: str) -> list[tuple[str, str]]:
    """Return the placeholders of the template, each with the text before it."""
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
    parts: list[tuple[str, str]],
    segments: dict[str, StatusSegment],
    shown: dict[str, int],
    *,
    color: bool,
) -> str:
    line = ""
    for name, before in parts:
        if name in shown:
            text = segments[name].forms[shown[name]]
            code = segments[name].color if color else ""
            line += before if line else before.lstrip(" |·-")
            line += f"\x1b[{code}m{text}\x1b[0m" if code else text
    return line


def _profile_segment(_: JsonObject, page: JsonObject, __: StatusStyle) -> StatusSegment | None:
    label = _text(_value_at(page, "launch", "label"))
    label = label or _text(_value_at(page, "launch", "authProfile"))
    if not label:
        return None
    return StatusSegment(_clean_text(label, _LABEL_CHARS_MAX), _clean_text(label, 8), _DIM)


def _model_segment(payload: JsonObject, page: JsonObject, __: StatusStyle) -> StatusSegment | None:
    name = _text(_value_at(payload, "model", "display_name"))
    name = name or _text(_value_at(payload, "model", "id"))
    name = _clean_text(name or _text(_value_at(page, "model", "value")), 40)
    return StatusSegment(name, name[:12]) if name else None


def _context_segment(payload: JsonObject, page: JsonObject, _: StatusStyle) -> StatusSegment | None:
    size = _number(_value_at(payload, "context_window", "context_window_size"))
    window = payload.get("context_window")
    use = _value_at(window, "current_usage")
    # The client reports null while its context has no response: at the start, after a compaction.
    is_empty = isinstance(window, dict) and "current_usage" in window and use is None
    if size and isinstance(use, dict):
        kinds = ("input", "output", "cache_creation_input", "cache_read_input")
        share = _number(_value_at(page, "thresholds", "compactionPercent"))
        used = sum(_number(use.get(f"{kind}_tokens")) for kind in kinds)
        percent = context_percent(used, compaction_point(size, share))
    elif not is_empty and _value_at(page, "context", "percentUsed") is not None:
        percent = round(_number(_value_at(page, "context", "percentUsed")))
    else:
        return StatusSegment("ctx 0%", color=_DIM) if size else None
    near = _number(_value_at(page, "thresholds", "contextWarningPercent")) or NEAR_PERCENT
    text = f"ctx {percent}%"
    if percent >= near:
        color = _RED if percent >= 90 else _YELLOW
        return StatusSegment(f"{text} near compaction", f"{text}!", color)
    return StatusSegment(text, color=_GREEN)


def compaction_point(window_tokens: float, share: float = 0.0) -> int:
    """Return how many tokens fit before compaction; `share` is a person's own percentage."""
    own = window_tokens * share / 100
    return int(own or max(window_tokens - RESERVED_TOKENS, window_tokens / 2))


def context_percent(used_tokens: float, point: int) -> int:
    """Return how full the context is, at most 100, rounded as everywhere."""
    return min(round(100 * used_tokens / point), 100) if point > 0 else 0


def _cost_segment(payload: JsonObject, _: JsonObject, __: StatusStyle) -> StatusSegment | None:
    usd = _value_at(payload, "cost", "total_cost_usd")
    return StatusSegment(f"${_number(usd):.2f}") if isinstance(usd, int | float) else None


def _burn_rate_segment(_: JsonObject, page: JsonObject, style: StatusStyle) -> StatusSegment | None:
    rate = _number(_value_at(page, "billing", "burnRatePerHour"))
    last = _value_at(page, "metadata", "lastActivity") or _value_at(page, "billing", "lastFetched")
    is_shown = _is_fresh(page, style) and style.now_s - _number(last) / 1000 <= IDLE_S
    return StatusSegment(f"${rate:.2f}/h", color=_DIM) if rate and is_shown else None


def _today_segment(_: JsonObject, page: JsonObject, style: StatusStyle) -> StatusSegment | None:
    usd = _value_at(page, "billing", "costToday")
    is_shown = isinstance(usd, int | float) and _is_fresh(page, style)
    return StatusSegment(f"today ${_number(usd):.2f}") if is_shown else None


def _forecast_segment(_: JsonObject, page: JsonObject, style: StatusStyle) -> StatusSegment | None:
    at_ms = _number(_value_at(page, "billing", "forecast", "exhaustedAt"))
    if at_ms / 1000 <= style.now_s or not _is_fresh(page, style):
        return None
    at = time.strftime("%H:%M", time.localtime(at_ms / 1000))
    return StatusSegment(f"out at {at}", color=_YELLOW)


def _limit_segment(
    name: str, clock: str, keys: tuple[str, str], inputs: tuple[JsonObject, JsonObject, StatusStyle]
) -> StatusSegment | None:
    """Return a rate limit with its reset: the payload's or the account's, whichever is fuller.

    An idle client repeats those of its last response, when other sessions may have used more.
    """
    payload, page, style = inputs
    own = _value_at(payload, "rate_limits", keys[0])
    other = _value_at(page, "billing", "limits", keys[1])
    running = []
    for limit, percent_key, reset_key, unit_s in (
        (own, "used_percentage", "resets_at", 1),
        (other, "usedPercent", "resetsAt", 1000),
    ):
        percent = _percent_at(limit, percent_key)
        reset_s = _number(_value_at(limit, reset_key)) / unit_s
        if percent is not None and (not reset_s or reset_s > style.now_s):
            running.append((percent, reset_s))
    if not running:
        return None
    percent, reset_s = max(running)
    at = time.strftime(clock, time.localtime(reset_s))
    until = f" until {at}" if reset_s else ""
    short = f"{name} {percent:.0f}%"
    return StatusSegment(short + until, short, _percent_color(percent))


def _model_limits_segment(
    payload: JsonObject, _: JsonObject, style: StatusStyle
) -> StatusSegment | None:
    """Return the weekly limits of single models, the fullest one first."""
    limits = _value_at(payload, "rate_limits")
    found = []
    for key in limits if isinstance(limits, dict) else ():
        percent = _percent_at(_value_at(limits, key), "used_percentage")
        resets_s = _number(_value_at(limits, key, "resets_at"))
        is_running = not resets_s or resets_s > style.now_s
        if key.startswith(_MODEL_LIMIT) and percent is not None and is_running:
            found.append((percent, _clean_text(key.removeprefix(_MODEL_LIMIT).title(), 12)))
    if not found:
        return None
    found.sort(reverse=True)
    texts = [f"{name} 7d {percent:.0f}%" for percent, name in found[:3]]
    return StatusSegment(" ".join(texts), texts[0], _percent_color(found[0][0]))


def _spend_segment(payload: JsonObject, _: JsonObject, style: StatusStyle) -> StatusSegment | None:
    """Return how much of a gateway's spend limit is used."""
    limit = _value_at(payload, "rate_limits", "spend_limit")
    percent = _percent_at(limit, "used_percentage")
    resets_s = _number(_value_at(limit, "resets_at"))
    if percent is None or (resets_s and resets_s <= style.now_s):
        return None
    text = f"spend {percent:.0f}%"
    used, most = _number(_value_at(limit, "used_usd")), _number(_value_at(limit, "limit_usd"))
    period = _clean_text(_text(_value_at(limit, "period")), 8)
    long = f"spend ${used:.2f} of ${most:.0f} {period}".rstrip() if most else text
    return StatusSegment(long, text, _percent_color(percent))


def _cache_segment(payload: JsonObject, _: JsonObject, style: StatusStyle) -> StatusSegment | None:
    """Return how long the prompt cache stays warm, and how much of the prompts it served."""
    expires_at = _value_at(payload, "prompt_cache", "expires_at")
    if not isinstance(expires_at, int | float):
        return None
    left_s = _number(expires_at) - style.now_s
    ratio = _value_at(payload, "prompt_cache", "hit_ratio")
    served = f" {100 * ratio:.0f}%" if isinstance(ratio, int | float) and 0 <= ratio <= 1 else ""
    if left_s <= 0:
        return StatusSegment(f"cache{served} cold", "cache cold", _YELLOW)
    left = f"{left_s / 60:.0f}m" if left_s >= 60 else f"{left_s:.0f}s"
    return StatusSegment(f"cache{served} {left}", f"cache {left}", _DIM)


def _pull_request_segment(
    payload: JsonObject, _: JsonObject, __: StatusStyle
) -> StatusSegment | None:
    number = _value_at(payload, "pr", "number")
    if not isinstance(number, int):
        return None
    name = f"!{number}" if _value_at(payload, "pr", "kind") == "mr" else f"#{number}"
    state = _clean_text(_text(_value_at(payload, "pr", "review_state")).replace("_", " "), 20)
    color = {"approved": _GREEN, "changes requested": _RED}.get(state, _DIM)
    return StatusSegment(f"{name} {state}".rstrip(), name, color)


def _worktree_segment(payload: JsonObject, _: JsonObject, __: StatusStyle) -> StatusSegment | None:
    other = _value_at(payload, "workspace", "git_worktree")
    name = _clean_text(_text(_value_at(payload, "worktree", "name")) or _text(other), 24)
    return StatusSegment(f"wt {name}", f"wt {name[:8]}", _DIM) if name else None


def _percent_color(percent: float) -> str:
    return _RED if percent >= 90 else _YELLOW if percent >= 70 else _DIM


def _git_segment(payload: JsonObject, page: JsonObject, _: StatusStyle) -> StatusSegment | None:
    folder = _text(_value_at(payload, "workspace", "current_dir")) or _text(payload.get("cwd"))
    branch = _clean_text(_read_branch(folder) if os.path.isabs(folder) else "", 40)
    if not branch:
        return None
    if _text(_value_at(page, "git", "branch")) == branch:
        branch += "*" if _number(_value_at(page, "git", "dirty")) else ""
        for sign, key in (("↑", "ahead"), ("↓", "behind")):
            count = int(_number(_value_at(page, "git", key)))
            branch += f"{sign}{count}" if count else ""
    return StatusSegment(branch, branch[:14], _DIM)


def _read_branch(folder: str) -> str:
    """Return the branch that is checked out, from the HEAD file; git is not run."""
    for _ in range(folder.count("/") + 1):
        git_dir = os.path.join(folder, ".git")
        if os.path.exists(git_dir):
            head = _read_text(os.path.join(git_dir, "HEAD"))
            if not head and (link := _read_text(git_dir)).startswith("gitdir:"):
                head = _read_text(os.path.join(folder, link[7:].strip(), "HEAD"))
            _, is_branch, branch = head.rpartition("refs/heads/")
            return branch.strip() if is_branch else head.strip()[:8]
        folder = os.path.dirname(folder)
    return ""


def _read_text(path: str) -> str:
    return writer.read_file(path, 4096).decode("utf-8", "replace")


def _alerts_segment(_: JsonObject, page: JsonObject, __: StatusStyle) -> StatusSegment | None:
    # The context segment says what NEAR_ISSUE says, from the payload, which is newer than the page.
    listed = _value_at(page, "health", "issues")
    listed = listed if isinstance(listed, list) else []
    issues = [_clean_text(_text(one), 40) for one in listed if one and one != NEAR_ISSUE]
    if not issues:
        return None
    critical = _value_at(page, "health", "status") == "critical"
    color = _RED if critical else _YELLOW
    return StatusSegment("! " + ", ".join(issues[:3]), f"!{len(issues)}", color)


def _project_segment(payload: JsonObject, _: JsonObject, __: StatusStyle) -> StatusSegment | None:
    folder = _text(_value_at(payload, "workspace", "project_dir"))
    return StatusSegment(_clean_text(os.path.basename(folder), 30)) if folder else None


_MAKERS = {
    "profile": _profile_segment,
    "model": _model_segment,
    "context": _context_segment,
    "cost": _cost_segment,
    "burn": _burn_rate_segment,
    "today": _today_segment,
    "forecast": _forecast_segment,
    "five": lambda *inputs: _limit_segment("5h", "%H:%M", ("five_hour", "fiveHour"), inputs),
    "week": lambda *inputs: _limit_segment("7d", "%a %H:%M", ("seven_day", "sevenDay"), inputs),
    "models": _model_limits_segment,
    "spend": _spend_segment,
    "cache": _cache_segment,
    "pr": _pull_request_segment,
    "worktree": _worktree_segment,
    "git": _git_segment,
    "alerts": _alerts_segment,
    "project": _project_segment,
}
WORDS = tuple(_MAKERS)


def _is_fresh(page: JsonObject, style: StatusStyle) -> bool:
    return style.now_s - _number(_value_at(page, "billing", "lastFetched")) / 1000 < OLD_S


def _value_at(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _percent_at(value: object, key: str) -> float | None:
    number = _value_at(value, key)
    return float(number) if isinstance(number, int | float) and 0 <= number <= 10_000 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0


def _clean_text(text: str, limit: int) -> str:
    """Return foreign text without control characters and line ends, at most `limit` characters."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: limit * 4]).strip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
