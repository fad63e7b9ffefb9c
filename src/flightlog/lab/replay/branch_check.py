"""Compare a branch with its recording: at the cut, and in later requests; serve recorded answers.

`RecordedAnswerServer`: for agents that cannot resume. Their messages stay their own; prompt, tools
and settings are the recorded ones. No model is called before the branch turn; the request for that
turn shows whether the agent arrived at the same state.

Later requests are compared without the caller, cache markers, ids of calls and subagents, times,
durations and directories of the run.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.capture.recorder import IncomingRequest, RewrittenRequest, ServedResponse
from flightlog.agents.dialects.anthropic_messages import RequestInfo
from flightlog.lab.events import BranchCertified, BranchCreated, LaterRequestsCompared
from flightlog.lab.replay import certificate
from flightlog.lab.replay.certificate import (
    Certificate,
    RequestFacts,
    WorkTreeState,
    certify_request,
    certify_unrecorded,
    certify_work_tree,
)
from flightlog.lab.replay.recorded_context import (
    IDS,
    MARKERS,
    RecordedContext,
    RewrittenBody,
    append_prompt,
    canonical_value,
    find_differences,
    is_billing,
)
from flightlog.lab.run_reader import read_work_tree_state
from flightlog.lab.runner.context import RunContext
from flightlog.lab.runner.session import SessionStart
from flightlog.lab.store import SOURCE
from flightlog.model.errors import Conflict
from flightlog.model.exchange import RequestOrigin

STATE = "state.json"
LATER = "later.json"
_INIT_S = 2.0  # the client prints its tools before its first request; longer means it does not
_IGNORED = frozenset({"metadata", "stream", "messages"})
# What each run has of its own: ids of subagents, sessions and background commands, names of long
# outputs, times, durations, its scratch directory.
_OWN = re.compile(
    r"\ba[0-9a-f]{16}\b|agentId: a[0-9a-f]{6}\b|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?|duration_ms: \d+|\.work-[\w.-]+"
    r"|(?<=/tool-results/)\w+|(?<=running in background with ID: )\w+|(?<=/tasks/)\w+(?=\.output)"
)


class RequestDigest(Struct, frozen=True):
    """A request as digests: of each setting, and of each message with its role."""

    settings: dict[str, str]
    messages: tuple[tuple[str, str], ...]


def digest_request(body: Mapping[str, Any]) -> RequestDigest:
    """Return the digests of a request, without the billing block: it identifies the caller."""
    system = body.get("system")
    if isinstance(system, list):
        body = {**body, "system": [block for block in system if not is_billing(block)]}
    settings = {name: _digest(value) for name, value in body.items() if name not in _IGNORED}
    messages = body.get("messages") or ()
    return RequestDigest(
        settings, tuple((str(message.get("role")), _digest(message)) for message in messages)
    )


def _digest(value: Any) -> str:
    plain = msgspec.json.encode(canonical_value(value, MARKERS | IDS), order="sorted").decode()
    return hashlib.sha256(_OWN.sub("-", plain).encode()).hexdigest()[:16]


class LaterRequests:
    """Counts the requests of a branch that equal the recorded ones."""

    def __init__(self, recorded: Sequence[RequestDigest]) -> None:
        self._recorded = recorded
        self._is_over = False
        self.compared = 0
        self.equal = 0
        self.first_difference = ""

    def compare(self, body: Mapping[str, Any]) -> bool:
        """Compare the next request; return whether there was one to compare it with."""
        if self._is_over or self.compared >= len(self._recorded):
            return False
        sent, recorded = digest_request(body), self._recorded[self.compared]
        place, role = _find_difference(sent, recorded)
        # The model said something else; from here on the requests have to differ.
        if role == "assistant":
            self._is_over = True
            return False
        self.compared += 1
        self.equal += not place
        if place and not self.first_difference:
            self.first_difference = f"request {self.compared} after the cut: {place}"
        return True


def _find_difference(sent: RequestDigest, recorded: RequestDigest) -> tuple[str, str]:
    """Return the first place where two requests differ, and the role of a message there."""
    for number, (one, other) in enumerate(zip(sent.messages, recorded.messages, strict=False)):
        if one != other:
            return f"messages[{number}]", other[0]
    if len(sent.messages) != len(recorded.messages):
        number = min(len(sent.messages), len(recorded.messages))
        longer = max(sent.messages, recorded.messages, key=len)
        return f"messages[{number}]", longer[number][0]
    names = {*sent.settings, *recorded.settings}
    return next(
        (name for name in sorted(names) if sent.settings.get(name) != recorded.settings.get(name)),
        "",
    ), ""


class BranchCheck:
    """Certifies the first request of the main thread; refuses all requests after a drift."""

    def __init__(
        self,
        context: RunContext,
        start: SessionStart,
        branch: BranchCreated,
        recorded: RecordedContext,
    ) -> None:
        self._context = context
        self._start = start
        self._branch = branch
        self._recorded = recorded
        self._certificate: Certificate | None = None
        self._added_betas: frozenset[str] = frozenset()
        self._is_past_first = False
        self._sent_count = 0
        source = context.run.path / SOURCE
        self._later = LaterRequests(
            ()
            if branch.prompt or branch.arm
            else msgspec.json.decode((source / LATER).read_bytes(), type=list[RequestDigest])
        )

    def admit_other(self) -> None:
        """Let a request of the client or a subagent pass, unless the branch drifted."""
        if self._certificate is not None:
            _raise_if_drifted(self._certificate, self._branch)
        self._sent_count += 1

    def check_first(self, spliced: RewrittenBody | None, incoming: IncomingRequest) -> None:
        if self._certificate is None:
            recorded = _split_betas(self._branch.headers)
            self._added_betas = frozenset(_split_betas(incoming.headers)) - set(recorded)
            self._certificate = self._certify(spliced)
            attempt, sent = self._start.attempt, self._sent_count
            record_certificate(
                self._context, attempt, self._branch, self._certificate, sent_requests=sent
            )
            return
        _raise_if_drifted(self._certificate, self._branch)

    def certify_without_request(self) -> None:
        """Certify a branch whose context cannot be compared; raise Conflict if that refuses it."""
        result = certify_unrecorded(self._request_facts())
        result = certify_work_tree(result, self._present_state(), self._recorded_state())
        record_certificate(self._context, self._start.attempt, self._branch, result)

    def compare_later(self, body: dict[str, Any]) -> None:
        """Compare a request after the first with the recorded one."""
        is_first, self._is_past_first = not self._is_past_first, True
        if not is_first and self._later.compare(body):
            counts = (self._later.compared, self._later.equal, self._later.first_difference)
            self._context.run.append(
                LaterRequestsCompared("session_01", self._start.attempt, *counts)
            )

    def recorded_headers(self, incoming: IncomingRequest, *, is_main: bool) -> dict[str, str]:
        """Return the headers to send as recorded; other threads lose what the client added."""
        if self._branch.arm:
            return {}
        if is_main:
            recorded, given = self._branch.headers.items(), incoming.headers
            return {name: value for name, value in recorded if given.get(name, value) != value}
        betas = [beta for beta in _split_betas(incoming.headers) if beta not in self._added_betas]
        is_changed = self._branch.headers and len(betas) != len(_split_betas(incoming.headers))
        return {"anthropic-beta": ",".join(betas)} if is_changed else {}

    def _certify(self, spliced: RewrittenBody | None) -> Certificate:
        branch = self._branch
        facts = replace(self._request_facts(), tools=self._available_tools())
        method = certificate.FRESH if branch.is_fresh else certificate.SPLICED
        method = certificate.CURSOR if branch.uses_cursor else method
        method += certificate.REBUILT if branch.rebuilt_fidelity else ""
        result = certify_request(self._recorded, spliced, facts, method)
        states = (self._present_state(), self._recorded_state())
        # With a cursor the tools run again, so files have the times of now.
        return certify_work_tree(result, *states, compares_times=not branch.uses_cursor)

    def _request_facts(self) -> RequestFacts:
        branch, started = self._branch, self._context.run.state.start
        return RequestFacts(
            client=started.agent_version if started else "",
            recorded_client=branch.client,
            scrubbed_fields=("a credential",) if branch.is_scrubbed else (),
            rebuilt_fidelity=branch.rebuilt_fidelity,
            arm=branch.arm,
        )

    def _recorded_state(self) -> WorkTreeState | None:
        data = (self._context.run.path / SOURCE / STATE).read_bytes()
        return msgspec.convert(json.loads(data), WorkTreeState) if data else None

    def _present_state(self) -> WorkTreeState | None:
        """Save the work tree as the agent has it now, before anything is sent."""
        trees = self._start.trees
        if trees is None:
            return None
        name = f"_cut_{self._start.attempt}_{self._context.run.state.takeover_count}"
        return read_work_tree_state(trees, trees.save_snapshot(name).name)

    def _available_tools(self) -> frozenset[str]:
        """Return the tools that the client announces in its first record, if any."""
        announces = self._context.run.config.engine == "claude_code"
        until = time.monotonic() + (_INIT_S if announces else 0.0)
        while time.monotonic() < until:
            for record in self._context.agent_records("session_01"):
                if record.get("subtype") == "init" and isinstance(record.get("tools"), list):
                    return frozenset(map(str, record["tools"]))
            time.sleep(0.02)
        return frozenset()


def record_certificate(
    context: RunContext,
    attempt: int,
    branch: BranchCreated,
    result: Certificate,
    *,
    sent_requests: int = 0,
) -> None:
    """Write the certificate to the journal; raise Conflict if the branch drifted and may not.

    `sent_requests` of the client itself reached the model before.
    """
    refused = result.is_drift and not branch.allow_drift
    facts = (result.verdict, result.method, result.first_difference, result.replacements, refused)
    parts = (result.context, result.files, result.repository, result.environment)
    certified = BranchCertified("session_01", attempt, *facts, *parts, sent_requests)
    context.run.append(certified, durable=True)
    _raise_if_drifted(result, branch)


def _raise_if_drifted(result: Certificate, branch: BranchCreated) -> None:
    if result.is_drift and not branch.allow_drift:
        raise _drift_error(result.first_difference, result.verdict)


def _drift_error(difference: str, verdict: str = certificate.DIFFERS) -> Conflict:
    is_unknown = verdict == certificate.UNKNOWN
    what = "cannot be compared with" if is_unknown else "differs from"
    hint = f"continue anyway, labeled `{verdict}`, with --allow-drift"
    return Conflict(f"the branch {what} the recording: {difference}", hint=hint)


def _split_betas(headers: Mapping[str, str]) -> list[str]:
    return [beta for beta in headers.get("anthropic-beta", "").split(",") if beta]


class RecordedAnswer(Struct, frozen=True):
    """One recorded answer; the digest is of a subagent's request ("" in the main thread)."""

    agent_context: str
    request_digest: str
    status: int
    headers: dict[str, str]
    body: bytes


class RecordedAnswers:
    """The recorded answers that were not served yet."""

    def __init__(self, answers: Iterable[RecordedAnswer]) -> None:
        self._remaining = list(answers)

    @property
    def is_on(self) -> bool:
        return any(answer.agent_context == RequestOrigin.MAIN.value for answer in self._remaining)

    def pop_answer(self, origin: RequestOrigin, body: Mapping[str, Any]) -> RecordedAnswer | None:
        """Return the answer to a request: in order for the main thread, else by content."""
        wanted = (origin.value, request_digest(origin, body))
        for number, answer in enumerate(self._remaining):
            if (answer.agent_context, answer.request_digest) == wanted:
                return self._remaining.pop(number)
        return None


class RecordedAnswerServer:
    """Serves recorded answers; `judge` checks the first request that has none, and may raise."""

    def __init__(
        self,
        cursor: RecordedAnswers,
        context: RecordedContext,
        judge: Callable[[RewrittenBody, IncomingRequest], None],
        *,
        allow_drift: bool,
    ) -> None:
        """Take the answers, and the recorded request of the turn with its prompt."""
        self._cursor = cursor
        self._context = context
        self._judge = judge
        self._allow_drift = allow_drift
        self._length = 0

    def rewrite_request(
        self, request: RequestInfo, incoming: IncomingRequest
    ) -> RewrittenRequest | ServedResponse | None:
        """Return the recorded answer, or the request to send."""
        body = msgspec.json.decode(incoming.body)
        answer = self._cursor.pop_answer(request.agent_context, body)
        if answer is not None:
            return ServedResponse(answer.status, answer.headers, answer.body)
        if request.agent_context is not RequestOrigin.MAIN:
            if self._cursor.is_on and not self._allow_drift:
                origin = request.agent_context.value
                raise _drift_error(f"it has a {origin} request that was not recorded")
            return None
        self._length = self._length or len(body.get("messages") or ())
        rewritten = self._apply_recorded_settings(body)
        self._judge(rewritten, incoming)
        return RewrittenRequest(rewritten.data, rewritten.replacements)

    def _apply_recorded_settings(self, body: dict[str, Any]) -> RewrittenBody:
        """Return the request with the recorded settings and the prompt of the branch."""
        messages = list(body.get("messages") or ())
        first = append_prompt(messages[: self._length], self._context.prompt)
        prompted = [*first, *messages[self._length :]]
        rewritten = self._context.apply_recorded_settings({**body, "messages": prompted})
        ignored = {"messages", "metadata", "stream"}
        differences = find_differences(body, self._context.recorded, ignored=ignored)
        return RewrittenBody(rewritten, tuple(differences))


def request_digest(origin: RequestOrigin, body: Mapping[str, Any]) -> str:
    """Return what identifies a subagent's request in the recording; "" in the main thread."""
    if origin is RequestOrigin.MAIN:
        return ""
    messages = body.get("messages") or []
    key = msgspec.json.encode([canonical_value(messages[:1]), len(messages)], order="sorted")
    return hashlib.sha256(key).hexdigest()
