"""What the model was given, as far as a transcript says: system prompt, tools, and history of another session.

Newer clients note down every request they send. A response whose request is not among those
noted in the session's own files was given in another session and copied from there. Older
clients note nothing, and nothing is claimed of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE
from flightlog.model.events import ContextGiven
from flightlog.model.known import Context, Known
from flightlog.sources.claude_code.decode import decode
from flightlog.sources.protocol import SessionFile
from flightlog.store.reading import raw_lines

_NEEDLES = (b'"requestRef"', b'"api-request')
_ATTACHMENT = b'"attachment"'


class _Message(Struct, gc=False):
    id: str = ""


class _Line(Struct, gc=False):
    type: str = ""
    id: str = ""
    agentId: str | None = ""  # noqa: N815 - the client's own name
    requestRef: str | None = ""  # noqa: N815
    shapeHash: str | None = ""  # noqa: N815
    shape: dict[str, Any] | None = None
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line).decode


class _Noted:
    def __init__(self) -> None:
        self.shapes: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, str] = {}
        self.replies: dict[str, dict[str, str]] = defaultdict(dict)
        self.context: dict[str, dict[str, Context]] = defaultdict(dict)

    def take(self, line: _Line, lane: str) -> None:
        if line.type == "api-request-shape" and line.shapeHash and line.shape:
            self.shapes[line.shapeHash] = line.shape
        elif line.type == "api-request":
            self.sent[line.id] = line.shapeHash or ""
        elif line.type == "assistant" and line.requestRef and line.message:
            self.replies[lane or line.agentId or ""][line.message.id] = line.requestRef

    def attach(self, line: bytes, lane: str) -> None:
        for entry in decode(line) or ():
            event = entry.event
            if isinstance(event, ContextGiven) and event.text:
                self.context[lane or entry.lane][entry.key] = Context(event.kind, event.text, entry.at_ms)


def known(transcripts: Iterable[SessionFile]) -> dict[str, Known]:
    """Read the files of one session; the answer is by lane, the main thread's is ""."""
    noted = _Noted()
    for transcript in transcripts:
        for line in raw_lines(transcript.path, 0):
            if _ATTACHMENT in line:
                noted.attach(line, transcript.lane)
            if any(needle in line for needle in _NEEDLES):
                with suppress(*UNREADABLE):
                    noted.take(_decode(line), transcript.lane)
    lanes = dict.fromkeys([*noted.replies, *noted.context])
    return {lane: _known(noted, lane) for lane in lanes}


def _known(noted: _Noted, lane: str) -> Known:
    replies = noted.replies[lane]
    copied = frozenset(message for message, sent in replies.items() if sent not in noted.sent) if noted.sent else ()
    hashes = dict.fromkeys(noted.sent[sent] for sent in replies.values() if sent in noted.sent)
    shapes = [noted.shapes[each] for each in hashes if each in noted.shapes]
    tools = {
        str(tool.get("name")): tool
        for shape in shapes
        for tool in _list(shape.get("tools"))
        if isinstance(tool, dict) and tool.get("name")
    }
    system = next((text for shape in shapes if (text := _text(shape.get("system")))), "")
    context = sorted(noted.context[lane].values(), key=lambda each: each.at_ms or 0)
    return Known(tuple(tools.values()), system, frozenset(copied), tuple(context))


def _text(system: Any) -> str:
    if isinstance(system, str):
        return system
    parts = (part.get("text") for part in _list(system) if isinstance(part, dict))
    return "\n\n".join(part for part in parts if isinstance(part, str))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
