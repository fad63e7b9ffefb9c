"""A session in which every kind of tool call occurs, as Claude Code records them."""

from pathlib import Path

from support.transcripts import SESSION, assistant, stamp, user, write

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TESTS = "\n".join(f"tests/test_cart.py::test_{number} PASSED" for number in range(40))
CODE = 'def total(prices, tax=0.19):\n    """Return the sum."""\n    return round(sum(prices), 2)  # cents\n'
PROMPT = "Add **tax** to the cart:\n\n- keep `total()` working\n- add a test\n\n```python\ntotal([1])\n```"
TODOS = [
    {"content": "Read the cart", "status": "completed", "activeForm": "Reading"},
    {"content": "Add the tax", "status": "in_progress", "activeForm": "Adding"},
    {"content": "Run the tests", "status": "pending", "activeForm": "Running"},
]
QUESTION = {
    "question": "Which tax rate applies?",
    "header": "Tax",
    "multiSelect": False,
    "options": [
        {"label": "19 %", "description": "The usual rate"},
        {"label": "7 %", "description": "The reduced rate"},
    ],
}
# Name, input, output, and the client's own detail of the result.
CALLS: list[tuple[str, dict, object, object]] = [
    ("TodoWrite", {"todos": TODOS}, "Todos have been modified", None),
    ("TaskCreate", {"subject": "Fix rounding", "description": "Round at the end"}, "Task #1", None),
    ("TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1", None),
    (
        "AskUserQuestion",
        {"questions": [QUESTION]},
        "Your questions have been answered",
        {"answers": {QUESTION["question"]: "19 %"}},
    ),
    (
        "Grep",
        {"pattern": "def total", "path": "src", "output_mode": "content"},
        "src/cart.py:1:def total(prices):",
        None,
    ),
    ("Glob", {"pattern": "**/*.py"}, "src/cart.py\nsrc/shop.py", None),
    ("WebSearch", {"query": "VAT rate Germany 2026"}, "19 % is the usual rate.", None),
    (
        "WebFetch",
        {"url": "https://example.com/vat", "prompt": "Which rates are there?"},
        "There are two rates.",
        None,
    ),
    (
        "mcp__tracker__create_issue",
        {"title": "Tax is missing", "labels": ["bug"]},
        "Created #12",
        None,
    ),
    (
        "Read",
        {"file_path": "/home/ada/shop/src/cart.py"},
        "     1→def total(prices):\n     2→    return sum(prices)",
        None,
    ),
    (
        "Edit",
        {
            "file_path": "/home/ada/shop/src/cart.py",
            "old_string": "def total(prices):\n    return sum(prices)\n",
            "new_string": CODE,
        },
        "The file has been updated.",
        None,
    ),
    (
        "Write",
        {
            "file_path": "/home/ada/shop/tests/test_cart.py",
            "content": "def test_total():\n    assert total([1, 2]) == 3\n",
        },
        "File created",
        None,
    ),
    ("Bash", {"command": "pytest -q", "description": "Run the tests"}, TESTS, None),
    (
        "ExitPlanMode",
        {"plan": "## Plan\n\n1. Add the rate\n2. Test it"},
        "The plan was approved",
        None,
    ),
    ("Skill", {"skill": "review", "args": "src/cart.py"}, "Launching skill: review", None),
    (
        "Read",
        {"file_path": "/home/ada/shop/receipt.png"},
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
        None,
    ),
]


def write_showcase(config: Path) -> str:
    """Write the session below a configuration directory; return its id."""
    records = [user(PROMPT, 1)]
    for number, (name, given, output, detail) in enumerate(CALLS):
        at = 2 + 2 * number
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}
        records.append(assistant(f"msg_{number}", at, call))
        more = {"toolUseResult": detail} if detail else {}
        records.append(user([result], at + 1, timestamp=stamp(at + 1), **more))
    records.append(assistant("msg_last", 2 + 2 * len(CALLS), {"type": "text", "text": "Done."}))
    write(config, SESSION, *records)
    return SESSION
