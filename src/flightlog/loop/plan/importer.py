"""Plans that people have: a Markdown checklist, `prd.json`, a list of issues; and the example.

A plan is written as JSON. What is done already (a ticked box, `passes`, a closed issue) is left out.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flightlog.loop.plan.load import read_named_file
from flightlog.model.addresses import is_safe
from flightlog.model.errors import UNREADABLE, Invalid, check_depth
from flightlog.store.files import create_file

EXAMPLE = Path(__file__).parent.parent / "example"
_ITEM = re.compile(r"^(\s*)(?:[-*+]|\d+[.)])\s+\[([ xX])\]\s+(.+)$")
_DETAIL = re.compile(r"^\s+[-*+] +(?!\[[ xX]\])(.+)$")
_HEADING = re.compile(r"^#+ +(.+?)\s*#*$")
_NAME_CHARS = 80
_PRIORITIES = 1000  # more priorities than any PRD has


def import_plan(path: Path, verify: tuple[str, ...], agent: str, arguments: Sequence[str]) -> str:
    """Return the file at `path` as the text of a plan; `verify` checks every task."""
    text = read_named_file(path, "file", "name a checklist or JSON").decode("utf-8", "replace")
    is_json = text.lstrip()[:1] in {"{", "["}
    name, items = _read_json(text, path) if is_json else _read_checklist(text, path)
    items = [item for item in items if item["name"].strip()]
    if not items:
        hint = "write `- [ ] what to do`, or name a prd.json or a list of issues"
        raise Invalid(f"{path}: there is nothing to do in it", hint=hint)
    tasks: list[dict[str, Any]] = []
    phases: dict[str, int] = {}
    named = {item.get("task_id", "") for item in items}
    ids: set[str] = set()
    for number, item in enumerate(items, 1):
        phase = item.pop("section", "")
        phases.setdefault(phase, len(phases) + 1)
        task_id = item.pop("task_id", "")
        prompt = item.pop("prompt")
        run = {"agent": agent, "prompt": prompt, **({"arguments": arguments} if arguments else {})}
        if not is_safe(task_id) or task_id in ids:
            free = f"{number:03}"
            task_id = free if free not in named else f"{free}-{len(ids)}"
        ids.add(task_id)
        tasks.append(
            {
                "task_id": task_id,
                "name": " ".join(item.pop("name").split())[:_NAME_CHARS],
                "phase": phases[phase],
                "run": run,
                "verify": list(verify),
                **item,
            }
        )
    titled = [{"phase": number, "name": title} for title, number in phases.items() if title]
    plan = {"plan": name, "phases": titled, "tasks": tasks}
    return json.dumps(plan, indent=1, ensure_ascii=False) + "\n"


def write_example(folder: Path) -> list[Path]:
    """Write the example plan and its module; return the new files. Existing files stay."""
    sources = [path for path in sorted(EXAMPLE.iterdir()) if path.is_file()]
    targets = {folder / path.name.removesuffix(".txt"): path for path in sources}
    new = [target for target, path in targets.items() if create_file(target, path.read_bytes())]
    if not new:
        raise Invalid(f"the example exists already: {folder}", hint="name another directory")
    return new


def _read_checklist(text: str, path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return open items of a checklist; deeper lines below an item are its criteria."""
    title = section = ""
    items: list[dict[str, Any]] = []
    indent, is_open, is_code = 0, False, False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        if is_code:
            continue
        heading, item, detail = _HEADING.match(line), _ITEM.match(line), _DETAIL.match(line)
        if heading:
            title, section = title or heading[1], heading[1]
        elif item and items and is_open and len(item[1]) > indent:
            items[-1]["acceptance_criteria"].append(item[3])
        elif item:
            indent, is_open = len(item[1]), item[2] == " "
            fields: dict[str, Any] = {"name": item[3], "prompt": item[3], "acceptance_criteria": []}
            items += [{**fields, "section": section}] if is_open else []
        elif detail and items and is_open:
            items[-1]["acceptance_criteria"].append(detail[1])
    return title or path.stem, items


def _read_json(text: str, path: Path) -> tuple[str, list[dict[str, Any]]]:
    try:
        document = json.loads(text)
        check_depth(document)
    except (*UNREADABLE, ValueError) as error:
        raise Invalid(f"{path}: not JSON: {error}", hint="correct it there") from error
    if isinstance(document, dict) and isinstance(document.get("userStories"), list):
        name = str(document.get("project") or document.get("branchName") or path.stem)
        stories = [story for story in document["userStories"] if isinstance(story, dict)]
        return name, [_story_task(story) for story in stories if not story.get("passes")]
    if isinstance(document, list) and all(isinstance(issue, dict) for issue in document):
        waiting = [issue for issue in document if str(issue.get("state", "")).lower() != "closed"]
        return path.stem, [_issue_task(issue) for issue in waiting if issue.get("title")]
    hint = "gh issue list --json number,title,body,state > issues.json"
    raise Invalid(f"{path}: neither `userStories` (prd.json) nor a list of issues", hint=hint)


def _story_task(story: dict[str, Any]) -> dict[str, Any]:
    title = str(story.get("title") or story.get("id") or "")
    criteria = story.get("acceptanceCriteria")
    priority = story.get("priority")
    score = 0.5 if not isinstance(priority, int) else max(1 - priority / _PRIORITIES, 0.0)
    return {
        "task_id": str(story.get("id") or ""),
        "name": title,
        "prompt": _join_parts(title, story.get("description"), story.get("notes")),
        "acceptance_criteria": list(map(str, criteria)) if isinstance(criteria, list) else [],
        "priority_score": round(score, 4),
    }


def _issue_task(issue: dict[str, Any]) -> dict[str, Any]:
    title, number = str(issue["title"]), issue.get("number")
    return {
        "task_id": f"issue-{number}" if isinstance(number, int) else "",
        "name": title,
        "prompt": _join_parts(title, issue.get("body")),
    }


def _join_parts(*parts: object) -> str:
    return "\n\n".join(str(part).strip() for part in parts if part)
