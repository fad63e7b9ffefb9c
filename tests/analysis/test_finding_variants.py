"""Other forms of each finding, and ordinary work that looks like one."""

import pytest

from flightlog.analysis.findings.rank import find_findings
from flightlog.analysis.findings.waste import is_rejection
from support.planted_findings import CART, build_session, edit, read, run


def play_steps(steps):
    """Return a scene of steps: (what, arguments), where a plain text is a prompt."""

    def play(scene, **_):
        tools = {"edit": edit, "read": read, "run": run}
        for step in steps:
            if isinstance(step, str):
                scene.ask(step)
            elif step[0] in tools:
                outcome = {name: True for name in step[1:] if name in {"fails", "denied"}}
                words = [word for word in step[1:] if word not in {"fails", "denied"}]
                tools[step[0]](scene, *words, **outcome)
            elif step[0] == "call":
                scene.call(
                    *step[1:3],
                    *step[3:4] or ("done",),
                    fails="fails" in step,
                    denied="denied" in step,
                )
            else:
                getattr(scene, step[0])(*step[1:])

    return play


def kinds_of(tmp_path, steps):
    return [finding.kind for finding in find_findings(build_session(tmp_path, play_steps(steps)))]


def edit_call(old, new):
    return ("call", "Edit", {"file_path": CART, "old_string": old, "new_string": new})


def write_call(content):
    return ("call", "Write", {"file_path": CART, "content": content})


FAILED_TEST = "FAILED tests/test_a.py::test_x - assert 3 == 4\n1 failed, 3 passed in 0.{}s"
GO_FAILED = "--- FAIL: TestSum (0.00s)\n    sum_test.go:9: got {}, want 9\nFAIL\tshop\t0.1s"
NO_TEXT = "<tool_use_error>String to replace not found in file.</tool_use_error>"
DONE = ("say", "Finished.")
TRY = ("run", "python3 shop.py", "12")
FOUND = {
    "missing script": (
        "repeated-failure",
        ["Go", *[("run", "npm test", 'Exit code 1\nnpm ERR! Missing script: "test"', "fails")] * 3, DONE],
    ),
    "text to replace is not there": (
        "repeated-failure",
        ["Go", *[(*edit_call(f"x{number}", "y"), NO_TEXT, "fails") for number in range(3)], DONE],
    ),
    "same test fails after each edit": (
        "repeated-failure",
        [
            "Go",
            *[
                step
                for number in range(3)
                for step in (
                    ("run", "pytest -q", FAILED_TEST.format(number), "fails"),
                    ("edit", f"a{number}", f"b{number}"),
                )
            ],
            ("run", "pytest -q", "4 passed"),
            DONE,
        ],
    ),
    "same test of Go fails": (
        "repeated-failure",
        ["Go", *[("run", "go test ./...", f"--- FAIL: TestX (0.0{number}s)", "fails") for number in range(3)], DONE],
    ),
    "same page asked other questions": (
        "repeated-failure",
        ["Go", *[("call", "WebFetch", {"url": "https://shop.test", "prompt": name}, "status 403", "fails")
                 for name in "abc"], DONE],
    ),
    "test run denied": (
        "untested-change",
        ["Fix it", ("edit", "a", "b"), ("run", "pytest", "no", "denied"), ("say", "So.")],
    ),
    "earlier content written again": (
        "edit-undo",
        ["Go", write_call("a\n"), write_call("b\n"), write_call("a\n"), TRY, DONE],
    ),
    "a line of a larger edit changed back": (
        "edit-undo",
        ["Go", ("edit", "f():\n  a = 1\n  end", "f():\n  a = 2\n  end"), ("edit", "  a = 2", "  a = 1"), TRY, DONE],
    ),
    "changed back with more of the line": (
        "edit-undo",
        ["Go", ("edit", "wait=30", "wait=60"), TRY, ("edit", "ask(wait=60)", "ask(wait=30)"), TRY, DONE],
    ),
    "file shown by commands": ("repeated-read", ["Go", *[("run", "cat src/a.py", "text")] * 5, DONE]),
    "file read in every turn": (
        "repeated-read",
        [step for number in range(3) for step in (f"Question {number}", ("read",), ("say", "So."))],
    ),
    "two commands in turn": (
        "tool-loop",
        ["Go", *[("run", "git status", "clean"), ("run", "ls", "a b")] * 4, DONE],
    ),
    "three variants of a denied command": (
        "denied-retry",
        ["Go", *[("run", f"rm {flag} build", "no", "denied") for flag in ("-rf", "-r", "-fr")], DONE],
    ),
    "denied command with another option": (
        "denied-retry",
        ["Go", *[("run", f"git push{flag} origin main", "no", "denied") for flag in ("", " -f")], DONE],
    ),
    "claimed to be ready": (
        "untested-change",
        ["Add a filter", ("edit", "a", "b"), ("say", "The filter is ready to use.")],
    ),
    "claimed to pass": ("untested-change", ["Round it", ("edit", "a", "b"), ("say", "All tests pass.")]),
    "defect fixed blindly": ("untested-change", ["Fix the crash", ("edit", "a", "b"), DONE]),
    "three files": (
        "untested-change",
        ["Build it", *[("edit", "a", "b", f"/x/{name}.py") for name in "abc"], DONE],
    ),
    "page asked for again": (
        "denied-retry",
        ["Go", *[("call", "WebFetch", {"url": "http://a.org", "prompt": text}, "no", "denied") for text in "ab"], DONE],
    ),
    "stash without pop": ("discarded-work", ["Go", ("edit", "a", "b"), TRY, ("run", "git stash"), DONE]),
    "hard reset": ("discarded-work", ["Go", ("edit", "a", "b"), TRY, ("run", "git reset --hard"), DONE]),
    "new file cleaned away": (
        "discarded-work",
        ["Go", write_call("a\n"), TRY, ("run", "git clean -fd", "Removing src/cart.py"), DONE],
    ),
    "forced switch": (
        "discarded-work",
        ["Go", ("edit", "a", "b"), TRY, ("run", "git switch -f main"), DONE],
    ),
    "checkout without dashes": (
        "discarded-work",
        ["Go", ("edit", "a", "b"), TRY, ("run", "cd /home && git checkout src/cart.py"), DONE],
    ),
    "commit taken back": (
        "discarded-work",
        ["Go", ("edit", "a", "b"), TRY, ("run", "git commit -am x", "[main 1a2b3c4] x"),
         ("run", "git revert HEAD"), DONE],
    ),
    "forbidden program used": (
        "forgotten-after-compaction",
        ["Never use npm here.", ("run", "pnpm add a"), ("say", "So."), ("add_compaction",), "Add b",
         ("run", "npm install b"), DONE],
    ),
    "forbidden file changed": (
        "forgotten-after-compaction",
        ["Do not touch config/prod.yml", ("run", "ls"), ("say", "So."), ("add_compaction",), "Deploy",
         ("edit", "a", "b", "/x/config/prod.yml"), DONE],
    ),
    "said again": (
        "forgotten-after-compaction",
        ["Use tabs", ("run", "ls"), ("say", "So."), ("add_compaction",), "Format it", ("run", "ls web"),
         "As I said, use tabs", ("run", "ls src"), DONE],
    ),
    "given up by the agent": (
        "wrong-turn",
        ["Speed it up", ("edit", "a", "b"), TRY, ("say", "The wrong approach."), ("edit", "c", "d"), TRY, DONE],
    ),
}  # fmt: skip
CLEAN = {
    "tests written first": [
        "Go",
        *[
            step
            for number, name in enumerate("abcd")
            for step in (
                ("run", "pytest -q", f"FAILED t.py::test_{name}\n1 failed, {number} passed", "fails"),
                ("edit", f"a{number}", f"b{number}"),
                ("run", "pytest -q", f"{number + 1} passed"),
            )
        ],
        ("say", "All tests pass."),
    ],
    "files that do not exist": [
        "Look",
        *[("call", "Read", {"file_path": f"/x/{name}"}, "File does not exist.", "fails") for name in "abcd"],
        DONE,
    ],
    "parts of a file": [
        "Look",
        *[("call", "Read", {"file_path": CART, "offset": 100 * number}, "text") for number in range(5)],
        DONE,
    ],
    "waiting": ["Go", *[("run", "sleep 30; gh run view 1", "in progress")] * 8, DONE],
    "status after each edit": [
        "Go",
        *[step for number in range(5) for step in (("edit", f"a{number}", f"b{number}"), ("run", "git status", "M"))],
        TRY,
        DONE,
    ],
    "stash and pop": ["Go", ("edit", "a", "b"), ("run", "git stash"), TRY, ("run", "git stash pop"), TRY, DONE],
    "stash and pop at once": ["Go", ("edit", "a", "b"), ("run", "git stash && make && git stash pop"), TRY, DONE],
    "another value in each test run": [
        "Go",
        *[("run", "go test ./...", GO_FAILED.format(value), "fails") for value in range(4)],
        DONE,
    ],
    "another warning each time": [
        "Go",
        *[("run", "ruff check .", f"{name}.py:1:1: F401\nFound 1 error.", "fails") for name in "abc"],
        DONE,
    ],
    "clean that leaves the new file": [
        "Go", write_call("a\n"), TRY, ("run", "git clean -fd", "Removing build/"), DONE,
    ],
    "values changed in two places": [
        "Go", ("edit", "wait = 30", "wait = 60"), ("edit", "size = 60", "size = 30"), TRY, DONE,
    ],
    "tickets that are not there": [
        "Look", *[("call", "mcp__t__get", {"key": name}, "no such ticket", "fails") for name in "abcd"], DONE,
    ],
    "output for debugging": ["Go", ("edit", "a", "a\nprint(a)"), TRY, ("edit", "a\nprint(a)", "a"), TRY, DONE],
    "denied once each time": [
        "Go", ("run", "git push", "no", "denied"), ("run", "git push"), ("run", "git push", "no", "denied"), DONE,
    ],
    "small change": ["Rename it", ("read",), ("edit", "a", "b"), DONE],
    "run elsewhere": ["Fix it, I will test it", ("edit", "a", "b"), DONE],
    "documentation": ["Fix it", ("edit", "a", "b", "/x/README.md"), ("run", "git commit -am x", "[m 1a2b3c4]"), DONE],
    "read again to edit after a compaction": [
        "Look", ("read",), ("say", "So."), ("add_compaction",), "Go", ("read",), ("edit", "a", "b"), TRY, DONE,
    ],
    "asked to read again": ["Look", ("read",), "Look at cart.py", ("read",), "And cart.py?", ("read",), DONE],
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_other_forms_of_a_finding_are_found(tmp_path, name):
    kind, steps = FOUND[name]

    assert kinds_of(tmp_path, steps) == [kind]


@pytest.mark.parametrize("name", CLEAN)
def test_ordinary_work_has_no_findings(tmp_path, name):
    assert kinds_of(tmp_path, CLEAN[name]) == []


@pytest.mark.parametrize(
    "prompt",
    ["No, the other one", "No, change the footer", "That's wrong", "I meant the footer", "Wrong file!",
     "Stop. Go back.", "undo", "That broke the page",
     "Please roll that back, it was right", "Please revert your changes",
     "Hmm, no that isn't right", "not what I asked for", "This is Spanish. I wanted French!"],
)  # fmt: skip
def test_prompt_that_rejects_is_recognized(prompt):
    assert is_rejection(prompt)


@pytest.mark.parametrize(
    "prompt",
    ["No problem. Now the footer", "Stop the dev server", "Nothing else, thanks", "No, thanks", "Not bad! Add a footer",
     "No need to test. Commit it", "Undo support would be nice", "Now revert commit 1a2b3c4", "Notice the padding?",
     "I wanted to ask for a footer too", "This is fine, not urgent: add a footer"],
)  # fmt: skip
def test_prompt_that_goes_on_is_no_rejection(prompt):
    assert not is_rejection(prompt)
