"""One Claude Code session as lines of its transcript, with the true tokens of each response.

Follows the 2.x format: one line per content block, the same `message.id` on each, early lines
with a placeholder for the output tokens, tool results stored twice in their line.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from tools.bench.words import Words

MODELS = ("claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001")
TOOLS = ("Bash", "Read", "Edit", "Grep", "Write", "Glob")
_ODD_KINDS = ("turn_duration", "stop_hook_summary", "informational")


class Truth(NamedTuple):
    """What one response really used, in the order input, output, cache read, 5 minutes, 1 hour."""

    message_id: str
    session: str
    model: str
    day: str
    tokens: tuple[int, int, int, int, int]


class Session:
    """Writes the records of one thread, turn after turn."""

    def __init__(
        self, words: Words, draw: random.Random, session: str, start_ms: int, subagent: str = ""
    ) -> None:
        """Begin a thread at `start_ms`; `subagent` names a subagent."""
        self.words, self.draw, self.session, self.subagent = words, draw, session, subagent
        self.begin_ms = self.at_ms = start_ms
        self.model = draw.choices(MODELS, (4, 5, 2))[0]
        self.cwd = f"/home/dev/project-{draw.randrange(24):02d}"
        self.named = draw.random() > 0.08  # some clients wrote no requestId
        self.parent = "null"
        self.truths: list[Truth] = []
        self.context = 12_000
        self.calls: list[str] = []
        self.scale = 1.0  # how long texts are, against what real sessions hold

    def turn(self) -> Iterator[str]:
        """Yield the lines of one prompt and its steps."""
        yield self._record("user", self._prompt(), '"promptSource":"typed",')
        for _ in range(self.draw.randint(1, 9)):
            yield from self._step()
            if self.draw.random() < 0.10:
                yield self._system()
        yield self._note()

    def synthetic(self) -> str:
        """Return an error the client wrote in the model's name; it costs nothing."""
        usage = '"usage":{"input_tokens":0,"output_tokens":0}'
        body = f'{{"id":"{self._id("syn")}","model":"<synthetic>","role":"assistant","content":[],{usage}}}'
        return self._record("assistant", body, '"isApiErrorMessage":true,')

    def cut_line(self) -> str:
        """Return the first half of an assistant line: its writer was killed."""
        line = self._lines(self._id("msg"), 1, (3, 999_999, 7, 0, 0))[0]
        self.calls.clear()
        return line[: len(line) * 2 // 3]

    def side_question(self, line: str) -> str:
        """Return `line` as a `/btw` sidechain replays it: later, under a new request."""
        self._pass_time()
        copy = line.replace('"isSidechain":false', '"isSidechain":true', 1)
        before, _, rest = copy.partition('"requestId":"')
        return (
            f'{before}"requestId":"{self._id("req")}{rest[rest.index(chr(34)) :]}' if rest else copy
        )

    def totals(self, truths: list[Truth]) -> str:
        """Return the client's own account of the session, as written at exit."""
        models: dict[str, list[int]] = {}
        for truth in truths:
            models[truth.model] = [
                a + b for a, b in zip(models.get(truth.model, [0] * 5), truth.tokens, strict=True)
            ]
        totals_json = ",".join(
            f'"{model}":{{"inputTokens":{given},"outputTokens":{output},"cacheReadInputTokens":{read},'
            f'"cacheCreationInputTokens":{writes},"cacheCreationEphemeral1hInputTokens":{hour},'
            '"webSearchRequests":0,"costUSD":1.5}'
            for model, (given, output, read, writes, hour) in sorted(models.items())
        )
        return (
            f'{{"type":"cost-state","sessionId":"{self.session}","totalCostUSD":{1.5 * len(models)},'
            f'"totalDuration":792,"startTime":{self.begin_ms},"modelUsage":{{{totals_json}}}}}'
        )

    def _step(self) -> Iterator[str]:
        draw = self.draw
        self._pass_time()
        tokens = self._tokens()
        name = self._id("msg")
        lines = self._lines(name, draw.choices((1, 2, 3, 4), (28, 38, 24, 10))[0], tokens)
        yield from lines
        if draw.random() < 0.02:
            yield lines[-1]
        while self.calls:
            yield self._result(self.calls.pop(0))

    def _lines(self, name: str, count: int, tokens: tuple[int, int, int, int, int]) -> list[str]:
        """One line per content block; the true output stands on the last one or two."""
        true_from = count - (2 if count > 1 and self.draw.random() < 0.3 else 1)
        request = f'"requestId":"{self._id("req")}",' if self.named else ""
        lines = []
        for block in range(count):
            self._pass_time(400)
            output = tokens[1] if block >= true_from else self.draw.randint(1, 8)
            if block == true_from:
                self.truths.append(
                    Truth(name, self.session, self.model, self._stamp()[:10], tokens)
                )
            lines.append(
                self._record("assistant", self._message(name, block, output, tokens), request)
            )
        if tokens[1] == 999_999:
            self.truths.pop()
        return lines

    def _message(
        self, name: str, block: int, output: int, tokens: tuple[int, int, int, int, int]
    ) -> str:
        given, _, read, writes, hour = tokens
        return (
            f'{{"id":"{name}","type":"message","role":"assistant","model":"{self.model}",'
            f'"content":[{self._block(block)}],"stop_reason":null,"stop_sequence":null,'
            f'"usage":{{"input_tokens":{given},"cache_creation_input_tokens":{writes},'
            f'"cache_read_input_tokens":{read},"cache_creation":{{"ephemeral_5m_input_tokens":{writes - hour},'
            f'"ephemeral_1h_input_tokens":{hour}}},"output_tokens":{output},"service_tier":"standard"}}}}'
        )

    def _block(self, block: int) -> str:
        draw = self.draw
        size = min(int(self.scale * draw.lognormvariate(6.55, 1.0)), 30_000)
        text = self.words.cut(draw, size)
        if block == 0 and draw.random() < 0.5:
            return f'{{"type":"thinking","thinking":"{text}","signature":"{draw.getrandbits(1600):x}"}}'
        if draw.random() < 0.35:
            return f'{{"type":"text","text":"{text}"}}'
        tool = draw.choice(TOOLS)
        path = f"/srv/app/src/module_{draw.randrange(4000)}.py"
        self.calls.append(self._id("toolu"))
        return (
            f'{{"type":"tool_use","id":"{self.calls[-1]}","name":"{tool}",'
            f'"input":{{"file_path":"{path}","command":"{text}"}}}}'
        )

    def _result(self, call: str) -> str:
        draw = self.draw
        size = min(int(self.scale * draw.lognormvariate(7.25, 1.5)), 310_000)
        text = self.words.cut(draw, size)
        body = (
            f'{{"role":"user","content":[{{"tool_use_id":"{call}","type":"tool_result",'
            f'"content":"{text}","is_error":false}}]}}'
        )
        detail = f'"toolUseResult":{{"stdout":"{text}","stderr":"","interrupted":false}},'
        if draw.random() < 0.02:
            used = '"usage":{"input_tokens":5,"output_tokens":4}'
            detail = f'"toolUseResult":{{"content":"{text}","totalTokens":9,{used}}},'
        return self._record("user", body, detail)

    def _prompt(self) -> str:
        text = self.words.cut(self.draw, min(int(self.draw.lognormvariate(5.0, 1.2)), 20_000))
        return f'{{"role":"user","content":"{text}"}}'

    def _system(self) -> str:
        kind = self.draw.choice(_ODD_KINDS)
        return self._record(
            "system", "null", f'"subtype":"{kind}","content":"{self.words.cut(self.draw, 300)}",'
        )

    def _note(self) -> str:
        text = self.words.cut(self.draw, 80)
        return f'{{"type":"last-prompt","lastPrompt":"{text}","leafUuid":{self.parent},"sessionId":"{self.session}"}}'

    def _record(self, kind: str, message: str, extra: str) -> str:
        uuid = f"{self.draw.getrandbits(128):032x}"
        uuid = f'"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"'
        agent = f'"agentId":"{self.subagent}",' if self.subagent else ""
        line = (
            f'{{"parentUuid":{self.parent},"isSidechain":{"true" if self.subagent else "false"},{agent}'
            f'"userType":"external","cwd":"{self.cwd}","sessionId":"{self.session}","version":"2.1.100",'
            f'"gitBranch":"main","type":"{kind}","message":{message},{extra}'
            f'"uuid":{uuid},"timestamp":"{self._stamp()}"}}'
        )
        self.parent = uuid
        return line

    def _tokens(self) -> tuple[int, int, int, int, int]:
        draw = self.draw
        self.context = 12_000 if self.context > 160_000 else self.context + draw.randrange(3_000)
        hour = draw.randrange(4_000) if draw.random() < 0.1 else 0
        return (
            draw.randrange(1, 20),
            draw.randrange(20, 2_500),
            self.context,
            draw.randrange(3_000) + hour,
            hour,
        )

    def _pass_time(self, most_ms: int = 40_000) -> None:
        self.at_ms += self.draw.randrange(1, most_ms)

    def _stamp(self) -> str:
        moment = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{self.at_ms % 1000:03d}Z"

    def _id(self, kind: str) -> str:
        return f"{kind}_01{self.draw.getrandbits(110):028x}"
