"""Sessions that attack whoever looks at them: the same payloads in every field a page shows."""

import base64
import json
import uuid
from pathlib import Path

PAYLOADS = (
    "<script>alert('script')</script>",
    "</script><script>alert('closed')</script>",
    "</textarea></title></style><img src=x onerror=alert('img')>",
    '"><svg onload=alert("svg")>',
    "<svg><style>@import url(http://evil.example/css)</style></svg>",
    "![beacon](http://evil.example/pixel.png) <img src=http://evil.example/raw.png>",
    "[link](javascript:alert('link')) <a href=\"javascript:alert('a')\">a</a>",
    "<iframe srcdoc=\"<script>alert('frame')</script>\"></iframe><object data=http://evil.example/o></object>",
    "{{ 7 * 7 }} {% include '/etc/passwd' %} ${alert('t')}",
    "<div hx-get='http://evil.example/hx' hx-trigger='load'>x</div>",
    "<link rel=stylesheet href=http://evil.example/l.css><meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "<div style='background:url(http://evil.example/bg.png)' onmouseover=alert(1)>x</div><base href=http://evil.example/>",
    "'-alert(1)-' \u202egnp.exe \x1b]52;c;Zm9v\x07 \x00\x08 \ud800",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(2)>",
)
MARKDOWN = (
    "\n\n".join(PAYLOADS)
    + "\n\n```html\n"
    + "\n".join(PAYLOADS)
    + "\n```\n\n<details open ontoggle=alert(3)>x</details>"
)
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(4)'/>").decode()
HUGE = "A" * 3_000_000


def write(where: Path) -> str:
    """Write a hostile session below `where` and return its id."""
    session = str(uuid.UUID(int=7))
    folder = where / "projects" / "hostile"
    folder.mkdir(parents=True)
    lines = [_encode_record(line) for line in _records(session)]
    body = b"\n".join(
        [
            *lines,
            b"\x00\x00\xff\xfe not a record <script>alert(5)</script>",
            b'{"type":"user","mess',
        ]
    )
    (folder / f"{session}.jsonl").write_bytes(body)
    subagent = folder / session / "subagents"
    subagent.mkdir(parents=True)
    (subagent / "agent-a1.jsonl").write_bytes(
        b"\n".join(_encode_record(line) for line in _records(session, "a1")[:3]) + b"\n"
    )
    meta = {"agentType": PAYLOADS[0], "description": PAYLOADS[2], "toolUseId": "toolu_0"}
    (subagent / "agent-a1.meta.json").write_text(json.dumps(meta))
    return session


def _records(session: str, subagent: str = "") -> list[dict]:
    records = [_user(PAYLOADS[1])]
    for number, payload in enumerate(PAYLOADS):
        calls = [_call(number, payload), _edit(number, payload)]
        blocks = [{"type": "thinking", "thinking": MARKDOWN}, {"type": "text", "text": MARKDOWN}]
        records.append(_assistant(subagent, number, [*blocks, *calls]))
        records.append(_result(f"toolu_{number}", payload, number))
        records.append(_result(f"edit_{number}", HUGE if number == 3 else MARKDOWN, 1))
        records.append(_user(payload))
    records += [{"type": payload, payload: 1} for payload in PAYLOADS]
    records += [
        {
            "type": "system",
            "subtype": "compact_boundary",
            "content": MARKDOWN,
            "compactMetadata": {"trigger": PAYLOADS[0], "preTokens": 9},
        }
    ]
    records += [
        {"type": "custom-title", "customTitle": PAYLOADS[2], "sessionId": session},
        {"type": "summary", "summary": PAYLOADS[0], "leafUuid": "u0"},
    ]
    return [
        _place_record(record, number, session, subagent) for number, record in enumerate(records)
    ]


def _place_record(record: dict, number: int, session: str, subagent: str) -> dict:
    at = f"2026-11-15T07:{number // 60:02}:{number % 60:02}.000Z"
    chain = {
        "uuid": f"{subagent}u{number}",
        "parentUuid": f"{subagent}u{number - 1}" if number else None,
    }
    scene = {"cwd": f"/home/{PAYLOADS[0]}", "gitBranch": PAYLOADS[3], "version": PAYLOADS[2]}
    place = {"sessionId": session, "timestamp": at, "isSidechain": bool(subagent)} | (
        {"agentId": subagent} if subagent else {}
    )
    return {**record, **chain, **scene, **place}


def _user(text: str) -> dict:
    pictures = [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        for kind, data in (
            ("image/svg+xml", SVG),
            ("image/png", '"><script>alert(6)</script>'),
            ("text/html", SVG),
        )
    ]
    return {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": text}, *pictures]},
    }


def _assistant(subagent: str, number: int, content: list[dict]) -> dict:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {
        "id": f"msg_{subagent}{number}",
        "role": "assistant",
        "model": PAYLOADS[number],
        "content": content,
        "usage": usage,
    }
    return {
        "type": "assistant",
        "message": {**message, "stop_reason": PAYLOADS[number]},
        "requestId": PAYLOADS[0],
    }


def _call(number: int, payload: str) -> dict:
    return {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": payload,
        "input": {"command": payload, payload: [payload]},
    }


def _edit(number: int, payload: str) -> dict:
    given = {"file_path": f"/x/{payload}", "old_string": payload, "new_string": MARKDOWN}
    return {"type": "tool_use", "id": f"edit_{number}", "name": "Edit", "input": given}


def _result(call: str, text: str, number: int) -> dict:
    content = [
        {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": number % 2 == 0}
    ]
    patch = [{"newStart": text[:100], "lines": ["+" + text[:500], "-" + text[:500], 5]}, "odd"]
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "toolUseResult": {"structuredPatch": patch},
    }


def _encode_record(record: dict) -> bytes:
    return json.dumps(record).encode()
