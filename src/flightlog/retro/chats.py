"""Reducing a conversation of an export to a digest. Pure."""

from flightlog.retro.digest import MARKS_MAX, PROMPTS_MAX, ConversationDigest, DigestMark, DigestPrompt, make_excerpt
from flightlog.sources.exports.chat import AGENT, PERSON, Conversation, iter_addressed_messages


def digest_chat(
    chat: Conversation, version: str, export: str = "", place: tuple[str, int] = ("", 0)
) -> ConversationDigest:
    """Reduce `chat`, found at `place` of `export`."""
    prompts: list[DigestPrompt] = []
    frictions: list[DigestMark] = []
    chars = 0
    branch_turns: set[str] = set()
    for address, said in iter_addressed_messages(chat):
        chars += len(said.text)
        if said.role == PERSON and said.text and len(prompts) < PROMPTS_MAX:
            prompts.append(
                DigestPrompt(address, said.at_ms or chat.started_ms or 0, make_excerpt(said.text), len(said.text))
            )
        if said.lane and said.lane not in branch_turns and len(frictions) < MARKS_MAX:
            branch_turns.add(said.lane)
            kind = "asked anew" if said.role == PERSON else "answered anew"
            frictions.append(DigestMark(kind, address, make_excerpt(said.text)))
    return ConversationDigest(
        id=chat.id,
        source=chat.source,
        version=version,
        title=chat.title,
        started_ms=chat.started_ms or 0,
        ended_ms=chat.ended_ms or 0,
        prompts=tuple(prompts),
        turns=sum(said.role == PERSON and not said.lane for said in chat.said),
        messages=len(chat.said),
        chars=chars,
        branches=chat.branches,
        files=sum(len(said.files) for said in chat.said),
        canvases=sum(bool(said.canvas) for said in chat.said),
        deleted=chat.deleted,
        models=tuple(sorted({said.model for said in chat.said if said.role == AGENT and said.model})),
        frictions=tuple(frictions),
        export=export,
        member=place[0],
        offset=place[1],
    )
