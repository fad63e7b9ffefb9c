"""Whether a branch stands where the recording stood, decided from its first request before that is sent.

    exact           the request is the recorded one, but for who asks
    exact+prompt    the same, and after it the prompt of the branch
    differs         it is not, or the client could not do what the model may ask; the first reason is named

Pure.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from flightlog.lab.replaying.context import RecordedContext, RewrittenBody, is_billing
from flightlog.lab.replaying.differences import find_differences

EXACT, PROMPTED, DIFFERS = "exact", "exact+prompt", "differs"
SPLICED = "resumed at the cut; recorded context sent by the proxy"
FRESH = "new session; recorded context sent by the proxy"
REBUILT = ", rebuilt from the transcript"
CURSOR = "recorded answers served up to the turn, tools run again; messages as the client makes them"
RESUMED = "resumed at the cut; context as the client makes it"

# A place holder the client offers for tools that are looked up later; nothing it runs.
_NEVER_ANNOUNCED = frozenset({"DeferredToolPlaceholder"})


class Certificate(Struct, frozen=True):
    """A verdict, how the branch got there, and what was in the way."""

    verdict: str
    method: str
    first_difference: str = ""
    replaced: tuple[str, ...] = ()


class RequestFacts(Struct, frozen=True):
    """What else is known of the first request: betas, tools the client has (none: unknown), what was scrubbed."""

    betas: str = ""
    recorded_betas: str = ""
    tools: frozenset[str] = frozenset()
    scrubbed: Collection[str] = ()
    rebuilt: str = ""


def certify_request(
    context: RecordedContext, spliced: RewrittenBody | None, facts: RequestFacts, method: str
) -> Certificate:
    """Compare what would be sent with what was recorded."""
    if spliced is None:
        return Certificate(DIFFERS, method, "the branch point is not in the client's first request")
    first = _first_difference(context, spliced, facts)
    verdict = DIFFERS if first else (PROMPTED if context.prompt else EXACT)
    return Certificate(verdict, method, first, spliced.replaced)


def _first_difference(context: RecordedContext, spliced: RewrittenBody, facts: RequestFacts) -> str:
    sent = _without_prompt(spliced.body, context.prompt)
    if facts.rebuilt:
        # A transcript tells neither; both say who asks and how.
        sent = {key: value for key, value in sent.items() if key != "stream"}
        sent["system"] = [each for each in sent.get("system") or () if not is_billing(each)]
    named = next(find_differences(sent, context.recorded, ignored={"metadata"}), "")
    if named:
        return named
    if facts.rebuilt not in {"", "exact"}:
        return "the recorded request is rebuilt, and its digest does not vouch for the whole of it"
    if facts.scrubbed:
        return "the recorded request holds a credential that was scrubbed"
    if facts.recorded_betas and facts.betas != facts.recorded_betas:
        return "header anthropic-beta"
    recorded = {str(tool.get("name")) for tool in context.recorded.get("tools") or () if "input_schema" in tool}
    # The client announces its tool for subagents under an older name than it offers it by.
    known = facts.tools | _NEVER_ANNOUNCED | ({"Agent"} if "Task" in facts.tools else set())
    lost = sorted(recorded - known) if facts.tools else []
    return f"tools.{lost[0]} (the client does not have it)" if lost else ""


def _without_prompt(body: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """The request as it would be without the prompt that was asked for."""
    messages = list(body.get("messages") or ())
    last = messages[-1] if prompt and messages else None
    if isinstance(last, dict) and isinstance(last.get("content"), list):
        content = list(last["content"])
        if content and isinstance(content[-1], dict) and content[-1].get("text") == prompt:
            kept = [{**last, "content": content[:-1]}] if content[:-1] else []
            messages = [*messages[:-1], *kept]
    return {**body, "messages": messages}
