"""Why the prompt cache was missed, and what that cost: a verdict and causes for every request.

The verdict is the client's own rule, tried with 2.1.325: of two requests in a row, the smaller
prompt should be read from the cache; 5 % and 2,000 tokens less are a miss. Causes have the
client's own names. They come from comparing the two requests as the client logged them; without
such a log only the model, the effort and the time between them can be compared.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise, zip_longest

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analysis.requests import ModelRequest, RequestStart
from flightlog.model.exchange import LoggedRequest, RequestShape
from flightlog.model.text import one_line
from flightlog.model.usage import HOUR_MS, ClientCacheReport, Usage
from flightlog.usage.prices import context_band, price_in_band

MISS_SHARE = 0.95  # of the smaller prompt; less read from the cache is a miss
MISS_TOKENS_MIN = 2_000  # and so many tokens less
PARTIAL_SHARE = 0.05  # of the smaller prompt; more read makes the miss partial
TTL_MS = {"5m": 300_000, "1h": HOUR_MS}
# The client reports these two as a change of its mode, not of the betas.
AUTO_MODE_BETAS = {"afk-mode-2026-01-31", "dangerous-tool-use-2026-09-03"}
UNKNOWN = "unknown"
_NAMES_SHOWN = 4  # tools of one change
_LINE_CHARS = 80  # of a changed line of the system prompt
# What can make a change, of what a transcript records.
_DOERS = {
    "model_changed": ("/model", "/config"),
    "effort_changed": ("/effort", "/model", "/config"),
    "thinking_mode_changed": ("/effort", "/model", "/config"),
    "tools_changed": ("/mcp", "/plugin", "/reload-plugins", "/agents", "/permissions"),
    "system_prompt_changed": ("/output-style", "/memory", "/add-dir", "/config", "hook"),
    "messages_rewritten": ("/rewind", "rewind", "hook"),
}


class CacheVerdict(enum.Enum):
    """What the prompt cache did for a request."""

    COLD = "cold"
    REBUILD = "rebuild"
    MISS = "miss"
    PARTIAL = "partial"
    HIT = "hit"

    @property
    def is_miss(self) -> bool:
        """Whether tokens were paid for again without need."""
        return self in {CacheVerdict.MISS, CacheVerdict.PARTIAL}


class CacheCause(Struct, frozen=True, array_like=True):
    """A cause of a miss in the client's words, and what changed in ours."""

    name: str
    detail: str = ""


class CacheOutcome(Struct, frozen=True, array_like=True):
    """What the prompt cache did for one request, why, and what it cost more than a hit.

    `done_by` is who or what made the change: a slash command, a hook, a resume. `extra_cost_usd`
    is None where the model has no known price.
    """

    address: str
    thread: str
    at_ms: int | None
    model: str
    verdict: CacheVerdict
    changes: tuple[CacheCause, ...] = ()
    done_by: tuple[str, ...] = ()
    recached_tokens: int = 0
    extra_cost_usd: float | None = 0.0
    message_id: str = ""

    @property
    def session(self) -> str:
        """The session that the request is in."""
        return self.address.partition("#")[0].partition("@")[0]

    @property
    def causes(self) -> tuple[str, ...]:
        """The names of the causes."""
        return tuple(change.name for change in self.changes)


class CacheTotals(Struct, frozen=True):
    """The sum of some outcomes; the cost is None if no miss has a known price.

    `sessions` are those with a miss.
    """

    requests: int = 0
    misses: int = 0
    sessions: int = 0
    rebuilds: int = 0
    recached_tokens: int = 0
    extra_cost_usd: float | None = 0.0
    causes: dict[str, int] = {}


def judge_requests(requests: Iterable[ModelRequest]) -> list[CacheOutcome]:
    """Return the outcome of each request; those of a thread follow each other by time."""
    threads = groupby(requests, key=lambda request: request.thread)
    return [outcome for _, thread in threads for outcome in _judge_thread(list(thread))]


def total_outcomes(outcomes: Iterable[CacheOutcome]) -> CacheTotals:
    """Return the sum of `outcomes`: misses, tokens written again, their cost and causes."""
    rows = list(outcomes)
    misses = [outcome for outcome in rows if outcome.verdict.is_miss]
    causes = dict(Counter(name for outcome in misses for name in outcome.causes))
    costs = [miss.extra_cost_usd for miss in misses if miss.extra_cost_usd is not None]
    return CacheTotals(
        len(rows),
        len(misses),
        len({miss.session for miss in misses}),
        sum(outcome.verdict is CacheVerdict.REBUILD for outcome in rows),
        sum(miss.recached_tokens for miss in misses),
        sum(costs) if costs or not misses else None,
        dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
    )


def list_without_hits(outcomes: Sequence[CacheOutcome]) -> list[CacheOutcome]:
    """Return the outcomes that are no hits; nothing if all are cold, as without any caching."""
    rows = [outcome for outcome in outcomes if outcome.verdict is not CacheVerdict.HIT]
    return rows if {outcome.verdict for outcome in outcomes} != {CacheVerdict.COLD} else []


def compare_with_client(
    outcomes: Iterable[CacheOutcome], client: ClientCacheReport
) -> tuple[CacheTotals, tuple[str, ...]]:
    """Return our totals of the requests that the client counted, and how they differ from its own.

    The client counts the main thread since it started, and takes its first request as cold.
    """
    main = (outcome for outcome in outcomes if not outcome.thread)
    known = [outcome for outcome in main if (outcome.at_ms or 0) <= client.at_ms]
    window = known[-client.requests :] if client.requests else []
    ours = total_outcomes(window[1:])
    pairs = [
        ("requests", len(window), client.requests),
        ("misses", ours.misses, client.misses),
        ("rebuilds", ours.rebuilds, client.rebuilds),
        ("tokens written again", ours.recached_tokens, client.recached_tokens),
        *((f"misses by {name}", ours.causes.get(name, 0), n) for name, n in client.causes.items()),
    ]
    differing = (pair for pair in pairs if pair[1] != pair[2])
    differences = [
        f"{name}: we count {n:,}, the client {theirs:,}" for name, n, theirs in differing
    ]
    return ours, tuple(differences)


def _judge_thread(requests: Sequence[ModelRequest]) -> Iterator[CacheOutcome]:
    if not requests:
        return
    yield _make_outcome(requests[0], CacheVerdict.COLD)
    has_cached = _uses_cache(requests[0].usage)
    ttl = ""
    for before, request in pairwise(requests):
        ttl = _granted_ttl(before) or ttl
        verdict = _judge_request(before, request) if has_cached else CacheVerdict.COLD
        has_cached = has_cached or _uses_cache(request.usage)
        if verdict.is_miss:
            yield _explain_miss(before, request, verdict, ttl)
        else:
            yield _make_outcome(request, verdict)


def _uses_cache(usage: Usage) -> bool:
    return bool(usage.cache_read_tokens or usage.cache_write_tokens)


def _judge_request(before: ModelRequest, request: ModelRequest) -> CacheVerdict:
    if request.begins in {RequestStart.FIRST, RequestStart.CLEARED}:
        return CacheVerdict.COLD
    expected = min(before.usage.prompt_tokens, request.usage.prompt_tokens)
    read = request.usage.cache_read_tokens
    if read >= MISS_SHARE * expected or expected - read < MISS_TOKENS_MIN:
        return CacheVerdict.HIT
    if request.begins is RequestStart.COMPACTED:
        return CacheVerdict.REBUILD
    return CacheVerdict.PARTIAL if read >= PARTIAL_SHARE * expected else CacheVerdict.MISS


def _make_outcome(request: ModelRequest, verdict: CacheVerdict) -> CacheOutcome:
    return CacheOutcome(request.address, request.thread, request.at_ms, request.model, verdict)


def _explain_miss(
    before: ModelRequest, request: ModelRequest, verdict: CacheVerdict, ttl: str
) -> CacheOutcome:
    changes = _find_causes(before, request, ttl) if request.has_cache_writes else ()
    tokens, cost = _price_again(before, request)
    return replace(
        _make_outcome(request, verdict),
        changes=changes,
        done_by=tuple(_find_doers(request, changes)),
        recached_tokens=tokens,
        extra_cost_usd=cost,
        message_id=request.message_id,
    )


def _price_again(before: ModelRequest, request: ModelRequest) -> tuple[int, float | None]:
    """Return the tokens that were paid for again, and how much more that was than reading them.

    These are the tokens written to the cache, as the client counts them. If the agent reports no
    writes, they are the part of the repeated prompt that was charged as new input.
    """
    usage = request.usage
    tokens = usage.cache_write_tokens
    again = Usage(cache_write_tokens=tokens, cache_write_1h_tokens=usage.cache_write_1h_tokens)
    if not request.has_cache_writes:
        expected = min(before.usage.prompt_tokens, usage.prompt_tokens)
        tokens = min(expected - usage.cache_read_tokens, usage.input_tokens)
        again = Usage(input_tokens=tokens)
    model, at_ms = request.model, request.at_ms
    band = context_band(model, usage.prompt_tokens, at_ms)
    paid = price_in_band(model, again, at_ms, band).usd
    hit = price_in_band(model, Usage(cache_read_tokens=tokens), at_ms, band).usd
    return tokens, None if paid is None or hit is None else paid - hit


def _find_causes(before: ModelRequest, request: ModelRequest, ttl: str) -> tuple[CacheCause, ...]:
    old, new = before.logged, request.logged
    compared = _compare_logged(old, new) if old and new else _compare_counted(before, request)
    changes = list(compared)
    if changes:
        return tuple(changes)
    gap_ms = (request.at_ms or 0) - (before.at_ms or 0) if request.at_ms and before.at_ms else 0
    life = ttl or "5m"
    if gap_ms > TTL_MS[life]:
        text = f"{gap_ms / 60_000:,.0f} minutes without request"
        return (CacheCause(f"ttl_expired_{life}", text),)
    return (CacheCause("likely_server_side" if old and new else UNKNOWN),)


def _granted_ttl(request: ModelRequest) -> str:
    """Return the life time of what the request wrote: as granted, else as asked for."""
    usage = request.usage
    if usage.cache_write_tokens:
        return "1h" if usage.cache_write_1h_tokens >= usage.cache_write_tokens else "5m"
    ttls = request.logged.cache_ttls if request.logged else ()
    return next((ttl for ttl in TTL_MS if ttl in ttls), "")


def _compare_counted(before: ModelRequest, request: ModelRequest) -> Iterator[CacheCause]:
    if before.model != request.model:
        yield CacheCause("model_changed", f"{before.model} to {request.model}")
    if before.effort and request.effort and before.effort != request.effort:
        yield CacheCause("effort_changed", f"{before.effort} to {request.effort}")


def _compare_logged(old: LoggedRequest, new: LoggedRequest) -> Iterator[CacheCause]:
    """Yield what differs between two requests, in the client's order."""
    if old.shape and new.shape and old.shape_id != new.shape_id:
        yield from _compare_shapes(old.shape, new.shape)
    if old.model != new.model:
        yield CacheCause("model_changed", f"{old.model} to {new.model}")
    if old.cache_marks != new.cache_marks:
        marks = " ".join(new.cache_marks) or "none"
        yield CacheCause("cache_scope_or_ttl_changed", f"cache marks now: {marks}")
    changed_betas = {*old.betas} ^ {*new.betas}
    if others := changed_betas - AUTO_MODE_BETAS:
        text = _list_changes(others & {*new.betas}, others & {*old.betas})
        yield CacheCause("betas_changed", text)
    for name in ("effort", "thinking_mode", "thinking_display"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield CacheCause(f"{name}_changed", f"{was or 'none'} to {now or 'none'}")
    if changed_betas & AUTO_MODE_BETAS:
        entered = "entered" if AUTO_MODE_BETAS & {*new.betas} else "left"
        yield CacheCause("auto_mode_changed", f"auto mode {entered}")
    if old.shape and new.shape and _find_deferred(old.shape) != _find_deferred(new.shape):
        now, was = _find_deferred(new.shape), _find_deferred(old.shape)
        yield CacheCause("defer_loading_changed", _list_changes(now - was, was - now))
    if new.kept_messages < new.previous_messages:
        place = f"from message {new.kept_messages + 1} of {new.previous_messages} on"
        yield CacheCause("messages_rewritten", place)


def _compare_shapes(old: RequestShape, new: RequestShape) -> Iterator[CacheCause]:
    if old.system != new.system:
        delta = new.system_chars - old.system_chars
        line = _first_changed_line("\n".join(old.system), "\n".join(new.system))
        yield CacheCause("system_prompt_changed", f"{delta:+,} characters: {line}")
    added, removed = new.tools.keys() - old.tools.keys(), old.tools.keys() - new.tools.keys()
    common = new.tools.keys() & old.tools.keys()
    redefined = {name for name in common if new.tools[name].digest != old.tools[name].digest}
    if added or removed or redefined or list(old.tools) != list(new.tools):
        yield CacheCause("tools_changed", _list_changes(added, removed, redefined))


def _first_changed_line(old: str, new: str) -> str:
    """Return the first line that differs, as it is now, or as it was if it is gone."""
    pairs = zip_longest(old.splitlines(), new.splitlines())
    was, now = next(((was, now) for was, now in pairs if was != now), ("", ""))
    return one_line(f"- {was}" if now is None else f"+ {now}", _LINE_CHARS)


def _list_changes(added: set[str], removed: set[str], redefined: Iterable[str] = ()) -> str:
    """Return what was added, removed and redefined; the tools of an MCP server are one item."""
    groups = {"added": added, "removed": removed, "redefined": redefined}
    parts = [f"{verb} {_list_names(names)}" for verb, names in groups.items() if names]
    return "; ".join(parts) or "another order"


def _list_names(names: Iterable[str]) -> str:
    """Return the names, those of one MCP server as one item."""
    servers: dict[str, list[str]] = {}
    for name in sorted(names):
        server = name.split("__")[1] if name.startswith("mcp__") else name
        servers.setdefault(server, []).append(name)
    items = [
        own[0] if len(own) == 1 else f"{len(own)} tools of the MCP server {server}"
        for server, own in servers.items()
    ]
    more = [f"{len(items) - _NAMES_SHOWN} more"] if len(items) > _NAMES_SHOWN else []
    return ", ".join(items[:_NAMES_SHOWN] + more)


def _find_deferred(shape: RequestShape) -> set[str]:
    return {name for name, tool in shape.tools.items() if tool.is_deferred}


def _find_doers(request: ModelRequest, changes: Iterable[CacheCause]) -> Iterator[str]:
    """Yield what may have made the changes: a resume, commands, a rewind, a hook."""
    if request.begins is RequestStart.RESUMED:
        yield "resume"
    doers = {doer for change in changes for doer in _DOERS.get(change.name, ())}
    yield from (event for event in request.preceded_by if event.partition(" ")[0] in doers)
