"""Tracing: from one thing to all the others, nearest first, and what is named but not there.

Two things belong together when they stand at the same place of a session, or when one names the
other. Of each kind the nearest are told: at this very place, else in the same turn, else in the
same session. A place that is named and is not on record is a broken link, and is said.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.addresses import (
    HERE,
    KINDS,
    NEARNESS,
    SAME_COMMIT,
    SAME_SESSION,
    Address,
    TraceLink,
    parse_address,
    relation_between,
)
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.session import Session
from flightlog.model.text import one_line
from flightlog.store.git.history import commit_subject, resolve_commit
from flightlog.tracing.blame import commit_links, steps_behind_commit
from flightlog.tracing.providers import TraceContext, iter_provider_links
from flightlog.views.session.timeline import iter_steps, iter_turns

_HUNK = re.compile(r"(?P<step>[^:]+#\d+\.\d+):(?P<rest>.+)")
_COMMIT = re.compile(r"[0-9a-f]{4,64}|HEAD(?:[~^]\d*)*")
_TITLE_WIDTH = 80


class TracedItem(Struct, frozen=True):
    """A thing that belongs to the one asked about, and how near it is."""

    kind: str
    address: str
    title: str
    near: str


class BrokenLink(Struct, frozen=True):
    """A link that leads nowhere: who names what, and what is wrong."""

    by: str
    names: str
    why: str


class Trace(Struct, frozen=True):
    """One thing and all that belongs to it, in the order of kinds."""

    start: TraceLink
    found: tuple[TracedItem, ...]
    broken: tuple[BrokenLink, ...]

    def items_of_kind(self, kind: str) -> list[TracedItem]:
        """What of one kind was found."""
        return [each for each in self.found if each.kind == kind]


def build_trace(written: str, ground: TraceContext) -> Trace:
    """Follow `written` to everything else."""
    start = _add_commit_addresses(ground, find_link(written, ground))
    broken: list[BrokenLink] = []
    links: list[TraceLink] = []
    for told in _iter_sessions(ground, start, broken):
        links += _links_of_session(ground, told)
    exact = [link for link in links if (link.kind, link.address) == (start.kind, start.address) and link.at]
    places = _resolve_addresses([*exact] or [start], ground)
    links += [each for kind, address in start.names for each in _find_provider_links(ground, kind, address)]
    links += _find_provider_links(ground, start.kind, start.address) if start.kind == "commit" else []
    found = _nearest_items(start, places, links)
    further = _links_through_commits(ground, start, found)
    links += further
    found = _order_by_kind([*found, *_items_of_same_commit(found, further)])
    named = {(each.kind, each.address) for each in found}
    checked = [start, *(link for link in links if (link.kind, link.address) in named)]
    broken += [one for link in checked for one in _broken_links(ground, link)]
    broken += [BrokenLink("a room", "", trouble) for trouble in dict.fromkeys(ground.troubles)]
    return Trace(start, tuple(found), tuple(dict.fromkeys(broken)))


def find_link(written: str, ground: TraceContext) -> TraceLink:
    """Return the one thing `written` names, of any kind or of the kind before a colon."""
    kind, _, rest = written.partition(":")
    if kind not in KINDS or not rest:
        kind, rest = "", written
    found = {(link.kind, link.address): link for link in _iter_candidates(ground, rest) if kind in {"", link.kind}}
    exact = {key: link for key, link in found.items() if link.address == rest} or found
    if len(exact) > 1 and not kind:  # a commit and the row about it have the same name
        exact = {key: link for key, link in exact.items() if link.kind != "row"} or exact
    if not exact:
        raise NotFound(f"nothing here is called {written[:80]!r}", hint="flightlog trace --help")
    if len(exact) > 1:
        some = ", ".join(f"{one}:{address}" for one, address in list(exact)[:5])
        raise Invalid(f"{len(exact)} things begin with {written[:60]!r}", hint=f"write one of: {some}")
    return next(iter(exact.values()))


def _iter_candidates(ground: TraceContext, written: str) -> Iterator[TraceLink]:
    hunk = _HUNK.fullmatch(written)
    if hunk is not None:
        yield from _find_hunks(ground, hunk["step"], hunk["rest"])
        return
    for offer in ground.link_providers:
        yield from offer.find_links(written)
    if ground.repository is not None and _COMMIT.fullmatch(written):
        full = resolve_commit(ground.repository, written)
        if full:
            yield TraceLink("commit", full, commit_subject(ground.repository, full))
    try:
        address = parse_address(written)
        yield _link_for_address(replace(address, session=ground.resolve_session_id(address.session)))
    except NotFound:
        return
    except Invalid:
        if "#" in written:
            raise


def _link_for_address(address: Address) -> TraceLink:
    kind = "step" if address.step else "turn" if address.turn else "session"
    return TraceLink(kind, str(address), at=(str(address),))


def _find_hunks(ground: TraceContext, step: str, rest: str) -> Iterator[TraceLink]:
    at = parse_address(step)
    at = replace(at, session=ground.resolve_session_id(at.session))
    told = ground.find_session(at.session)
    wanted = f"{at}:{rest}"
    own = ground.edits_of_session(told) if told else ()
    yield from (TraceLink("hunk", edit.address, at=(edit.at,)) for edit in own if edit.address.startswith(wanted))


def _add_commit_addresses(ground: TraceContext, start: TraceLink) -> TraceLink:
    """What a thing has no place of its own for, the commit it names may have."""
    at = list(start.at)
    every = [(start.kind, start.address), *start.names] if start.kind == "commit" or not at else list(start.names)
    for kind, name in every:
        if kind == "commit" and ground.repository is not None:
            full = resolve_commit(ground.repository, name)
            at += steps_behind_commit(ground, full) if full else []
            rows = (row for row in _find_provider_links(ground, "commit", full or name) if not at)
            at += [place for row in rows for place in row.at]
    return replace(start, at=tuple(dict.fromkeys(at)))


def _iter_sessions(ground: TraceContext, start: TraceLink, broken: list[BrokenLink]) -> Iterator[Session]:
    seen: set[str] = set()
    for at in start.at:
        try:
            name = ground.resolve_session_id(parse_address(at).session)
        except FlightlogError as error:
            broken.append(BrokenLink(f"{start.kind}:{start.address}", at, error.message))
            continue
        told = ground.find_session(name) if name not in seen else None
        seen.add(name)
        if told is not None:
            yield told


def _links_of_session(ground: TraceContext, told: Session) -> list[TraceLink]:
    edits = ground.edits_of_session(told)
    links = [TraceLink("session", told.id, told.title, (told.id,))]
    for lane, turn in iter_turns(told):
        at = str(Address(told.id, turn.number, 0, lane))
        links.append(TraceLink("turn", at, turn.text, (at,)))
    links += [
        TraceLink("step", str(at), ", ".join(call.name for call in step.calls), (str(at),))
        for at, step in iter_steps(told)
    ]
    hunks = {edit.address: edit for edit in edits}
    links += [TraceLink("hunk", name, "", (edit.at,)) for name, edit in hunks.items()]
    return [*links, *commit_links(ground, told, edits), *iter_provider_links(ground, told)]


def _find_provider_links(ground: TraceContext, kind: str, address: str) -> list[TraceLink]:
    """Everything the rooms know under a name, or that names it."""
    every = [link for offer in ground.link_providers for link in offer.find_links(address)]
    return [link for link in every if link.kind == kind or any(name == address for _, name in link.names)]


def _resolve_addresses(links: Iterable[TraceLink], ground: TraceContext) -> list[Address]:
    told = []
    for at in (at for link in links for at in link.at):
        try:
            address = parse_address(at)
            told.append(replace(address, session=ground.resolve_session_id(address.session)))
        except FlightlogError:
            continue
    return told


def _nearest_items(start: TraceLink, places: Sequence[Address], links: Iterable[TraceLink]) -> list[TracedItem]:
    best: dict[tuple[str, str], TracedItem] = {}
    for link in links:
        how = HERE if _names_each_other(start, link) else _nearest_relation(places, link)
        key = (link.kind, link.address)
        if how and key != (start.kind, start.address):
            known = best.get(key)
            if known is None or NEARNESS.index(how) < NEARNESS.index(known.near):
                best[key] = TracedItem(link.kind, link.address, one_line(link.title, _TITLE_WIDTH), how)
    return _order_by_kind(list(best.values()))


def _order_by_kind(found: Sequence[TracedItem]) -> list[TracedItem]:
    """Of each kind the nearest, in the order of kinds."""
    told = []
    for kind in KINDS:
        own = [each for each in found if each.kind == kind]
        nearest = min((NEARNESS.index(each.near) for each in own), default=0)
        told += [each for each in own if NEARNESS.index(each.near) == nearest]
    return told


def _links_through_commits(ground: TraceContext, start: TraceLink, found: Sequence[TracedItem]) -> list[TraceLink]:
    """What other sessions have to do with the same commits, where something is not known from its own."""
    if {each.kind for each in found} | {start.kind} >= KINDS.keys():
        return []
    seen = {each.address for each in found if each.kind == "session"} | {parse_address(at).session for at in start.at}
    links: list[TraceLink] = []
    for commit in [each.address for each in found if each.kind == "commit" and each.near != SAME_SESSION]:
        steps = [parse_address(at) for at in steps_behind_commit(ground, commit)]
        for name in dict.fromkeys(at.session for at in steps if at.session not in seen):
            seen.add(name)
            told = ground.find_session(name)
            own = _links_of_session(ground, told) if told else []
            links += [link for link in own if _nearest_relation(steps, link) == HERE]
    return links


def _items_of_same_commit(found: Sequence[TracedItem], further: Iterable[TraceLink]) -> list[TracedItem]:
    known = {(each.kind, each.address) for each in found}
    beside = [link for link in further if (link.kind, link.address) not in known]
    return [TracedItem(each.kind, each.address, one_line(each.title, _TITLE_WIDTH), SAME_COMMIT) for each in beside]


def _names_each_other(one: TraceLink, other: TraceLink) -> bool:
    return (other.kind, other.address) in one.names or (one.kind, one.address) in other.names


def _nearest_relation(places: Sequence[Address], link: TraceLink) -> str:
    told = set()
    for at in link.at:
        try:
            told |= {relation_between(place, parse_address(at)) for place in places}
        except Invalid:
            continue
    return next((each for each in NEARNESS if each in told), "")


def _broken_links(ground: TraceContext, link: TraceLink) -> Iterator[BrokenLink]:
    """What a link names that is not there."""
    by = f"{link.kind}:{link.address}"
    for at in link.at:
        why = _describe_missing(ground, at)
        if why:
            yield BrokenLink(by, at, why)
    for kind, name in link.names:
        if kind == "commit":
            there = ground.repository is not None and bool(resolve_commit(ground.repository, name))
        else:
            there = bool(_find_provider_links(ground, kind, name))
        if not there:
            yield BrokenLink(by, f"{kind}:{name}", "not here" if kind != "commit" else "no such commit in this clone")


def _describe_missing(ground: TraceContext, at: str) -> str:
    try:
        address = parse_address(at)
        told = ground.find_session(ground.resolve_session_id(address.session))
    except FlightlogError as error:
        return error.message
    if told is None:
        return "its recording cannot be read"
    if not address.turn:
        return ""
    own = {(lane, turn.number): len(turn.steps) for lane, turn in iter_turns(told)}
    count = own.get((address.lane, address.turn))
    if count is None or not address.step:
        return "" if count is not None else "no such turn in the recording"
    numbers = {str(each) for each, _ in iter_steps(told)}
    return "" if str(replace(address, session=told.id)) in numbers else "no such step in the recording"
