"""Three hundred sessions of a person with habits put in on purpose, among the prompts of ordinary work.

A seed chooses three of the standing instructions; each is in a third of the prompts in one of its wordings. Two
fifths of the follow-ups correct the agent. One error returns with one fix, and one command is rejected each time.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from support.sources_exports import claude_conversation, claude_message
from support.transcripts import assistant, user, write

INSTRUCTIONS = {
    "tests": (
        "Always run the tests before you say you are done.",
        "Make sure the test suite passes before finishing.",
        "Don't tell me it's done until the tests are green.",
        "Please run all tests first, then report.",
        "And remember: tests must pass before you call it finished!",
        "Run pytest before you claim it is complete",
    ),
    "emoji": (
        "No emojis please.",
        "Never use emojis in the output.",
        "Avoid emoji.",
        "Please leave out the emojis",
        "I don't want to see any emojis.",
    ),
    "short": (
        "Keep your answer short.",
        "Be concise.",
        "Short answers only, please.",
        "Please keep it brief, no long explanations.",
        "Don't write long answers.",
    ),
    "types": (
        "Use type hints everywhere.",
        "Always add type annotations.",
        "Make sure every function is typed.",
        "Don't leave out the type hints.",
    ),
    "commit": (
        "Never commit without asking me.",
        "Don't commit anything until I say so.",
        "Ask before you commit.",
        "Please do not commit on your own",
    ),
    "dependencies": (
        "Don't add new dependencies.",
        "No new packages please.",
        "Never install another library for this.",
        "Avoid adding dependencies",
    ),
    "british": (
        "Use British spelling.",
        "British English please, not American.",
        "Always spell it the British way.",
        "Remember to write British English.",
    ),
    "comments": (
        "Don't write comments that repeat the code.",
        "No obvious comments please.",
        "Only comment what is not obvious.",
        "Avoid comments that say what the code does.",
    ),
}
TASKS = (
    "Fix the {0} in the {1} module.",
    "Add a {0} to {1}.py and wire it into the settings page.",
    "The {1} endpoint returns 500 when the {0} is empty. Can you look into it?",
    "Rename the {0} class, it clashes with the one in {1}.",
    "Write a migration that moves {0} to the {1} table.",
    "Why is {1} so slow when there are many {0} rows?",
    "Refactor {1}: the {0} should be passed in, not created there.",
    "I get a warning about the {0} since yesterday, see {1}.",
    "Show the {0} on the {1} page, sorted by date.",
    "Use the {0} helper from {1} here.",
    "Check whether {1} still needs the {0}.",
    "Explain how {0} works in {1}.",
    "Please update the docs for {0}. The old ones mention {1}.",
)
THINGS = (
    *(
        "retry",
        "cache",
        "login form",
        "invoice",
        "webhook",
        "parser",
        "date filter",
        "queue",
        "avatar",
        "export",
    ),
    *(
        "rate limit",
        "session token",
        "feature flag",
        "price list",
        "search index",
        "audit log",
        "mailer",
        "cart",
    ),
)
FOLLOW_UPS = (
    "Great, now do the same for {0}.",
    "Thanks! Next: the {0}.",
    "Now show me the {0} as well.",
    "What does the {0} do there?",
    "OK. Let's continue with {0}.",
    "Add the {0} too.",
    "Perfect, please also handle {0}.",
)
CORRECTIONS = (
    "No, that's not what I asked. The {0} stays where it is.",
    "You ignored my constraint again.",
    "That's wrong, the {0} is still empty.",
    "It still fails with the {0}.",
    "You forgot the {0}.",
    "I said the {0}, not the other one.",
    "This doesn't work. Look at {0} once more.",
    "Why did you change {0}?",
    "Revert that, please.",
)
CLAIMS = ("Done. All tests pass.", "I have updated the file.", "Here is what I found.", "Fixed.")
ERROR = "Traceback (most recent call last):\n  File \"app.py\", line {0}\nModuleNotFoundError: No module named 'yaml'"
FIX = "pip install pyyaml"
DENIED = "npm publish"
DAY_S = 86_400
START_S = 1_780_000_000


@dataclass
class Habits:
    """What was put into the sessions."""

    instructions: dict[str, tuple[str, ...]]
    corrections: int = 0
    follow_ups: int = 0
    failures: int = 0
    denials: int = 0


class _Transcript:
    def __init__(self, session: str, started_s: int, cwd: str) -> None:
        self.session, self.cwd, self._at_s = session, cwd, started_s
        self.records: list[dict] = []

    def add(self, record: dict) -> None:
        number = len(self.records) + 1
        self._at_s += 7
        more = {
            "uuid": f"{self.session}-{number}",
            "parentUuid": f"{self.session}-{number - 1}" if number > 1 else None,
            "timestamp": _stamp(self._at_s),
            "sessionId": self.session,
            "cwd": self.cwd,
        }
        self.records.append({**record, **more})

    def call(self, tool: str, given: dict, answer: str, **fields: object) -> None:
        name = f"t{len(self.records)}-{self.session}"
        use = {"type": "tool_use", "id": name, "name": tool, "input": given}
        self.add(assistant(f"m{len(self.records)}-{self.session}", 2, use))
        is_error = bool(fields.pop("fails", False))
        result = {
            "type": "tool_result",
            "tool_use_id": name,
            "content": answer,
            "is_error": is_error,
        }
        self.add({**user([result]), **fields})

    def say(self, text: str) -> None:
        content = {"type": "text", "text": text}
        self.add(assistant(f"m{len(self.records)}-{self.session}", 2, content))


def write_archive(config_dir: Path, seed: int, count: int = 300, cwd: str = "/srv/shop") -> Habits:
    """Write the sessions below `config_dir`; return what was put in."""
    dice = random.Random(f"retro archive {seed}")
    habits = Habits({name: INSTRUCTIONS[name] for name in dice.sample(sorted(INSTRUCTIONS), 3)})
    for number in range(count):
        session = f"00000000-0000-4000-8000-{seed % 10**6:06}{number:06}"
        transcript = _Transcript(session, START_S + number * DAY_S // 3, cwd)
        for turn in range(dice.randint(1, 5)):
            transcript.add(user(prompt(dice, habits, turn)))
            _work(dice, transcript, habits)
            transcript.say(dice.choice(CLAIMS))
        write(config_dir, session, *transcript.records)
    return habits


def write_chats(path: Path, seed: int, count: int = 300) -> Habits:
    """Write the same person's conversations as a Claude.ai export; an error is pasted in some."""
    dice = random.Random(f"retro chats {seed}")
    habits = Habits({name: INSTRUCTIONS[name] for name in dice.sample(sorted(INSTRUCTIONS), 3)})
    chats = []
    for number in range(count):
        messages = []
        for turn in range(dice.randint(1, 5)):
            text = prompt(dice, habits, turn)
            if dice.random() < 0.05:
                habits.failures += 1
                text += "\n\n" + ERROR.format(dice.randint(1, 90))
            messages.append(claude_message(f"m{number}-{turn}", "human", text))
            messages.append(claude_message(f"a{number}-{turn}", "assistant", dice.choice(CLAIMS)))
        at = _stamp(START_S + number * DAY_S // 3)
        chats.append(
            claude_conversation(f"c{number}", created_at=at, updated_at=at, chat_messages=messages)
        )
    path.write_text(json.dumps(chats))
    return habits


def prompt(dice: random.Random, habits: Habits, turn: int) -> str:
    """Return a prompt of the person: a task or a follow-up, some with an instruction."""
    frames: tuple[str, ...] = TASKS
    if turn:
        is_correction = dice.random() < 0.4
        frames = CORRECTIONS if is_correction else FOLLOW_UPS
        habits.follow_ups += 1
        habits.corrections += is_correction
    text = dice.choice(frames).format(*dice.sample(THINGS, 2))
    if dice.random() < 0.35:
        words = dice.choice(habits.instructions[dice.choice(sorted(habits.instructions))])
        joined: tuple[Callable[[], str], ...] = (
            lambda: f"{text} {words}",
            lambda: f"{words} {text}",
            lambda: f"{text}\n\n{words}",
        )
        return dice.choice(joined)()
    return text


def _work(dice: random.Random, transcript: _Transcript, habits: Habits) -> None:
    path = f"{transcript.cwd}/src/{dice.choice(THINGS).replace(' ', '_')}.py"
    transcript.call("Read", {"file_path": path}, "1\tcontents")
    if dice.random() < 0.1:
        habits.failures += 1
        answer = ERROR.format(dice.randint(1, 90))
        transcript.call("Bash", {"command": "pytest -q"}, answer, fails=True)
        transcript.call("Bash", {"command": FIX}, "Successfully installed")
        transcript.call("Bash", {"command": "pytest -q"}, "12 passed")
    if dice.random() < 0.05:
        habits.denials += 1
        rejected = {"toolUseResult": "User rejected tool use", "toolDenialKind": "user-rejected"}
        transcript.call("Bash", {"command": DENIED}, "rejected", fails=True, **rejected)
    if dice.random() < 0.6:
        number = str(dice.random())
        edit = {"file_path": path, "old_string": number, "new_string": f"new {number}"}
        transcript.call("Edit", edit, "done")


def _stamp(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", ".000Z")
