"""Conversations as the vendors' exports write them, made for one test."""


def claude_conversation(uuid="c1", text="Hello", name="A talk", **fields):
    """A conversation of a Claude.ai export: a question and an answer."""
    messages = [claude_message("m1", "human", text), claude_message("m2", "assistant", "An answer")]
    made = {"uuid": uuid, "name": name, "created_at": "2026-10-01T10:00:00.000000Z",
            "updated_at": "2026-10-01T10:05:00.000000Z", "chat_messages": messages}  # fmt: skip
    return {**made, **fields}


def claude_message(uuid, sender, text, **fields):
    made = {"uuid": uuid, "sender": sender, "text": text, "content": [{"type": "text", "text": text}],
            "created_at": "2026-10-01T10:00:00.000000Z", "attachments": [], "files": []}  # fmt: skip
    return {**made, **fields}


def gpt_node(name, parent, children=(), *, role="user", text="Hello", at=1.7e9, **fields):
    """A node of a ChatGPT conversation."""
    message = {"id": name, "author": {"role": role}, "create_time": at, "recipient": "all", "metadata": {},
               "content": {"content_type": "text", "parts": [text]}}  # fmt: skip
    return {
        "id": name,
        "parent": parent,
        "children": list(children),
        "message": {**message, **fields},
    }


def gpt_conversation(*nodes, current, name="g1", **fields):
    """A conversation of a ChatGPT export."""
    root = {
        "id": "root",
        "message": None,
        "parent": None,
        "children": [nodes[0]["id"]] if nodes else [],
    }
    mapping = {"root": root, **{node["id"]: node for node in nodes}}
    made = {"title": "A talk", "create_time": 1.7e9, "update_time": 1.7e9 + 60, "mapping": mapping,
            "current_node": current, "conversation_id": name}  # fmt: skip
    return {**made, **fields}
