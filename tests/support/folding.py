"""Entries to fold: those of a made session, and random ones."""

import random

from hypothesis import strategies as st
from msgspec.structs import replace
from tools.bench.transcript import Session as Maker
from tools.bench.words import Words

from flightlog.agents.claude_code.decode import decode_record
from flightlog.model.entries import (
    AssistantReply,
    ClientNote,
    ClientTotalReported,
    ContextCompacted,
    Entry,
    PromptKind,
    RecordContext,
    SessionTitled,
    Text,
    ToolInputRewritten,
    ToolResult,
    ToolUse,
    UnknownRecord,
    UserPrompt,
)
from flightlog.model.usage import ClientTotals
from flightlog.usage.prices import price
from flightlog.views.session.fold import SessionFold
from flightlog.views.session.thread import EVICTION

WORDS = Words(5)


def fold_items(items, retain, eviction=EVICTION):
    """Return the outline of a session that is read at once."""
    fold = SessionFold("s", "claude-code", price, retain, eviction)
    for item in items:
        fold.add(item)
    return fold.outline()


def session_lines(seed, turns, scale=0.02):
    maker = Maker(WORDS, random.Random(seed), "s", 1_780_272_000_000)
    maker.scale = scale
    return [line for _ in range(turns) for line in maker.turn()]


def entries_of(lines):
    entries, offset = [], 0
    for line in lines:
        for entry in decode_record(line.encode()):
            order = entry.at_ms if entry.at_ms is not None else entries[-1].order_ms
            entries.append(
                replace(entry, order_ms=order, path="f", offset=offset, length=len(line) + 1)
            )
        offset += len(line) + 1
    return entries


INPUTS = st.sampled_from(
    [{}, {"prompt": "look", "description": "d"}, {"file_path": "/a", "content": "x"}]
)


def events(name, calls):
    """Events of one thread: `name` makes the ids of its calls unique, `calls` are those of the calls so far."""
    ids = st.sampled_from([*calls, "stray"])
    uses = st.builds(ToolUse, st.just(name), st.sampled_from(["Task", "Write", "Bash"]), INPUTS)
    return st.one_of(
        st.builds(
            UserPrompt,
            st.sampled_from(PromptKind),
            st.sampled_from([(Text("look"),), (Text("Warmup"),), (Text("x"),), ()]),
        ),
        st.builds(
            AssistantReply,
            st.sampled_from(["", "m1", "m2", "m3", "m4", "m5"]),
            st.sampled_from(["claude-opus-5-5", "unknown-model"]),
            st.sampled_from([(), (Text("said"),)]) | uses.map(lambda use: (use,)),
            input_tokens=st.integers(0, 9),
            output_tokens=st.integers(0, 9),
            block_index=st.integers(0, 2),
            is_synthetic=st.booleans(),
        ),
        st.builds(
            ToolResult,
            ids,
            st.just(()),
            st.booleans(),
            subagent=st.sampled_from(["", "", "a1", "a2"]),
        ),
        st.builds(ToolInputRewritten, ids, INPUTS),
        st.builds(ContextCompacted, st.just("auto"), st.just(9), st.just(1)),
        st.builds(ClientNote, st.sampled_from(["hook", "other"]), st.sampled_from(["a", "b"])),
        st.builds(SessionTitled, st.sampled_from(["", "one", "two"]), st.booleans()),
        st.builds(
            ClientTotalReported,
            st.builds(ClientTotals, st.just("s"), st.integers(0, 9).map(float), st.just(0)),
        ),
        st.builds(UnknownRecord, st.sampled_from(["hologram", "beam"])),
    )


def blocks_of(entry):
    content = entry.event.content if isinstance(entry.event, AssistantReply) else ()
    return [block for block in content if isinstance(block, ToolUse)]


@st.composite
def random_entries(draw):
    """Entries of a main thread and two subagents: most in order, some late, some without a parent or an id."""
    items, at_ms = [], 1_000
    for number in range(draw(st.integers(0, 30))):
        subagent = draw(st.sampled_from(["", "", "", "a1", "a2"]))
        own = [item.uuid for item in items if item.subagent == subagent and item.uuid]
        parents = (
            st.sampled_from([own[-1], own[-1], own[-1], *own, "missing", ""])
            if own
            else st.just("")
        )
        uuid = draw(st.sampled_from([f"u{number}", f"u{number}", f"u{number}", ""]))
        at_ms += draw(st.sampled_from([1, 1, 1, 0, -3]))
        calls = [
            block.id for item in items if item.subagent == subagent for block in blocks_of(item)
        ]
        event = draw(events(f"{subagent}c{number}", calls))
        scene = RecordContext(
            draw(st.sampled_from(["", "/a", "/b"])),
            "main",
            draw(st.sampled_from(["2.0.9", "2.0.10"])),
        )
        key = f"{uuid or number}:0"
        items.append(
            Entry(
                event,
                "s",
                uuid,
                draw(parents),
                at_ms,
                at_ms,
                subagent,
                scene,
                key,
                "f",
                number * 10,
                10,
            )
        )
    if items:
        items += draw(st.lists(st.sampled_from(items), max_size=2))
    return items
