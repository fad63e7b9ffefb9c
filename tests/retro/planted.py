"""Conversations and sessions with a known truth: topics, repetitions, frictions and duplicates put in on purpose.

Knows the vendors' and the agent's file formats and plain English, and nothing of how anything is found.
"""

import json
import random
import uuid
from dataclasses import dataclass, field

SUBJECTS = {
    "gardening": [
        "tomato",
        "soil",
        "compost",
        "seedling",
        "mulch",
        "watering",
        "pruning",
        "greenhouse",
        "fertilizer",
        "roses",
        "weeds",
        "lawn",
        "harvest",
        "bulbs",
    ],
    "databases": [
        "postgres",
        "index",
        "query",
        "transaction",
        "schema",
        "migration",
        "replica",
        "deadlock",
        "vacuum",
        "join",
        "cursor",
        "rollback",
    ],
    "cooking": [
        "flour",
        "oven",
        "dough",
        "simmer",
        "garlic",
        "butter",
        "recipe",
        "roast",
        "yeast",
        "marinade",
        "skillet",
        "whisk",
        "broth",
        "caramel",
    ],
    "taxes": [
        "invoice",
        "deduction",
        "income",
        "receipt",
        "refund",
        "withholding",
        "bracket",
        "audit",
        "expense",
        "depreciation",
        "filing",
        "payroll",
    ],
    "networking": [
        "router",
        "packet",
        "subnet",
        "firewall",
        "latency",
        "gateway",
        "bandwidth",
        "socket",
        "proxy",
        "dns",
        "handshake",
        "multicast",
    ],
    "music": [
        "chord",
        "melody",
        "guitar",
        "rhythm",
        "tempo",
        "bass",
        "piano",
        "scale",
        "harmony",
        "drummer",
        "tuning",
        "octave",
        "bridge",
        "chorus",
    ],
    "astronomy": [
        "telescope",
        "nebula",
        "orbit",
        "comet",
        "galaxy",
        "eclipse",
        "planet",
        "spectrum",
        "meteor",
        "aperture",
        "constellation",
        "parallax",
    ],
    "fitness": [
        "squat",
        "deadlift",
        "cardio",
        "protein",
        "stretching",
        "marathon",
        "treadmill",
        "posture",
        "reps",
        "recovery",
        "kettlebell",
        "sprint",
    ],
}
COMMON = [
    "project",
    "week",
    "morning",
    "problem",
    "friend",
    "result",
    "number",
    "example",
    "version",
    "details",
    "simple",
    "better",
    "small",
    "large",
]
FRAMES = (
    "How do I handle {0} and {1} when {2} is involved?",
    "What is the best approach to {0} with {1}? I also have {2}.",
    "Please compare {0} against {1}, given {2} and {3}.",
    "I was reading about {0} and {1}; does {2} change anything?",
    "Write me a short plan for {0}, {1} and {2}.",
)
OPENERS = ("", "Hi! ", "Please tell me: ", "Sorry, once more: ", "I asked this before, but ")
CLOSERS = ("", " Thanks!", " Please be quick.", " I forgot.", " Again, please.")


@dataclass
class Truth:
    """What was planted."""

    topic_of: dict[str, str] = field(default_factory=dict)
    repeated: list[set[str]] = field(default_factory=list)
    frictions: set[tuple[str, str]] = field(default_factory=set)
    failures: list[set[str]] = field(default_factory=list)


def identity(dice: random.Random) -> str:
    return str(uuid.UUID(int=dice.getrandbits(128), version=4))


def question(dice: random.Random, subject: str) -> str:
    words = dice.sample(SUBJECTS[subject], 4)
    thing = f"{dice.choice(COMMON)} {dice.choice(SUBJECTS[subject])}"
    about = f" It is about the {thing} called {name(dice)} at {name(dice)}."
    return dice.choice(FRAMES).format(*words) + about


def name(dice: random.Random) -> str:
    """A name nobody has heard before: every real question has some."""
    return "".join(
        dice.choice("bdfgklmnprstvz") + dice.choice("aeiou") for _ in range(dice.randint(2, 4))
    )


def again(dice: random.Random, text: str) -> str:
    return dice.choice(OPENERS) + text + dice.choice(CLOSERS)


def chats(seed: int, count: int = 120) -> tuple[list[dict], Truth]:
    """Conversations as a ChatGPT export tells them, and the truth about them."""
    dice = random.Random(seed)
    truth = Truth()
    subjects = dice.sample(sorted(SUBJECTS), dice.randint(4, 6))
    made = []
    for number in range(count):
        subject = subjects[number % len(subjects)]
        asked = [question(dice, subject) for _ in range(dice.randint(2, 5))]
        made.append((identity(dice), subject, asked))
        truth.topic_of[made[-1][0]] = subject
    for _ in range(8):
        subject = dice.choice(subjects)
        own = [chat for chat in made if chat[1] == subject]
        words = dice.sample(SUBJECTS[subject], 5)
        text = f"Why does my {words[0]} fail with {words[1]} on {name(dice)}"
        text += f" after {words[2]}, {words[3]} and {words[4]}?"
        places = dice.sample(own, dice.randint(2, 4))
        for chat in places:
            chat[2].insert(dice.randint(0, len(chat[2])), again(dice, text))
        truth.repeated.append({chat[0] for chat in places})
    return [chatgpt(dice, chat, asked) for chat, _, asked in made], truth


def chatgpt(dice: random.Random, chat: str, asked: list[str]) -> dict:
    """One conversation of an export."""
    start = 1.7e9 + dice.randint(0, 2_000_000) * 10
    nodes: dict[str, dict] = {
        "root": {"id": "root", "message": None, "parent": None, "children": []}
    }
    last = "root"
    for number, text in enumerate(asked):
        for role, words in (
            ("user", text),
            ("assistant", "Here is what I would do. " * dice.randint(1, 5)),
        ):
            node = f"{role}-{number}"
            nodes[last]["children"].append(node)
            message = {
                "id": node, "author": {"role": role}, "create_time": start + number * 60, "recipient": "all",
                "content": {"content_type": "text", "parts": [words]}, "metadata": {"model_slug": "gpt-4o"},
            }  # fmt: skip
            nodes[node] = {"id": node, "message": message, "parent": last, "children": []}
            last = node
    return {
        "title": "New chat", "create_time": start, "update_time": start + 600, "mapping": nodes, "current_node": last,
        "conversation_id": chat, "id": chat,
    }  # fmt: skip


def encode_chats(conversations: list[dict]) -> bytes:
    return json.dumps(conversations).encode()
