"""A tool call as what it is: a check list, questions, a search, a page, a plan, a call of a server.

The input of a tool is foreign data of any shape: a part that is not as expected is shown as it is,
among the other arguments.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from flightlog.model.session import ToolCall
from flightlog.views.session.tools import PATH_NAMES, command_of, first_text, tool_kind

_MCP = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)
_GUTTER = re.compile(r"^\s*(\d+)(?:→|\t)(.*)$")
# The lists of Claude Code, OpenCode, Gemini and Qwen; of Codex.
_LISTS = ("todos", "plan")
_ITEM_TEXTS = ("content", "step", "description", "subject", "title")
_STATES = {
    "completed": "done",
    "complete": "done",
    "done": "done",
    "in_progress": "active",
    "cancelled": "dropped",
    "deleted": "dropped",
}
# Arguments that say what a call is about, the most telling first.
_MAIN_NAMES = {
    "search": ("pattern", "query"),
    "fetch": ("url", "query"),
    "delegate": ("description", "prompt"),
    "read": PATH_NAMES,
}
_MARKDOWN_NAMES = ("plan", "prompt")  # long texts that people or models wrote as Markdown


class ListItem(Struct, frozen=True):
    """An entry of a check list; its state is done, active, dropped or open."""

    state: str
    text: str


class QuestionOption(Struct, frozen=True):
    """An answer that was offered."""

    label: str
    description: str
    is_chosen: bool


class Question(Struct, frozen=True):
    """A question of the agent; `answer` is one in own words."""

    header: str
    text: str
    options: tuple[QuestionOption, ...]
    answer: str


class CallView(Struct, frozen=True):
    """The parts of a call: what is drawn in its own way, and `arguments`, which are the rest."""

    kind: str
    name: str
    server: str = ""
    main: str = ""
    note: str = ""
    items: tuple[ListItem, ...] = ()
    questions: tuple[Question, ...] = ()
    markdown: str = ""
    code: str = ""
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """Return the file that is read, whose name says how its text is colored."""
        return self.main if self.kind == "read" else ""


def describe_call(call: ToolCall) -> CallView:
    """Return the parts of a call."""
    given = call.executed_input or call.input
    if items := tuple(_list_items(given)):
        return CallView("list", call.name, items=items, arguments=_rest(given, _LISTS))
    if call.name in {"TaskCreate", "TaskUpdate"}:
        return _describe_task(call.name, given)
    if questions := tuple(_questions(given, call.detail)):
        return CallView("question", call.name, questions=questions)
    server = _MCP.fullmatch(call.name)
    if server:
        return CallView("mcp", server["tool"], server["server"], arguments=_rest(given, ()))
    if command := command_of(call):
        first, _, more = command.partition("\n")
        return CallView(
            "command",
            call.name,
            main=first,
            note=first_text(given, ("description",)) or "",
            code=command if more else "",
            arguments=_rest(given, ("command", "cmd", "description")),
        )
    return _describe_other(call.name, given)


def strip_gutter(text: str) -> str:
    """Return a file as it is, without the line numbers that a tool put before its lines."""
    lines = [_GUTTER.match(line) for line in text.rstrip("\n").split("\n")]
    return "\n".join(line[2] for line in lines if line) if all(lines) else text


def _describe_task(name: str, given: Mapping[str, Any]) -> CallView:
    number = given.get("taskId")
    subject = first_text(given, ("subject", "title")) or (f"Task {number}" if number else "")
    state = _STATES.get(str(given.get("status")), "open")
    used = ("subject", "title", "status", "taskId")
    items = (ListItem(state, subject or "Task"),)
    return CallView("list", name, items=items, arguments=_rest(given, used))


def _describe_other(name: str, given: Mapping[str, Any]) -> CallView:
    kind = tool_kind(name)
    names = _MAIN_NAMES.get(kind, (*PATH_NAMES, "skill", "subject", "name"))
    main_name = next((one for one in names if isinstance(given.get(one), str)), "")
    others = (one for one in _MARKDOWN_NAMES if one != main_name)
    markdown_name = next((one for one in others if isinstance(given.get(one), str)), "")
    return CallView(
        kind if kind != "other" else "plain",
        name,
        main=str(given.get(main_name, "")),
        markdown=str(given.get(markdown_name, "")),
        arguments=_rest(given, (main_name, markdown_name)),
    )


def _list_items(given: Mapping[str, Any]) -> Iterator[ListItem]:
    entries = next((given[name] for name in _LISTS if isinstance(given.get(name), list)), ())
    for entry in entries:
        text = first_text(entry, _ITEM_TEXTS) if isinstance(entry, dict) else None
        if text is not None:
            yield ListItem(_STATES.get(str(entry.get("status")), "open"), text)


def _questions(given: Mapping[str, Any], detail: Any) -> Iterator[Question]:
    questions = given.get("questions")
    answers = detail.get("answers") if isinstance(detail, dict) else None
    for question in questions if isinstance(questions, list) else ():
        text = first_text(question, ("question",)) if isinstance(question, dict) else None
        if text is None:
            continue
        answer = str(answers.get(text, "")) if isinstance(answers, dict) else ""
        offered = question.get("options")
        options = tuple(
            QuestionOption(
                str(option.get("label", "")),
                first_text(option, ("description",)) or "",
                str(option.get("label", "")) in answer.split(", "),
            )
            for option in (offered if isinstance(offered, list) else ())
            if isinstance(option, dict)
        )
        chosen = any(option.is_chosen for option in options)
        header = first_text(question, ("header",)) or ""
        yield Question(header, text, options, "" if chosen else answer)


def _rest(given: Mapping[str, Any], used: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the other arguments as text, those without a value left out."""
    others = (pair for pair in given.items() if pair[0] not in used)
    shown = (pair for pair in others if pair[1] not in (None, "", [], {}))
    return tuple((str(name), _value_text(value)) for name, value in shown)


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
