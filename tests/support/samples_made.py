"""A small run with samples on disk, as `harness resample` leaves them: real session, real layout, made-up answers."""

import json

from flightlog.lab.resample import layout
from flightlog.lab.resample.state import BatchLimits, BatchStarted, SampleTarget
from flightlog.store.journal import Journal
from support.labs import bash, config, run, script

MODEL = "claude-opus-5-5"


def make_source_run(root, **more):
    """A run of one session of two turns, by the scripted agent."""
    given = config(root, script([bash("ls")], "done"), "look", engine="scripted", **more)
    return run(root, given, env={"PATH": "/usr/bin:/bin", "HOME": str(root / "home")})


def write_samples(
    book, request, variant, answers, *, label="", until_width=None, session="session_01"
):
    """Put answers down as samples of a request; a string is words, else a tool's name and input."""
    for number, answer in enumerate(answers, 1):
        content = (
            [{"type": "text", "text": answer}]
            if isinstance(answer, str)
            else [
                {"type": "tool_use", "id": f"toolu_{number}", "name": answer[0], "input": answer[1]}
            ]
        )
        sample = {
            "id": f"msg_{variant}_{number}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": content,
            "stop_reason": "end_turn" if isinstance(answer, str) else "tool_use",
            "usage": {"input_tokens": 1000, "output_tokens": 20 + 3 * number},
        }
        path = book.path / layout.SampleItem(session, request, variant, number).answer_file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(sample))
    if variant:
        edits = [{"path": ["system"], "original": "a", "replacement": "b"}]
        (path.parent / layout.VARIANT).write_text(
            json.dumps({"label": label, "edits": edits, "source": "test"})
        )
    if until_width:
        target = SampleTarget(session, request, variant, "", 1, len(answers))
        journal = Journal(
            book.path / layout.JOURNAL, BatchStarted, now=lambda: "t", new_id=lambda: "i"
        )
        journal.append(BatchStarted("b1", (target,), BatchLimits(until_width=until_width)))
