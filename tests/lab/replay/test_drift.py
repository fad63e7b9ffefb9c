"""Drifts planted on purpose: each is found, named, and where the proxy cannot take it out, refused."""

import json
import re
import shutil

from support.labs import rewrite_config


def copy_edited_run(ground, name, edit):
    """A copy of the run in which something is not as it was."""
    copy = ground.root / "runs" / name
    shutil.copytree(ground.root / "runs" / "run", copy, symlinks=True)
    edit(copy)
    rewrite_config(copy, (copy / "config.yaml").read_text())
    return name


def certificate(book):
    return json.loads((book.path / "replay_meta.json").read_bytes())["certificate"]


def make_edit(file, pattern, into):
    def edit(run):
        text, times = re.subn(pattern, into, (run / file).read_text())
        assert times, f"nothing to plant in {file}"
        (run / file).write_text(text)

    return edit


def test_a_missing_client_tool_is_refused_before_any_request(ground):
    run = copy_edited_run(ground, "tools", make_edit("config.yaml", r"\n +- Bash\b", ""))
    before = ground.count()

    book = ground.branch("refused", 1, 3, run=run)

    assert certificate(book)["verdict"] == "differs"
    assert certificate(book)["first_difference"] == "tools.Bash (the client does not have it)"
    assert certificate(book)["is_refused"]
    assert ground.count() == before
    assert book.state.last_attempt("session_01").stop_reason == "error"

    allowed = ground.branch("allowed", 1, 7, run=run, allow_drift=True)  # one request, no tools

    assert (certificate(allowed)["verdict"], certificate(allowed)["is_refused"]) == (
        "differs",
        False,
    )
    assert json.loads((allowed.path / "run_meta.json").read_bytes())["replay_verdict"] == "differs"


def test_another_system_prompt_is_named_and_the_recorded_one_is_sent(ground):
    run = copy_edited_run(
        ground,
        "system",
        make_edit("config.yaml", r"(?m)^system_prompt: .*$", "system_prompt: Be rude."),
    )

    book = ground.branch("system-b", 1, 7, run=run)

    assert certificate(book)["verdict"] == "exact"
    assert any(
        replacement.startswith("system") for replacement in certificate(book)["replacements"]
    )
    asked = ground.list_requests(book.state.last_attempt("session_01").session_id)
    assert asked == ground.list_requests(ground.source(1).read.attempt.session_id)[6:]


def test_an_edited_message_is_named_and_the_recorded_one_is_sent(ground):
    edit = make_edit("session_01/transcript.jsonl", r'"text":"looking"', '"text":"lurking"')

    book = ground.branch("edited-b", 1, 7, run=copy_edited_run(ground, "edited", edit))

    assert certificate(book)["verdict"] == "exact"
    recorded = ground.list_requests(ground.source(1).read.attempt.session_id)[6:]
    at = next(
        at
        for at, message in enumerate(recorded[0]["messages"])
        if "looking" in str(message["content"])
    )
    assert certificate(book)["replacements"] == [f"messages[{at}].content[0].text"]
    asked = ground.list_requests(book.state.last_attempt("session_01").session_id)
    assert asked == recorded
