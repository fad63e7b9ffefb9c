"""Tracing: from one thing to all the others, nearest first, and what is named but not there.

Two things belong together when they stand at the same place of a session, or when one names the
other. Of each kind the nearest are told: at this very place, else in the same turn, else in the
same session. A place that is named and is not on record is a broken link, and is said.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog.app.tracing.commits import commits, sessions_of
from flightlog.app.tracing.ground import Ground, offered
from flightlog.model.address import Address, parse
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.links import HERE, KINDS, NEARNESS, SAME_COMMIT, SAME_SESSION, Link, near
from flightlog.model.session import Session
from flightlog.model.text import one_line
from flightlog.sources.git.lines import resolved, subject
from flightlog.views.session.timeline import iter_steps, iter_turns

_HUNK = re.compile(r"(?P<step>[^:]+#\d+\.\d+):(?P<rest>.+)")
_COMMIT = re.compile(r"[0-9a-f]{4,64}|HEAD(?:[~^]\d*)*")
_TITLE_WIDTH = 80


class Found(Struct, frozen=True):
    """A thing that belongs to the one asked about, and how near it is."""

    kind: str
    address: str
    title: str
    near: str


class Broken(Struct, frozen=True):
    """A link that leads nowhere: who names what, and what is wrong."""

    by: str
    names: str
    why: str


class Trace(Struct, frozen=True):
    """One thing and all that belongs to it, in the order of kinds."""

    start: Link
    found: tuple[Found, ...]
    broken: tuple[Broken, ...]

    def of(self, kind: str) -> list[Found]:
        """What of one kind was found."""
        return [each for each in self.found if each.kind == kind]


def trace(written: str, ground: Ground) -> Trace:
    """Follow `written` to everything else."""
    start = _named(ground, find(written, ground))
    broken: list[Broken] = []
    links: list[Link] = []
    for told in _sessions(ground, start, broken):
        links += _all(ground, told)
    exact = [link for link in links if (link.kind, link.address) == (start.kind, start.address) and link.at]
    places = _places([*exact] or [start], ground)
    links += [each for kind, address in start.names for each in _offers(ground, kind, address)]
    links += _offers(ground, start.kind, start.address) if start.kind == "commit" else []
    found = _nearest(start, places, links)
    further = _through_commits(ground, start, found)
    links += further
    found = _ordered([*found, *_found_beside(found, further)])
    named = {(each.kind, each.address) for each in found}
    checked = [start, *(link for link in links if (link.kind, link.address) in named)]
    broken += [one for link in checked for one in _broken(ground, link)]
    broken += [Broken("a room", "", trouble) for trouble in dict.fromkeys(ground.troubles)]
    return Trace(start, tuple(found), tuple(dict.fromkeys(broken)))


def find(written: str, ground: Ground) -> Link:
    """Return the one thing `written` names, of any kind or of the kind before a colon."""
    kind, _, rest = written.partition(":")
    if kind not in KINDS or not rest:
        kind, rest = "", written
    found = {(link.kind, link.address): link for link in _candidates(ground, rest) if kind in {"", link.kind}}
    exact = {key: link for key, link in found.items() if link.address == rest} or found
    if len(exact) > 1 and not kind:  # a commit and the row about it have the same name
        exact = {key: link for key, link in exact.items() if link.kind != "row"} or exact
    if not exact:
        raise NotFound(f"nothing here is called {written[:80]!r}", hint="flightlog trace --help")
    if len(exact) > 1:
        some = ", ".join(f"{one}:{address}" for one, address in list(exact)[:5])
        raise Invalid(f"{len(exact)} things begin with {written[:60]!r}", hint=f"write one of: {some}")
    return next(iter(exact.values()))


def _candidates(ground: Ground, written: str) -> Iterator[Link]:
    hunk = _HUNK.fullmatch(written)
    if hunk is not None:
        yield from _hunks_like(ground, hunk["step"], hunk["rest"])
        return
    for offer in ground.offers:
        yield from offer.find(written)
    if ground.repository is not None and _COMMIT.fullmatch(written):
        full = resolved(ground.repository, written)
        if full:
            yield Link("commit", full, subject(ground.repository, full))
    try:
        address = parse(written)
        yield _place(replace(address, session=ground.named(address.session)))
    except NotFound:
        return
    except Invalid:
        if "#" in written:
            raise


def _place(address: Address) -> Link:
    kind = "step" if address.step else "turn" if address.turn else "session"
    return Link(kind, str(address), at=(str(address),))


def _hunks_like(ground: Ground, step: str, rest: str) -> Iterator[Link]:
    at = parse(step)
    at = replace(at, session=ground.named(at.session))
    told = ground.session(at.session)
    wanted = f"{at}:{rest}"
    own = ground.edits(told) if told else ()
    yield from (Link("hunk", edit.address, at=(edit.at,)) for edit in own if edit.address.startswith(wanted))


def _named(ground: Ground, start: Link) -> Link:
    """What a thing has no place of its own for, the commit it names may have."""
    at = list(start.at)
    every = [(start.kind, start.address), *start.names] if start.kind == "commit" or not at else list(start.names)
    for kind, name in every:
        if kind == "commit" and ground.repository is not None:
            full = resolved(ground.repository, name)
            at += sessions_of(ground, full) if full else []
            rows = (row for row in _offers(ground, "commit", full or name) if not at)
            at += [place for row in rows for place in row.at]
    return replace(start, at=tuple(dict.fromkeys(at)))


def _sessions(ground: Ground, start: Link, broken: list[Broken]) -> Iterator[Session]:
    seen: set[str] = set()
    for at in start.at:
        try:
            name = ground.named(parse(at).session)
        except FlightlogError as error:
            broken.append(Broken(f"{start.kind}:{start.address}", at, error.message))
            continue
        told = ground.session(name) if name not in seen else None
        seen.add(name)
        if told is not None:
            yield told


def _all(ground: Ground, told: Session) -> list[Link]:
    edits = ground.edits(told)
    links = [Link("session", told.id, told.title, (told.id,))]
    for lane, turn in iter_turns(told):
        at = str(Address(told.id, turn.number, 0, lane))
        links.append(Link("turn", at, turn.text, (at,)))
    links += [
        Link("step", str(at), ", ".join(call.name for call in step.calls), (str(at),)) for at, step in iter_steps(told)
    ]
    hunks = {edit.address: edit for edit in edits}
    links += [Link("hunk", name, "", (edit.at,)) for name, edit in hunks.items()]
    return [*links, *commits(ground, told, edits), *offered(ground, told)]


def _offers(ground: Ground, kind: str, address: str) -> list[Link]:
    """Everything the rooms know under a name, or that names it."""
    every = [link for offer in ground.offers for link in offer.find(address)]
    return [link for link in every if link.kind == kind or any(name == address for _, name in link.names)]


def _places(links: Iterable[Link], ground: Ground) -> list[Address]:
    told = []
    for at in (at for link in links for at in link.at):
        try:
            address = parse(at)
            told.append(replace(address, session=ground.named(address.session)))
        except FlightlogError:
            continue
    return told


def _nearest(start: Link, places: Sequence[Address], links: Iterable[Link]) -> list[Found]:
    best: dict[tuple[str, str], Found] = {}
    for link in links:
        how = HERE if _names(start, link) else _how(places, link)
        key = (link.kind, link.address)
        if how and key != (start.kind, start.address):
            known = best.get(key)
            if known is None or NEARNESS.index(how) < NEARNESS.index(known.near):
                best[key] = Found(link.kind, link.address, one_line(link.title, _TITLE_WIDTH), how)
    return _ordered(list(best.values()))


def _ordered(found: Sequence[Found]) -> list[Found]:
    """Of each kind the nearest, in the order of kinds."""
    told = []
    for kind in KINDS:
        own = [each for each in found if each.kind == kind]
        nearest = min((NEARNESS.index(each.near) for each in own), default=0)
        told += [each for each in own if NEARNESS.index(each.near) == nearest]
    return told


def _through_commits(ground: Ground, start: Link, found: Sequence[Found]) -> list[Link]:
    """What other sessions have to do with the same commits, where something is not known from its own."""
    if {each.kind for each in found} | {start.kind} >= KINDS.keys():
        return []
    seen = {each.address for each in found if each.kind == "session"} | {parse(at).session for at in start.at}
    links: list[Link] = []
    for commit in [each.address for each in found if each.kind == "commit" and each.near != SAME_SESSION]:
        steps = [parse(at) for at in sessions_of(ground, commit)]
        for name in dict.fromkeys(at.session for at in steps if at.session not in seen):
            seen.add(name)
            told = ground.session(name)
            own = _all(ground, told) if told else []
            links += [link for link in own if _how(steps, link) == HERE]
    return links


def _found_beside(found: Sequence[Found], further: Iterable[Link]) -> list[Found]:
    known = {(each.kind, each.address) for each in found}
    beside = [link for link in further if (link.kind, link.address) not in known]
    return [Found(each.kind, each.address, one_line(each.title, _TITLE_WIDTH), SAME_COMMIT) for each in beside]


def _names(one: Link, other: Link) -> bool:
    return (other.kind, other.address) in one.names or (one.kind, one.address) in other.names


def _how(places: Sequence[Address], link: Link) -> str:
    told = set()
    for at in link.at:
        try:
            told |= {near(place, parse(at)) for place in places}
        except Invalid:
            continue
    return next((each for each in NEARNESS if each in told), "")


def _broken(ground: Ground, link: Link) -> Iterator[Broken]:
    """What a link names that is not there."""
    by = f"{link.kind}:{link.address}"
    for at in link.at:
        why = _missing(ground, at)
        if why:
            yield Broken(by, at, why)
    for kind, name in link.names:
        if kind == "commit":
            there = ground.repository is not None and bool(resolved(ground.repository, name))
        else:
            there = bool(_offers(ground, kind, name))
        if not there:
            yield Broken(by, f"{kind}:{name}", "not here" if kind != "commit" else "no such commit in this clone")


def _missing(ground: Ground, at: str) -> str:
    try:
        address = parse(at)
        told = ground.session(ground.named(address.session))
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
