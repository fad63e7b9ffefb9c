"""Session, Turn, Step, ToolCall, Subagent, Note, ThreadContext.

Built by `views.session`, read by all features. Turns and steps count from 1, and an address
`SESSION#turn.step` always names the same step.
"""

import enum
import re
from typing import Any

from msgspec import Struct

from flightlog.model.entries import Block, Image, PromptKind, exit_code_of, text_of
from flightlog.model.errors import Damage
from flightlog.model.text import one_line
from flightlog.model.usage import ClientTotals, TokensAndCost

DEFAULT_AGENT = "claude-code"
TITLE_WIDTH = 80  # a line of a list on a terminal
# Marks of a heading, a list, a quotation, emphasis or code.
_MARKDOWN = re.compile(
    r"\A(?:\s*(?:#{1,6}\s|[-*+>]\s|\*{1,3}(?=\S)|`{1,3}(?=\S)|\d{1,3}[.)]\s))+\s*"
)
_LOCAL_COMMANDS = frozenset({"/clear", "/exit", "/login", "/logout", "/model", "/quit"})


def clean_title(text: str) -> str:
    """Return `text` as a title: without leading Markdown, "" if the client alone is concerned."""
    title = _MARKDOWN.sub("", text, count=1).strip()
    return "" if is_local_command(title) else title


def is_local_command(text: str) -> bool:
    """Return whether a prompt is a command that the client carries out by itself."""
    return text.strip().partition(" ")[0] in _LOCAL_COMMANDS


class ContextItem(Struct, frozen=True):
    """Context that the client added by itself: the directory, the date, a list of skills.

    `memory` are the memory files in it, with their lengths.
    """

    kind: str
    text: str
    at_ms: int | None = None
    memory: dict[str, int] = {}


class ThreadContext(Struct, frozen=True):
    """What the model of one thread received, and which part of the thread is a copy.

    `tools` are the definitions as the API received them (name, description, input_schema);
    `copied` are the message ids of responses that are another session's, `context` what the
    client added to the conversation, by time.
    """

    tools: tuple[dict[str, Any], ...] = ()
    system: str = ""
    copied_message_ids: frozenset[str] = frozenset()
    context: tuple[ContextItem, ...] = ()


class NoteKind(enum.Enum):
    """What a note is about."""

    COMPACTION = "compaction"
    API_FAILURE = "api failure"
    INTERRUPTION = "interruption"
    CLIENT = "client"
    HOOK = "hook"
    COMMAND = "command"
    SUMMARY = "summary"
    REMARK = "remark"
    UNKNOWN = "unknown record"


class Note(Struct, frozen=True, tag="note"):
    """One line of a turn that is neither prompt nor step."""

    kind: NoteKind
    text: str
    at_ms: int | None = None


class ToolCall(Struct, frozen=True):
    """A tool call and its result.

    `permission_decision` is allow, approved (by a person who was asked), deny, blocked (no person
    could be asked), ask or unknown ("").
    """

    id: str
    name: str
    input: dict[str, Any]
    result: tuple[Block, ...] | None = None
    is_error: bool = False
    denial_reason: str = ""
    executed_input: dict[str, Any] | None = None
    result_file: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    subagent: str = ""
    detail: Any = None
    result_uuid: str = ""
    permission_decision: str = ""
    duration_ms: int | None = None

    @property
    def output(self) -> str:
        """The text of the result."""
        return text_of(self.result or ())

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command that ran, None if there is none on record."""
        return exit_code_of(self.detail)

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the result."""
        return tuple(block for block in self.result or () if isinstance(block, Image))


class Step(TokensAndCost, frozen=True, tag="step"):
    """One model response with the tools it called."""

    number: int
    message_id: str
    at_ms: int | None
    model: str
    content: tuple[Block, ...]
    tool_calls: tuple[ToolCall, ...]
    stop_reason: str = ""
    request_id: str = ""
    record_uuids: tuple[str, ...] = ()
    is_aborted: bool = False
    effort: str = ""


class Turn(Struct, frozen=True):
    """A prompt and everything until the next one."""

    number: int
    kind: PromptKind | None
    prompt: tuple[Block, ...]
    at_ms: int | None
    items: tuple[Step | Note, ...]
    is_rewound: bool = False
    uuid: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The model responses of the turn, in order."""
        return tuple(item for item in self.items if isinstance(item, Step))

    @property
    def text(self) -> str:
        """The text of the prompt."""
        return text_of(self.prompt)


class Subagent(Struct, frozen=True):
    """A subagent's own thread; a side call is one of the client's own, such as a warm-up."""

    id: str
    agent_type: str
    description: str
    tool_call_id: str
    turns: tuple[Turn, ...]
    is_side_call: bool = False


class Session(Struct, frozen=True):
    """One complete session of one agent."""

    id: str
    agent: str
    title: str
    cwd: str
    branch: str
    version: str
    entrypoint: str
    started_ms: int | None
    ended_ms: int | None
    turns: tuple[Turn, ...]
    subagents: tuple[Subagent, ...]
    client_totals: ClientTotals | None
    unknown_record_types: tuple[tuple[str, int], ...] = ()
    unknown_fields: tuple[tuple[str, int], ...] = ()
    damage: tuple[Damage, ...] = ()
    record_count: int = 0

    @property
    def heading(self) -> str:
        """The title on one short line; `title` is whole, because redaction precedes cutting."""
        return one_line(self.title, TITLE_WIDTH)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step of the main thread, in order."""
        return tuple(step for turn in self.turns for step in turn.steps)


class SessionFile(Struct, frozen=True):
    """The transcript of a session's main thread or of one of its subagents.

    `device`, `inode`, `size` and `changed_ns` are the file's state when it was listed; the index
    compares them with the state it has read. `path` may be one session in a database, see
    `store.recordings.reader`; its state is that of the session's rows.
    """

    path: str
    session: str
    size: int
    changed_ns: int
    subagent: str = ""
    device: int = 0
    inode: int = 0
    agent: str = DEFAULT_AGENT
