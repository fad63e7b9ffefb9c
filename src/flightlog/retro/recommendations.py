"""At most ten recommendations, from the patterns and the digests. Pure.

Every recommendation has a count, addresses, and an action. Its score is the larger of two shares:
of the conversations that it concerns, and of the spend. The best one of each kind comes in first,
so that a frequent kind cannot crowd out the others.

A share is given with its interval. "More" and "less" than in the period before is said only if the
two intervals do not overlap.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import one_line, pluralize
from flightlog.retro.actions import is_exact_rule
from flightlog.retro.analysis.digests import ConversationDigest, format_spent
from flightlog.retro.analysis.findings import FRUITLESS
from flightlog.retro.state import (
    Pattern,
    Recommendation,
    RecommendedAction,
    describe_share,
    estimate_share,
)
from flightlog.sources.chat_exports.reader import DECODERS

RECOMMENDATIONS_MAX = 10
# of one kind; three instructions and the best of each other kind fit into ten
KIND_MAX = {"standing-instruction": 4, "permission": 2, "recurring-failure": 2, "prompt": 2}
CANDIDATES_MAX = 4  # patterns of one kind that are worked out; each one reads all digests
EVIDENCE_SHOWN = 8  # addresses of one recommendation; `retro show` lists more
DAY_MS = 86_400_000
PERIODS_DAYS = (28, 7)  # the longest one that the recordings hold twice
MAIN_PROJECT_SHARE = 0.8  # of the sessions; an instruction of one project belongs into its file
SPEND_SHARE_MIN = 0.05  # of all spend; less is not worth a recommendation
_TITLE_CHARS = 90
_CHECK_FIRST = "Before you say that something is done, check it against the request."

_ERROR_TAG = re.compile(r"^<\w+>")  # that a client puts around an error

CleanText = Callable[[str], str]
Effect = Literal["allow", "deny"]


class SessionWaste(Struct, frozen=True):
    """What a session paid for a cache miss or for carrying a block of its context."""

    session: str
    address: str
    kind: Literal["cache", "context"]
    cause: str
    cost_usd: float


class RecommendationInput(Struct, frozen=True):
    """What recommendations are made of besides patterns; `clean` redacts a text, whole."""

    digests: Sequence[ConversationDigest]
    clean: CleanText = str
    waste: Sequence[SessionWaste] = ()
    excluded_ids: Collection[str] = ()


def recommend(
    patterns: Sequence[Pattern], given: RecommendationInput
) -> tuple[Recommendation, ...]:
    """Return at most ten recommendations, the most important first."""
    by_kind: dict[str, list[Pattern]] = defaultdict(list)
    for pattern in sorted(patterns, key=lambda pattern: -len(pattern.conversation_ids)):
        if pattern.id not in given.excluded_ids:
            by_kind[pattern.kind].append(pattern)
    digests = {digest.id: digest for digest in given.digests}
    candidates = [
        *_recommend_permissions(by_kind, digests, given.clean),
        *_describe_spend(by_kind["cost"], digests, given.clean),
        *_describe_waste(given.waste, digests),
    ]
    for kind, describe in (
        ("instruction again", _describe_instruction),
        ("failure again", _describe_failure),
        ("correction", _describe_correction),
        ("prompt comparison", _describe_prompt),
    ):
        chosen = by_kind[kind][:CANDIDATES_MAX]
        candidates += [describe(pattern, digests, given.clean) for pattern in chosen]
    return choose_recommendations([one for one in candidates if one.id not in given.excluded_ids])


def choose_recommendations(candidates: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return the best of each kind and then the best of the rest, kind by kind, best first."""
    ranked = sorted(candidates, key=lambda one: (-one.score, -one.count, one.id))
    seen: Counter[str] = Counter()
    first, rest = [], []
    for one in ranked:
        seen[one.kind] += 1
        if seen[one.kind] == 1:
            first.append(one)
        elif seen[one.kind] <= KIND_MAX.get(one.kind, 1):
            rest.append(one)
    chosen = (first + rest)[:RECOMMENDATIONS_MAX]
    best = {one.kind: one.score for one in first}
    return tuple(sorted(chosen, key=lambda one: (-best[one.kind], one.kind, -one.score, one.id)))


Digests = Mapping[str, ConversationDigest]


def _compare_periods(
    digests: Digests, measure: Callable[[ConversationDigest], tuple[int, int]]
) -> dict[str, Any]:
    """Return `share`, `previous` and `period_days` of what `measure` counts in each digest."""
    times = [digest.started_ms for digest in digests.values() if digest.started_ms]
    last, span = max(times, default=0), (max(times) - min(times) if times else 0)
    days = next((days for days in PERIODS_DAYS if span >= 2 * days * DAY_MS), 0)
    totals = {"share": [0, 0], "previous": [0, 0]}
    for digest in digests.values():
        age = (last - digest.started_ms) // (days * DAY_MS) if days else 0
        if age < 2:
            count, total = measure(digest)
            sums = totals["previous" if age else "share"]
            sums[0], sums[1] = sums[0] + count, sums[1] + total
    shares = {name: estimate_share(*sums) for name, sums in totals.items()}
    return {**shares, "period_days": days}


def _is_one_of(ids: Collection[str], digest: ConversationDigest) -> tuple[int, int]:
    return int(digest.id in ids), 1


def _share_of(pattern: Pattern, digests: Digests, members: Digests | None = None) -> dict[str, Any]:
    ids = frozenset(pattern.conversation_ids)
    return _compare_periods(members or digests, partial(_is_one_of, ids))


def _list_evidence(pattern: Pattern, clean: CleanText) -> dict[str, Any]:
    places = pattern.evidence[:EVIDENCE_SHOWN]
    quotes = tuple(clean(place.text) for place in places)
    return {"evidence": tuple(place.address for place in places), "quotes": quotes}


def _main_of(values: Iterable[str]) -> str:
    """Return the value that most have, "" if no value has enough."""
    counts = Counter(values)
    value, count = max(counts.items(), key=lambda pair: (pair[1], pair[0]), default=("", 0))
    return value if count >= MAIN_PROJECT_SHARE * counts.total() else ""


def _instruction_action(
    pattern: Pattern, digests: Digests, entries: tuple[str, ...]
) -> RecommendedAction:
    """Return the action that adds lines to the file of the agent and project concerned."""
    members = [digests[name] for name in pattern.conversation_ids if name in digests]
    is_chat = sum(digest.source in DECODERS for digest in members) * 2 > len(members)
    if is_chat:
        return RecommendedAction("custom-instructions", entries=entries)
    agents = Counter(digest.source for digest in members if digest.source not in DECODERS)
    agent = max(agents, key=lambda name: (agents[name], name), default=DEFAULT_AGENT)
    project = _main_of(digest.project for digest in members if digest.source not in DECODERS)
    return RecommendedAction("instructions", entries=entries, project=project, agent=agent)


def _describe_instruction(pattern: Pattern, digests: Digests, clean: CleanText) -> Recommendation:
    typed = {name: digest for name, digest in digests.items() if digest.prompts}
    concerned = len(pattern.conversation_ids) / max(len(typed), 1)
    words = clean(pattern.label)
    share = estimate_share(min(len(pattern.conversation_ids), len(typed)), len(typed))
    return Recommendation(
        pattern.id,
        "standing-instruction",
        f"You repeat an instruction: {one_line(words, _TITLE_CHARS)}",
        pattern.count,
        action=_instruction_action(pattern, digests, (words,)),
        detail=f"said in {describe_share(share, 'conversation')}, {pluralize(pattern.count, 'time')}",
        score=round(min(concerned, 1.0), 4),
        **_list_evidence(pattern, clean),
        **_share_of(pattern, digests, typed),
    )


def _recommend_permissions(
    by_kind: Mapping[str, Sequence[Pattern]], digests: Digests, clean: CleanText
) -> Iterator[Recommendation]:
    """Yield one recommendation for the calls of a project that a person or its settings decided."""
    rejected = {(one.label, _project_of(one, digests)) for one in by_kind["call rejected"]}
    groups: dict[tuple[Effect, str], list[Pattern]] = defaultdict(list)
    for kind in ("call approved", "call blocked", "call rejected"):
        for pattern in by_kind[kind]:
            project = _project_of(pattern, digests)
            is_denied = kind == "call rejected"
            if is_denied and len(pattern.conversation_ids) < 2:
                continue  # within one session it is a decision about that task
            if not is_denied and (pattern.label, project) in rejected:
                continue  # now allowed and now rejected: there is no rule to derive
            groups["deny" if is_denied else "allow", project].append(pattern)
    largest = sorted(groups.items(), key=lambda group: -sum(call.count for call in group[1]))
    for (effect, project), calls in largest[:CANDIDATES_MAX]:
        calls.sort(key=lambda call: (-call.count, call.label))
        yield _describe_permission(effect, project, calls, digests, clean)


def _describe_permission(
    effect: Effect, project: str, calls: Sequence[Pattern], digests: Digests, clean: CleanText
) -> Recommendation:
    ids = tuple(dict.fromkeys(name for call in calls for name in call.conversation_ids))
    evidence = tuple(place for call in calls for place in call.evidence[:EVIDENCE_SHOWN])
    count = sum(call.count for call in calls)
    merged = replace(calls[0], count=count, conversation_ids=ids, evidence=evidence)
    agents = {digests[name].source for name in ids if name in digests}
    labels = [call.label for call in calls if clean(call.label) == call.label]
    rules = tuple(label for label in labels if is_exact_rule(label, effect))
    has_rules = bool(rules) and agents == {DEFAULT_AGENT}
    name = clean(calls[0].evidence[0].text)
    others = f" and {pluralize(len(calls) - 1, 'other call')}" if len(calls) > 1 else ""
    sessions = pluralize(len(ids), "session")
    words = {"deny": "You reject", "allow": "Asked for or blocked each time"}[effect]
    coding = {key: digest for key, digest in digests.items() if digest.source not in DECODERS}
    action = RecommendedAction(effect, entries=rules, project=project, agent=DEFAULT_AGENT)
    return Recommendation(
        f"permission-{merged.id.rpartition('-')[2]}",
        "permission",
        f"{words}: {one_line(name, _TITLE_CHARS)}{others}",
        merged.count,
        action=action if has_rules else _open_action(merged),
        detail=f"{pluralize(merged.count, 'time')} in {sessions}",
        score=round(min(len(ids) / max(len(coding), 1), 1.0), 4),
        **_list_evidence(merged, clean),
        **_share_of(merged, digests, coding),
    )


def _project_of(pattern: Pattern, digests: Digests) -> str:
    return next((digests[name].project for name in pattern.conversation_ids if name in digests), "")


def _open_action(pattern: Pattern) -> RecommendedAction:
    address = pattern.evidence[0].address if pattern.evidence else ""
    return RecommendedAction("open", command=f"flightlog retro show {address}")


def _describe_failure(pattern: Pattern, digests: Digests, clean: CleanText) -> Recommendation:
    ids = set(pattern.conversation_ids)
    members = sorted(
        (digests[name] for name in ids if name in digests), key=lambda digest: digest.started_ms
    )
    fixes = [mark for digest in members for mark in digest.fixes if mark.key == pattern.label]
    sure = [mark for mark in fixes if mark.kind != "next"]
    last = (sure or fixes)[-1:]
    words = "last fixed by" if sure else "last followed by"
    fix = f"; {words}: {one_line(clean(last[0].text), _TITLE_CHARS)}" if last else ""
    shown = clean(pattern.evidence[0].text if pattern.evidence else pattern.label)
    shown = _ERROR_TAG.sub("", shown)
    evidence = _list_evidence(pattern, clean)
    command = f"flightlog retro show {last[0].address}" if last else ""
    return Recommendation(
        pattern.id,
        "recurring-failure",
        f"Fails again and again: {one_line(shown, _TITLE_CHARS)}{fix}",
        pattern.count,
        (*(mark.address for mark in last), *evidence["evidence"])[:EVIDENCE_SHOWN],
        RecommendedAction("open", command=command) if last else _open_action(pattern),
        detail=pattern.detail,
        quotes=(*(clean(mark.text) for mark in last), *evidence["quotes"])[:EVIDENCE_SHOWN],
        score=round(len(ids) / max(len(digests), 1), 4),
        **_share_of(pattern, digests),
    )


def _describe_correction(pattern: Pattern, digests: Digests, clean: CleanText) -> Recommendation:
    follow_ups = sum(digest.follow_ups for digest in digests.values())
    share = estimate_share(min(pattern.count, follow_ups), follow_ups)
    after = sum(
        mark.kind != "correction" for digest in digests.values() for mark in digest.corrections
    )
    words = Counter(mark.text for digest in digests.values() for mark in digest.corrections)
    # Only whole ones: half of a secret, cut before it was redacted, would not be recognized.
    whole = (text for text, times in words.most_common() if times > 1 and not text.endswith("…"))
    repeated = [one_line(clean(text), 50) for text in islice(whole, 3)]
    quote = f" I had to say: {' / '.join(repeated)}" if repeated else ""
    return Recommendation(
        pattern.id,
        "correction",
        f"You correct {pattern.count / max(follow_ups, 1):.0%} of the answers that you reply to".replace("%", " %"),
        pattern.count,
        action=_instruction_action(pattern, digests, (f"{_CHECK_FIRST}{quote}",)),
        detail=f"{describe_share(share, 'follow-up')}, {after} of them after the agent said that it was done",
        score=round(len(pattern.conversation_ids) / max(len(digests), 1), 4),
        **_list_evidence(pattern, clean),
        **_compare_periods(digests, lambda digest: (
            min(len(digest.corrections), digest.follow_ups), digest.follow_ups)),
    )  # fmt: skip


def _describe_spend(
    patterns: Sequence[Pattern], digests: Digests, clean: CleanText
) -> Iterator[Recommendation]:
    total = sum(digest.cost_usd or 0.0 for digest in digests.values())
    for pattern in patterns:
        ids = frozenset(pattern.conversation_ids)
        members = [digests[name] for name in ids if name in digests]
        spent = sum(digest.cost_usd or 0.0 for digest in members)
        if pattern.id != FRUITLESS or spent < SPEND_SHARE_MIN * total:
            continue
        paid = {name: digest for name, digest in digests.items() if digest.cost_usd}
        yield Recommendation(
            pattern.id,
            "spend",
            f"{pluralize(pattern.count, 'session')} cost {format_spent(members)} USD without a commit, a passing "
            "test or an edit that stayed",
            pattern.count,
            action=RecommendedAction("open", command="flightlog session usage --by session"),
            detail=f"{spent / total:.0%} of {format_spent(digests.values())} USD".replace(
                "%", " %"
            ),
            cost_usd=round(spent, 6),
            score=round(spent / total, 4),
            **_list_evidence(pattern, clean),
            **_share_of(pattern, digests, paid),
        )


def _describe_waste(waste: Sequence[SessionWaste], digests: Digests) -> Iterator[Recommendation]:
    """Yield one recommendation for each cause of cache misses, and for each kind of context."""
    total = sum(digest.cost_usd or 0.0 for digest in digests.values())
    whole = format_spent(digests.values())
    causes: dict[tuple[Literal["cache", "context"], str], list[SessionWaste]] = defaultdict(list)
    for one in waste:
        if one.session in digests:  # not an analyst's own session, nor one about an excluded topic
            causes[one.kind, one.cause].append(one)
    for (kind, cause), parts in causes.items():
        spent = sum(one.cost_usd for one in parts)
        ids = {one.session for one in parts}
        if len(ids) < 2 or not total or spent < SPEND_SHARE_MIN * total:
            continue
        parts.sort(key=lambda one: (-one.cost_usd, one.address))
        sessions = pluralize(len(ids), "session")
        words = {"cache": "Cache misses", "context": "Carrying context"}[kind]
        command = {"cache": "cache", "context": f"context {parts[0].session}"}[kind]
        yield Recommendation(
            f"{kind}-{cause.replace(' ', '-')}",
            kind,
            f"{words} cost {spent:.2f} USD: {cause.replace('_', ' ')}",
            len(parts),
            tuple(one.address for one in parts[:EVIDENCE_SHOWN]),
            RecommendedAction("open", command=f"flightlog {command}"),
            detail=f"{spent / total:.0%} of {whole} USD, in {sessions}".replace("%", " %"),
            cost_usd=round(spent, 6),
            score=round(min(spent / total, 1.0), 4),
            **_compare_periods(digests, partial(_is_one_of, ids)),
        )


def _describe_prompt(pattern: Pattern, digests: Digests, clean: CleanText) -> Recommendation:
    return Recommendation(
        pattern.id,
        "prompt",
        pattern.label,
        pattern.count,
        action=_open_action(pattern),
        detail=pattern.detail,
        score=round(len(pattern.conversation_ids) / max(len(digests), 1), 4),
        **_list_evidence(pattern, clean),
    )
