"""Findings: each kind where it was planted, nothing in its clean twin, and never an error."""

import json
import sys
from datetime import UTC

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.analysis.findings.rank import FINDINGS_MAX, find_findings
from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.archive.sharing import redact_session
from flightlog.model.addresses import parse_address
from flightlog.model.entries import PromptKind, Text
from flightlog.model.session import Note, NoteKind, Session, Step, Subagent, ToolCall, Turn
from flightlog.model.usage import CostSource
from flightlog.privacy.redactor import Redactor
from flightlog.views.session.timeline import all_steps, find_part
from flightlog.web.share import render_share_page
from flightlog.web.templates import make_environment
from support import recordings
from support.cli_runs import within
from support.planted_findings import PLANTED, SESSION, build_session, edit, read, run

INPUTS = (
    {"command": "pytest -q"},
    {"command": "git checkout -- a.py"},
    {"command": "cat a.py"},
    {"command": ["bash", "-c", "npm test"]},
    {"file_path": "/x/a.py"},
    {"file_path": "/x/a.py", "old_string": "a", "new_string": "b"},
    {"file_path": "/x/a.py", "old_string": "b", "new_string": "a"},
    {"file_path": "/x/a.py", "content": "a\nb"},
    {"input": "*** Begin Patch\n*** Update File: a.py\n-a\n+b\n*** End Patch"},
    {"pattern": None, "path": 3},
    {},
)
OUTPUTS = (
    "",
    "1 failed",
    "5 passed",
    "Exit code 1\nerror: no such file",
    "[main 1a2b3c4] x",
    "\x1b[2J",
)
PROMPTS = ("", "No, undo that", "continue", "Fix the bug", "never use npm", "As I said", "💥" * 50)
NAMES = ("Bash", "Read", "Edit", "Write", "apply_patch", "Grep", "Task", "mcp__x__y", "")
calls = st.builds(
    ToolCall,
    id=st.sampled_from(["c1", "c2", "c3"]),
    name=st.sampled_from(NAMES),
    input=st.sampled_from(INPUTS) | st.dictionaries(st.text(max_size=5), st.integers() | st.text(), max_size=2),
    result=st.none() | st.tuples(st.sampled_from(OUTPUTS).map(Text)),
    is_error=st.booleans(),
    denial_reason=st.sampled_from(["", "", "user-rejected"]),
)  # fmt: skip
steps = st.builds(
    Step,
    number=st.just(0),
    message_id=st.just("m"),
    at_ms=st.none(),
    model=st.just("m"),
    content=st.tuples(st.sampled_from(PROMPTS).map(Text)),
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    is_aborted=st.booleans(),
    cost_usd=st.none() | st.floats(0, 10),
    cost_source=st.just(CostSource.TABLE),
)
notes = st.builds(Note, st.sampled_from(NoteKind), st.just("note"))


@st.composite
def turn_lists(draw):
    """Draw turns whose turns and steps are numbered."""
    turns = []
    for number in range(1, draw(st.integers(0, 4)) + 1):
        items = draw(st.lists(steps | steps | notes, max_size=8))
        counted = [item for item in items if isinstance(item, Step)]
        numbers = {id(item): place for place, item in enumerate(counted, 1)}
        items = [
            replace(item, number=numbers[id(item)]) if isinstance(item, Step) else item
            for item in items
        ]
        kind, prompt = draw(st.sampled_from([None, *PromptKind])), draw(st.sampled_from(PROMPTS))
        turns.append(
            Turn(number, kind, (Text(prompt),), None, tuple(items), is_rewound=draw(st.booleans()))
        )
    return tuple(turns)  # fmt: skip


def make_session(turns, inner):
    subagents = tuple(
        Subagent(f"s{number}", "", "", "c1", part) for number, part in enumerate(inner)
    )
    return Session(SESSION, "codex", "", "/x", "", "", "", None, None, turns, subagents, None)


@pytest.mark.parametrize("kind", PLANTED)
def test_each_kind_is_found_where_it_begins(tmp_path, kind):
    play, place = PLANTED[kind]

    findings = find_findings(build_session(tmp_path, play))

    assert [(finding.kind, finding.address) for finding in findings] == [
        (kind, f"{SESSION}#{place}")
    ]
    assert findings[0].cost_usd > 0


@pytest.mark.parametrize("kind", PLANTED)
def test_clean_twin_of_each_kind_has_no_findings(tmp_path, kind):
    findings = find_findings(build_session(tmp_path, PLANTED[kind][0], is_clean=True))

    assert findings == ()


@given(turn_lists(), st.lists(turn_lists(), max_size=2))
def test_random_session_has_findings_that_open_and_cost_no_more_than_it(turns, inner):
    session = make_session(turns, inner)

    findings = find_findings(session)

    total = sum(step.cost_usd or 0.0 for step in all_steps(session))
    assert len(findings) <= FINDINGS_MAX
    for finding in findings:
        assert finding.kind in PLANTED
        assert (finding.cost_usd or 0.0) <= total + 1e-9
        assert finding.address == finding.evidence[0]
        for address in finding.evidence:
            assert isinstance(find_part(session, parse_address(address)), Step)


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-{}\n+{}\n*** End Patch"
# How each agent reads a file, runs tests, makes an edit and takes it back.
TOOLS = {
    "codex": (
        ("exec_command", {"cmd": "sed -n 1,50p a.py"}),
        ("shell", {"command": ["bash", "-lc", "cat /x/a.py"]}),
        ("apply_patch", {"input": PATCH.format("a", "b")}),
        ("apply_patch", {"input": PATCH.format("b", "a")}),
    ),
    "gemini": (
        ("read_file", {"absolute_path": "/x/a.py"}),
        ("run_shell_command", {"command": "cat a.py"}),
        ("replace", {"file_path": "/x/a.py", "old_string": "a", "new_string": "b"}),
        ("replace", {"file_path": "/x/a.py", "old_string": "b", "new_string": "a"}),
    ),
    "opencode": (
        ("read", {"filePath": "/x/a.py"}),
        ("bash", {"command": "cat a.py"}),
        ("edit", {"filePath": "/x/a.py", "oldString": "a", "newString": "b"}),
        ("edit", {"filePath": "/x/a.py", "oldString": "b", "newString": "a"}),
    ),
    "copilot": (
        ("view", {"path": "/x/a.py"}),
        ("bash", {"command": "cat a.py"}),
        ("str_replace", {"path": "/x/a.py", "old_str": "a", "new_str": "b"}),
        ("str_replace", {"path": "/x/a.py", "old_str": "b", "new_str": "a"}),
    ),
    "pi": (
        ("read", {"path": "/x/a.py"}),
        ("bash", {"command": "cat a.py"}),
        ("edit", {"path": "/x/a.py", "oldText": "a", "newText": "b"}),
        ("edit", {"path": "/x/a.py", "oldText": "b", "newText": "a"}),
    ),
}


@pytest.mark.parametrize("agent", TOOLS)
def test_tools_of_every_agent_are_understood(agent):
    read_call, show_call, *edits = TOOLS[agent]
    made = [*[read_call] * 3, *[show_call] * 3, *edits]
    items = tuple(
        Step(number, "m", None, "m", (), (ToolCall(str(number), *call, (Text("same"),)),),
             cost_usd=1.0, cost_source=CostSource.TABLE)
        for number, call in enumerate(made, 1)
    )  # fmt: skip

    findings = find_findings(make_session((Turn(1, PromptKind.HUMAN, (), None, items),), ()))

    assert {(finding.kind, finding.address.partition("#")[2]) for finding in findings} == {
        ("repeated-read", "1.1"),
        ("repeated-read", "1.4"),
        ("edit-undo", "1.7"),
    }


@pytest.mark.parametrize(
    "frame",
    [
        "Chunk ID: a{0}\nWall time: 0.{0} seconds\nProcess exited with code 0\nOutput:\nsame",
        "<untrusted_context>\nOutput: same\nProcess Group PGID: {0}\n</untrusted_context>",
        "same\n<shellId: {0} completed with exit code 0>",
    ],
)
def test_frames_that_clients_put_around_output_do_not_make_it_another(frame):
    made = [("shell", {"command": "git log"})] * 4 + [("shell", {"command": "cat a.py"})] * 3
    items = tuple(
        Step(number, "m", None, "m", (),
             (ToolCall(str(number), *call, (Text(frame.format(7 ** number)),)),),
             cost_usd=1.0, cost_source=CostSource.TABLE)
        for number, call in enumerate(made, 1)
    )  # fmt: skip

    findings = find_findings(make_session((Turn(1, PromptKind.HUMAN, (), None, items),), ()))

    assert {finding.kind for finding in findings} == {"tool-loop", "repeated-read"}


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m 'revert the header; restore the tests'",
        "git commit -m \"$(cat <<'EOF'\nUse pytest; run it\nEOF\n)\"",
        "git checkout main",
        "git stash list",
        "git restore --staged src/main/cart.py",
        "pip install pytest",
    ],
)
def test_commands_that_only_name_an_action_do_not_count(tmp_path, command):
    def play(scene, **_):
        scene.ask("Change the cart")
        edit(scene, "a", "b", "/x/src/main/cart.py")
        run(scene, "python3 shop.py", "12")
        run(scene, "git commit -am first", "[main 1a2b3c4] first")
        edit(scene, "c", "d", "/x/README.md")
        run(scene, command)
        scene.say("Changed.")

    assert find_findings(build_session(tmp_path, play)) == ()


def test_commit_message_is_not_a_run_of_the_change(tmp_path):
    def play(scene, **_):
        scene.ask("Change the cart")
        edit(scene, "a", "b")
        run(
            scene,
            "git commit -m \"$(cat <<'EOF'\nUse pytest; run it\nEOF\n)\"",
            "[main 1a2b3c4] Use",
        )
        scene.say("Changed.")

    assert [finding.kind for finding in find_findings(build_session(tmp_path, play))] == [
        "untested-change"
    ]


def test_recordings_have_only_what_the_person_interrupted_or_took_back(tmp_path):
    archive = recordings.archive(tmp_path, *recordings.FROZEN_CASES)

    findings = {
        (finding.kind, finding.address.partition("#")[2])
        for session in archive.iter_sessions()
        for finding in find_findings(session)
    }

    assert findings == {("wrong-turn", "3.1"), ("interruption", "1.2")}


def count_lines_run(session):
    """The lines of source that the detectors run for a session."""
    lines = 0

    def count(_frame, event, _arg):
        nonlocal lines
        lines += event == "line"
        return count

    tracer = sys.gettrace()  # of the coverage measurement
    sys.settrace(count)
    try:
        find_findings(session)
    finally:
        sys.settrace(tracer)
    return lines


def play_long(scene, count):
    for number in range(count // 8):
        scene.ask(f"No, change file {number}. Never use npm{number}")
        read(scene, f"/x/{number % 50}.py")
        edit(scene, f"a{number}", f"b{number}", f"/x/{number}.py")
        edit(scene, f"b{number}", f"a{number}", f"/x/{number}.py")
        run(scene, f"make {number}", f"error {number}", fails=True)
        run(scene, "git status", "clean")
        run(scene, f"pytest tests/{number}.py", f"{number} passed")
        run(scene, f"git push {number}", "no", denied=True)
        if number % 20 == 0:
            scene.add_compaction()
        scene.say("done")


def test_work_of_the_detectors_grows_with_the_steps(tmp_path):
    short, long = (
        build_session(tmp_path / str(count), lambda scene, count=count, **_: play_long(scene, count))
        for count in (400, 1_600)
    )  # fmt: skip

    assert count_lines_run(long) < 4.6 * count_lines_run(short)


def test_commands_show_the_same_findings_of_a_session(tmp_path):
    session = build_session(tmp_path, PLANTED["edit-undo"][0])

    one = json.loads(within(tmp_path, "session", "findings", SESSION[:8], "--json").out)
    every = json.loads(within(tmp_path, "session", "findings", "--json").out)
    none = json.loads(within(tmp_path, "session", "findings", "--project", "none", "--json").out)
    shown = json.loads(within(tmp_path, "session", "show", SESSION, "--json").out)
    text = within(tmp_path, "session", "show", SESSION).out
    table = within(tmp_path, "session", "findings").out

    assert one == every == json.loads(msgspec.json.encode({"findings": find_findings(session)}))
    assert shown["findings"] == one["findings"]
    assert none == {"findings": []}
    assert f"edit-undo at #1.2: {one['findings'][0]['title']}; $0.0003; then #1.4" in text
    assert f"{SESSION[:8]}#1.2" in table


def test_copied_session_does_not_repeat_its_findings(tmp_path):
    build_session(tmp_path, PLANTED["edit-undo"][0])
    path = next(tmp_path.glob("projects/*/*.jsonl"))
    copy = "9" + SESSION[1:]
    path.with_name(f"{copy}.jsonl").write_text(path.read_text().replace(SESSION, copy))

    findings = json.loads(within(tmp_path, "session", "findings", "--json").out)["findings"]

    assert [finding["address"] for finding in findings] == [f"{SESSION}#1.2"]


def test_shared_findings_are_made_of_redacted_text(tmp_path):
    secret = "ghp_" + "x9K2mQ7vB4nL8sR3tW6yZ1aC5dF0gH2jK4pN"

    def play(scene, *, is_clean):
        scene.ask("Upload it")
        for _ in range(3):
            run(scene, f"upload --token {secret}", f"error: wrong token {secret}", fails=True)

    session = build_session(tmp_path, play)
    archive = Archive({"claude-code": (str(tmp_path),)})
    document, redactor = redact_session(open_runtime(), archive, session, Redactor(b"k" * 32))

    page = render_share_page(document, redactor, make_environment(UTC, lambda: 0)).value

    assert secret in find_findings(session)[0].title
    assert (
        "upload --token &lt;secret:"
        in page[page.index('id="findings"') :].partition("</section>")[0]
    )
    assert secret not in page
