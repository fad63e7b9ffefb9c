"""Source: the reader of one agent's session files.

Each agent implements it in `agents/<agent>/source`; `tests/agents/test_conformance.py` runs the
same tests on all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.model.usage import ClientTotals, UsageLine

if TYPE_CHECKING:
    from flightlog.model.entries import Entry, SubagentInfo
    from flightlog.model.exchange import LoggedRequest
    from flightlog.model.session import ThreadContext
    from flightlog.store.index.records import RecordBatch


class FileListing(Struct, frozen=True):
    """The session files below some directories, and the damage met while listing them."""

    files: tuple[SessionFile, ...]
    damage: tuple[Damage, ...] = ()


class UsageScan(Struct, array_like=True):
    """The usage that the new bytes of one file report.

    The next scan starts at `end`; `fingerprint` covers the bytes before it. `first_ms` is the
    file's first timestamp, which only a scan from byte 0 finds. A scan from another process
    has its rows and totals in `packed` and the keys of its responses in `keys`.
    """

    rows: list[UsageLine]
    totals: list[ClientTotals]
    end: int = 0
    bytes_read: int = 0
    records_decoded: int = 0
    damaged_lines: int = 0
    first_ms: int = 0
    fingerprint: int = 0
    error: str = ""
    packed: bytes = b""
    keys: bytes = b""


class Fidelity(Struct, frozen=True):
    """Which facts an agent's recordings contain; the absence of any other fact means nothing.

    An agent names those that its recordings lack.
    """

    timestamps: bool = True
    usage: bool = True
    client_totals: bool = True
    thinking: bool = True
    tool_results: bool = True
    subagents: bool = True
    system_prompt: bool = True
    exit_codes: bool = True
    permissions: bool = True
    file_changes: bool = True


class TranscriptTail(Struct, frozen=True):
    """A summary of the lines added to a transcript; the next read starts at `end`.

    `total_tokens` is the context after the last response or compaction, None if neither was added;
    `last_bytes` is the length of the last message, 0 without one.
    """

    end: int
    messages: int = 0
    last_role: str = ""
    last_bytes: int = 0
    model: str = ""
    total_tokens: int | None = None


class Source(Protocol):
    """The reader of one agent's session files; it never writes to them, and damage never raises."""

    @property
    def fidelity(self) -> Fidelity:
        """The facts that recordings of the newest tested version contain."""

    def session_files(self, file: SessionFile) -> tuple[SessionFile, ...]:
        """List the current files of a session, given one; subagents' files appear as it runs."""

    def entries(
        self, file: SessionFile, start: int = 0
    ) -> "Iterator[Entry | Damage | SubagentInfo]":
        """Yield the records from byte `start`, and last the notes beside a subagent's file."""

    def entries_at(self, path: str, spans: Iterable[tuple[int, int]]) -> "Iterator[Entry]":
        """Yield the records at these offsets and lengths; none where the file has changed."""

    def tail(self, path: str, start: int) -> TranscriptTail:
        """Summarize the lines added since byte `start`, without decoding most of them."""

    def last_record_ms(self, file: SessionFile) -> int:
        """Return the time of the last record that has one, read from the end; 0 if none has."""

    def titles(self, files: Iterable[SessionFile]) -> "Iterator[Entry]":
        """Yield the titles that `files` give to sessions, also to those of other files."""

    def scan_usage(self, file: SessionFile, start: int = 0) -> UsageScan:
        """Return the token counts of the records from byte `start`."""

    def index_records(self, file: SessionFile, start: int = 0) -> "RecordBatch":
        """Return each record from byte `start` with its search text."""

    def thread_contexts(self, files: Sequence[SessionFile]) -> "dict[str, ThreadContext]":
        """Return what the model was given in each thread of a session; the main thread is ""."""

    def logged_requests(self, files: Sequence[SessionFile]) -> "Iterator[LoggedRequest]":
        """Yield the requests that a session's files log, by time; none if the agent logs none."""

    def text_at(self, path: str, offset: int, length: int) -> str:
        """Return the text of the record at `offset`, or "" if it is gone."""

    def tool_result_file(self, file: SessionFile, name: str) -> str:
        """Return the path of a tool result stored beside the transcript, given the recorded path."""

    def files_beside(self, file: SessionFile) -> "dict[str, str]":
        """Return the files that belong to a transcript, by their names in our recording."""
