"""Foreign text on a real terminal: whatever a transcript holds, it is shown and does nothing."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from flightlog.web.share import SCRIPT
from flightlog.web.templates import STATIC
from support.cli_runs import on_a_terminal, within
from support.transcripts import SESSION, assistant, user, write

ATTACKS = [
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b]8;;https://example.test\x1b\\x\x1b]8;;\x1b\\",
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "\x1b[31m",
    "\x1b[6n",
    "\x1bP+q\x1b\\",
    "\x9b31m",
    "\x9d52;c;x\x9c",
    "[/red]",
    "[link=https://example.test]x[/link]",
    "[bold]",
    "{x}",
    "%s",
    "over\rwritten",
    "\x08\x08\x08",
    "\u202etxt.exe",
    "\u2066x",
    "\x00",
    "\x7f",
    "\x1b",
    "\u2028",
    "```\n<script>",
    "\ud83d",
    "](x)<img>",
]
WORDS = " ".join(ATTACKS)
OURS = re.compile(r"\x1b\[[0-9;]*m")
COMMANDS = [
    ("session", "list"),
    ("session", "list", "--json"),
    ("session", "show", SESSION),
    ("session", "show", SESSION, "--full"),
    ("session", "show", SESSION, "--json"),
    ("session", "show", f"{SESSION}#1.1"),
    ("session", "usage", "--by", "model"),
    ("session", "usage", "--by", "project"),
    ("session", "usage", "--by", "project", "--json"),
    ("session", "export", SESSION),
    ("session", "export", SESSION, "--format", "html"),
    ("session", "export", SESSION, "--format", "json"),
    ("session", "search", "secret"),
    ("session", "search", "secret", "--json"),
    ("session", "follow", SESSION, "--idle", "0.1"),
    ("session", "follow", SESSION, "--idle", "0.1", "--json"),
    ("up",),
    ("up", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("status",),
    ("status", "--json"),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Every field that is ever shown, filled with attacks."""
    root = tmp_path_factory.mktemp("hostile")
    place = {"cwd": f"/{WORDS}", "gitBranch": WORDS, "version": WORDS, "entrypoint": WORDS}
    call = {
        "type": "tool_use",
        "id": WORDS,
        "name": WORDS,
        "input": {"command": WORDS, WORDS: WORDS},
    }
    reply = assistant(
        "m1",
        2,
        {"type": "text", "text": WORDS},
        {"type": "thinking", "thinking": WORDS},
        call,
        **place,
    )
    reply["message"] |= {"model": WORDS, "stop_reason": WORDS}
    result = {
        "type": "tool_result",
        "tool_use_id": WORDS,
        "content": f"secret {WORDS}",
        "is_error": True,
    }
    records = [
        user(f"secret {WORDS}", 1, **place, **{f"field{WORDS}": 1}),
        reply,
        user([result], 3, toolDenialKind=WORDS, **place),
        user(
            [
                {"type": "image", "source": {"media_type": WORDS, "data": "x"}},
                {"type": WORDS, "text": WORDS},
            ],
            4,
            **place,
        ),
        {"type": f"hologram{WORDS}", "uuid": "u5", WORDS: 1},
        {"type": "system", "subtype": "informational", "content": WORDS, "uuid": "u6"},
        {"type": "system", "subtype": "api_error", "error": {"formatted": WORDS}, "uuid": "u7"},
        {
            "type": "system",
            "subtype": "compact_boundary",
            "compactMetadata": {"trigger": WORDS},
            "uuid": "u8",
        },
        {"type": "custom-title", "customTitle": WORDS},
        user("inner", 20, isSidechain=True, agentId=WORDS, parentUuid=None, uuid=WORDS),
        b"\x1b]0;damaged\x07",
    ]
    write(root, SESSION, *records)
    write(root, "bad name\x1b[31m", user("x"))
    return root


@pytest.mark.parametrize(
    "command", [COMMANDS[place] for place in (0, 3, 4, 6, 9, 14, 16, 18)], ids=" ".join
)
def test_nothing_but_our_own_colours_reaches_the_terminal(hostile, command):
    screen = on_a_terminal(hostile, *command)

    assert len(screen) > 40
    rest = OURS.sub("", screen).replace("\r\n", "\n").replace("\n\r", "\n")
    assert (
        re.findall(
            r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069]", rest
        )
        == []
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_same_holds_in_a_file_and_json_is_json(hostile, command):
    ran = within(hostile, *command, color=True)

    assert ran.code in {0, 3}, ran.err
    assert "Traceback" not in ran.err
    for text in (ran.out, ran.err):
        assert (
            re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff\u202e]", OURS.sub("", text))
            == []
        )
    if "--json" in command:
        for document in ran.out.splitlines() if "follow" in command else [ran.out]:
            json.loads(document)


def test_an_exported_page_runs_its_own_script_only_and_loads_nothing(hostile):
    page = PageParts()
    page.feed(within(hostile, "session", "export", SESSION, "--format", "html").out)

    (script,) = page.texts["script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [
        given["content"] for name, given in page.tags if name == "meta" and "http-equiv" in given
    ]
    links = [given["href"] for _, given in page.tags if "href" in given]
    assert policy.startswith(
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'sha256-"
    )
    assert script == (STATIC / SCRIPT).read_text("utf-8")
    assert {name for name, _ in page.tags} & {"iframe", "object", "embed", "form", "base"} == set()
    assert [name for _, given in page.tags for name in given if name.startswith("on")] == []
    assert [given for _, given in page.tags if "src" in given or "style" in given] == []
    assert [link for link in links if not link.startswith("#")] == []


class PageParts(HTMLParser):
    """Tags of a page with their attributes, and the texts of its scripts and styles."""

    def __init__(self):
        super().__init__()
        self.tags, self.texts, self.inside = [], {"script": [], "style": []}, ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag if tag in self.texts else ""

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside].append(data)
            self.inside = ""


def test_exported_markdown_keeps_foreign_text_inside_its_fences(hostile):
    text = within(hostile, "session", "export", SESSION).out

    fence = ""
    for line in text.splitlines():
        if not fence and re.match(r"`{3,}text$", line):
            fence = line.removesuffix("text")
        elif fence and line == fence:
            fence = ""
        elif not fence:
            assert "<script>" not in line
            assert "<img>" not in line.replace("\\<img\\>", "")
    assert not fence
