"""A sound trajectory to spoil: a test changes one thing and asks what is said about it."""

import copy

SESSION = "11111111-1111-4111-8111-111111111111"


def tool(name="Bash"):
    return {
        "type": "function",
        "function": {"name": name, "description": "Run it.", "parameters": {"type": "object"}},
    }


def sound(version="1.6", **fields):
    """A document with a prompt, a step with two calls, and an answer; nothing is wrong with it."""
    document = {
        "schema_version": f"ATIF-v{version}",
        "session_id": SESSION,
        "agent": {
            "name": "claude-code",
            "version": "2.1.325",
            "model_name": "m",
            "tool_definitions": [tool()],
        },
        "steps": [
            {
                "step_id": 1,
                "source": "user",
                "message": "count the files",
                "timestamp": "2026-11-02T12:00:00.000Z",
            },
            {
                "step_id": 2,
                "source": "agent",
                "message": "I look.",
                "timestamp": "2026-11-02T12:00:01.000Z",
                "model_name": "m",
                "tool_calls": [call("c1"), call("c2")],
                "observation": {"results": [result("c1"), result("c2")]},
                "metrics": metrics(),
            },
            {
                "step_id": 3,
                "source": "agent",
                "message": "Three.",
                "timestamp": "2026-11-02T12:00:02.000Z",
                "metrics": metrics(),
            },
        ],
        "final_metrics": {
            "total_prompt_tokens": 200,
            "total_completion_tokens": 20,
            "total_cached_tokens": 80,
            "total_cost_usd": 0.02,
            "total_steps": 3,
        },
    }
    return copy.deepcopy({**document, **fields})


def call(name):
    return {"tool_call_id": name, "function_name": "Bash", "arguments": {"command": "ls"}}


def result(name, content="a\nb\nc"):
    return {"source_call_id": name, "content": content}


def metrics():
    return {"prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 40, "cost_usd": 0.01}


def embed_subagent(name="sub", **fields):
    """A document of version 1.7 with one embedded subagent that its first result refers to."""
    document = sound("1.7", trajectory_id="main")
    document["subagent_trajectories"] = [sound("1.7", trajectory_id=name)]
    document["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"] = [
        {"trajectory_id": "sub"}
    ]
    return {**document, **fields}


def replace_value(document, path, value):
    """The document with another value at `path`, as in `steps.1.metrics`; DROP takes it away."""
    document = copy.deepcopy(document)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    holder = document
    for part in way:
        holder = holder[part]
    if value is DROP:
        del holder[last]
    else:
        holder[last] = value
    return document


DROP = object()
