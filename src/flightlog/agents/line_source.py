"""LineSource: the reader of an agent that writes one JSON record a line.

An agent gives a decoder of its lines and a counter of its tokens; everything else is the same for
all of them. Both see the lines of one file in order, so they may remember what later lines refer to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.entries import (
    AssistantReply,
    ContextCompacted,
    Entry,
    PromptQueued,
    SessionSummarized,
    SessionTitled,
    SubagentInfo,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UserPrompt,
    text_of,
)
from flightlog.model.errors import UNREADABLE, Damage, Unavailable, Unreadable
from flightlog.model.session import SessionFile, ThreadContext
from flightlog.model.usage import ClientTotals, UsageLine
from flightlog.sources.foreign_json import iter_strings
from flightlog.sources.line_filter import find_line_before, iter_lines_with_any
from flightlog.sources.protocol import Fidelity, TranscriptTail, UsageScan
from flightlog.store.index.files import fingerprint_file
from flightlog.store.index.records import IndexedRecord, RecordBatch
from flightlog.store.jsonl import TORN_TAIL, last_line_end
from flightlog.store.recordings.reader import (
    MemoryReader,
    Reader,
    is_virtual,
    iter_lines_and_damage,
    open_reader,
    read_blocks,
    read_new_lines,
)

if TYPE_CHECKING:
    from flightlog.model.exchange import LoggedRequest

_BLOCK_BYTES = 1 << 20
_TAIL_BYTES = (1 << 16, 1 << 22)  # where the last time is looked for; a single line may be long
_HEAD_BYTES = 1 << 16  # the first time is in one of the first lines
WORDS_MAX = 1 << 20  # characters of one column; only dumps of whole files are longer
_PATHS = ("file_path", "path", "filePath", "absolute_path", "notebook_path")
_KINDS = {UserPrompt: "user", PromptQueued: "user", ToolResult: "user", AssistantReply: "assistant"}
_DECODERS_MAX = 64  # files that are followed at the same time


class LineDecoder(Protocol):
    """Decodes the lines of one file in order."""

    def decode(self, line: bytes) -> Sequence[Entry] | None:
        """Return the entries of a line, or None if it is no record of this agent."""

    def subagents(self) -> Iterable[SubagentInfo]:
        """Return what the lines so far say about subagents."""


class LineCounter(Protocol):
    """Counts the tokens in the lines of one file, in order."""

    def count(self, line: bytes) -> Iterable[UsageLine | ClientTotals]:
        """Return the usage that a line adds; raise one of `UNREADABLE` for a damaged line.

        The same response may come again: the last of the rows with its message id counts.
        """


class LineFormat(Struct, frozen=True):
    """How the lines of one agent are read.

    A line without any of `usage_needles` counts no tokens and is not decoded for a report. Where a
    scan continues, the counter is first given the last lines before it with `context_needles`.
    `read_usage` returns the lines of a virtual file that a scan needs, if that takes less time.
    """

    agent: str
    fidelity: Fidelity
    new_decoder: Callable[[SessionFile], LineDecoder]
    new_counter: Callable[[SessionFile], LineCounter]
    usage_needles: tuple[bytes, ...]
    context_needles: tuple[bytes, ...] = ()
    read_usage: Callable[[str], bytes] | None = None


class LineSource:
    """A `Source` over files of JSON lines; an agent overrides what it does differently."""

    def __init__(
        self, lines: LineFormat, session_files: Callable[[SessionFile], tuple[SessionFile, ...]]
    ) -> None:
        """Read `lines`; `session_files` lists the files of a session, given one of them."""
        self.lines = lines
        self.session_files = session_files
        # The decoder of each file that is followed, and how far it has read.
        self._decoders: dict[str, tuple[int, int, LineDecoder]] = {}

    @property
    def fidelity(self) -> Fidelity:
        """The facts that recordings of the newest tested version contain."""
        return self.lines.fidelity

    def entries(self, file: SessionFile, start: int = 0) -> Iterator[Entry | Damage | SubagentInfo]:
        """Yield the records from byte `start`, and last what is known about subagents.

        A decoder that has read the file up to `start` continues; another one first reads what
        is before.
        """
        end, last_ms, decoder = self._decoders.pop(file.path, (0, 0, None))
        if decoder is None or end != start:
            end, last_ms, decoder = 0, 0, self.lines.new_decoder(file)
        for line in iter_lines_and_damage(file.path, end):
            if isinstance(line, Damage):
                if line.offset >= start:
                    yield line
                continue
            decoded = _try_decode(decoder, line.data)
            if decoded is None and line.offset >= start:
                yield Damage(file.path, line.offset, line.length, "not a record of this agent")
            end = line.offset + line.length + 1
            for entry in decoded or ():
                last_ms = entry.at_ms if entry.at_ms is not None else last_ms
                if line.offset >= start:
                    yield _place_entry(entry, file, line.offset, line.length, last_ms)
        if len(self._decoders) >= _DECODERS_MAX:
            self._decoders.clear()
        self._decoders[file.path] = (end, last_ms, decoder)
        yield from decoder.subagents()

    def entries_at(self, path: str, spans: Iterable[tuple[int, int]]) -> Iterator[Entry]:
        """Yield the records at these offsets and lengths; what is before them is read too."""
        wanted = list(spans)
        file = SessionFile(path, "", 0, 0, agent=self.lines.agent)
        found: dict[tuple[int, int], list[Entry]] = {span: [] for span in wanted}
        last = max((offset for offset, _ in wanted), default=-1)
        decoder = self.lines.new_decoder(file)
        for line in iter_lines_and_damage(path, 0):
            if line.offset > last:
                break
            if isinstance(line, Damage):
                continue
            decoded = _try_decode(decoder, line.data)
            if (line.offset, line.length) in found:
                found[line.offset, line.length] = [
                    replace(
                        _place_entry(entry, file, line.offset, line.length, entry.at_ms or 0),
                        session=entry.session,
                    )
                    for entry in decoded or ()
                ]
        for span in wanted:
            yield from found[span]

    def text_at(self, path: str, offset: int, length: int) -> str:
        """Return the text of the record at `offset`, or "" if it is gone."""
        file = SessionFile(path, "", 0, 0, agent=self.lines.agent)
        with suppress(OSError, Unreadable), closing(open_reader(path)) as reader:
            decoder = self.lines.new_decoder(file)
            record = _make_record(_try_decode(decoder, reader.read(offset, length)), offset, length)
            return "\n".join(part for part in (record.text, record.output) if part)
        return ""

    def tail(self, path: str, start: int) -> TranscriptTail:
        """Summarize the lines added since byte `start`."""
        lines, end = read_new_lines(path, start)
        decoder = self.lines.new_decoder(SessionFile(path, "", 0, 0, agent=self.lines.agent))
        with suppress(OSError, Unreadable), closing(open_reader(path)) as reader:
            for line in self._context_lines(reader, end - sum(len(line) + 1 for line in lines)):
                _try_decode(decoder, line)
        messages, role, size, model = 0, "", 0, ""
        tokens: int | None = None
        for line in lines:
            for entry in _try_decode(decoder, line) or ():
                event = entry.event
                if kind := _KINDS.get(type(event)):
                    messages, role, size = messages + 1, kind, len(line)
                if isinstance(event, AssistantReply) and event.usage:
                    model, tokens = event.model, event.usage.total_tokens
                elif isinstance(event, ContextCompacted):
                    tokens = event.tokens_after
        return TranscriptTail(end, messages, role, size, model, tokens)

    def last_record_ms(self, file: SessionFile) -> int:
        """Return the time of the last record near the end of the file that has one."""
        with suppress(OSError, Unreadable, Unavailable), closing(open_reader(file.path)) as reader:
            for width in _TAIL_BYTES:
                start = max(0, file.size - width)
                decoder = self.lines.new_decoder(file)
                lines = reader.read(start, file.size - start).split(b"\n")
                decoded = [_try_decode(decoder, line) or () for line in lines[bool(start) :]]
                times = [entry.at_ms for entries in decoded for entry in entries if entry.at_ms]
                if times or not start:
                    return max(times, default=0)
        return 0

    def titles(self, files: Iterable[SessionFile]) -> Iterator[Entry]:
        """Yield nothing: a session's title is in its own file."""
        del files
        return iter(())

    def scan_usage(self, file: SessionFile, start: int = 0) -> UsageScan:
        """Return the token counts of the records from byte `start`."""
        result = UsageScan([], [], start)
        rows: dict[tuple[str, str], UsageLine] = {}
        counter = self.lines.new_counter(file)

        def count(line: bytes) -> None:
            result.records_decoded += 1
            for item in counter.count(line):
                if isinstance(item, ClientTotals):
                    result.totals.append(item)
                else:
                    rows[item.message_id, item.subagent] = item

        try:
            with closing(self._open_for_usage(file.path)) as reader:
                if start:
                    for line in self._context_lines(reader, start):
                        with suppress(*UNREADABLE):
                            list(counter.count(line))
                else:
                    result.first_ms = self._first_ms(file, reader.read(0, _HEAD_BYTES))
                self._count_lines(reader, result, count)
        except OSError as error:
            result.error = error.strerror or "unreadable"
        except Unreadable as error:
            result.error = error.message
        result.rows = list(rows.values())
        return result

    def index_records(self, file: SessionFile, start: int = 0) -> RecordBatch:
        """Return each record from byte `start` with its search text."""
        batch = RecordBatch([], end=start)
        words: dict[tuple[int, int], list[Entry]] = {}
        for item in self.entries(file, start):
            if isinstance(item, Entry):
                words.setdefault((item.offset, item.length), []).append(item)
            elif isinstance(item, Damage) and item.length == 0:
                batch.error = item.reason
            elif isinstance(item, Damage) and item.reason != TORN_TAIL:
                batch.damaged_lines += 1
        batch.records = [_make_record(entries, *span) for span, entries in words.items()]
        with suppress(OSError, Unreadable), closing(open_reader(file.path)) as reader:
            # A record is whole without its newline too: the next scan is not to repeat it.
            last = max((offset + length for offset, length in words), default=start)
            batch.end = max(last, last_line_end(reader.read, file.size))
            batch.bytes_read = batch.end - start
            batch.fingerprint = fingerprint_file(reader, batch.end)
        return batch

    def thread_contexts(self, files: Sequence[SessionFile]) -> dict[str, ThreadContext]:
        """Return nothing: the requests are not recorded."""
        del files
        return {}

    def logged_requests(self, files: Sequence[SessionFile]) -> "Iterator[LoggedRequest]":
        """Yield nothing: the requests are not recorded."""
        del files
        return iter(())

    def tool_result_file(self, file: SessionFile, name: str) -> str:
        """Return "": results are in the records."""
        del file, name
        return ""

    def files_beside(self, file: SessionFile) -> dict[str, str]:
        """Return nothing: all of a session is in its own files."""
        del file
        return {}

    def _open_for_usage(self, path: str) -> Reader:
        if self.lines.read_usage is None or not is_virtual(path):
            return open_reader(path)
        return MemoryReader(self.lines.read_usage(path))

    def _context_lines(self, reader: Reader, end: int) -> list[bytes]:
        """Return the last line before `end` with each of the context needles, in order."""
        found = {find_line_before(reader, needle, end) for needle in self.lines.context_needles}
        return [line for _, line in sorted(item for item in found if item)]

    def _count_lines(
        self, reader: Reader, result: UsageScan, count: Callable[[bytes], None]
    ) -> None:
        for block in read_blocks(reader, result.end, bytearray(_BLOCK_BYTES)):
            result.bytes_read += block.end
            for view in iter_lines_with_any(self.lines.usage_needles, block.view, block.end):
                try:
                    count(bytes(view))
                except UNREADABLE:
                    # The next scan repeats a last line without newline.
                    result.damaged_lines += block.is_complete
            if block.is_complete:
                result.end += block.end
        result.fingerprint = fingerprint_file(reader, result.end)
        result.damaged_lines += reader.damaged_spans

    def _first_ms(self, file: SessionFile, head: bytes) -> int:
        decoder = self.lines.new_decoder(file)
        for line in head.split(b"\n")[:-1]:
            for entry in _try_decode(decoder, line) or ():
                if entry.at_ms:
                    return entry.at_ms
        return 0


def _try_decode(decoder: LineDecoder, line: bytes) -> Sequence[Entry] | None:
    try:
        return decoder.decode(line)
    except UNREADABLE:
        return None


def _place_entry(entry: Entry, file: SessionFile, offset: int, length: int, order_ms: int) -> Entry:
    return replace(
        entry,
        session=file.session,
        subagent=file.subagent or entry.subagent,
        order_ms=order_ms,
        path=file.path,
        offset=offset,
        length=length,
    )


def _make_record(entries: Sequence[Entry] | None, offset: int, length: int) -> IndexedRecord:
    """Return the entries of one line as a record with its words by column."""
    words = WordColumns()
    kind, model = "", ""
    for entry in entries or ():
        event = entry.event
        kind = kind or _KINDS.get(type(event), type(event).__name__)
        if isinstance(event, UserPrompt | PromptQueued):
            words.text.append(text_of(event.content))
        elif isinstance(event, AssistantReply):
            model = event.model or model
            for block in event.content:
                if isinstance(block, Text | Thinking):
                    words.text.append(block.text)
                elif isinstance(block, ToolUse):
                    words.add_call(block.name, block.input)
        elif isinstance(event, ToolResult):
            words.output.append(text_of(event.content))
        elif isinstance(event, SessionTitled | SessionSummarized):
            words.text.append(event.text)
    first = entries[0] if entries else None
    uuid = next((entry.uuid for entry in entries or () if entry.uuid), "")
    at_ms = (first.at_ms or 0) if first else 0
    cwd = next((entry.context.cwd for entry in entries or () if entry.context.cwd), "")
    return IndexedRecord(offset, length, uuid, kind, at_ms, *words.join(), model, cwd)


class WordColumns:
    """The words of one record, by column."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.output: list[str] = []
        self.tools: list[str] = []
        self.files: list[str] = []

    def add_call(self, name: str, arguments: dict[str, Any]) -> None:
        """Add a tool call: its name, all texts of its input, and the paths among them."""
        self.tools.append(name)
        self.text += iter_strings(arguments.values())
        self.files += [path for key in _PATHS if isinstance(path := arguments.get(key), str)]

    def join(self) -> tuple[str, str, str, str]:
        """Return the text of each column."""
        columns = (self.text, self.output, self.tools, self.files)
        joined = ["\n".join(filter(None, words))[:WORDS_MAX] for words in columns]
        text, output, tools, files = joined
        return text, output, tools, files
