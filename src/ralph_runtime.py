"""`RalphRuntime`: the source document's Python interface to a loop session.

It prints progress and questions on standard error, as `ralph-runtime run` does. The commands find
the session by the name of its directory: `ralph-runtime status --session session-001`.
"""

from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.loop import service
from flightlog.loop.decide.gates import check_answer
from flightlog.loop.directories import open_loop_session
from flightlog.loop.runner import session
from flightlog.loop.runner.control import send_control_request
from flightlog.loop.runner.driver import ControlRequest
from flightlog.model.errors import NotFound
from flightlog.model.text import make_inert
from flightlog.privacy.service import make_redactor

__all__ = ["RalphRuntime"]


class RalphRuntime:
    """One loop session: `session_dir` is opened, or created exactly there."""

    def __init__(
        self,
        session_dir: str | Path,
        max_iterations: int | None = None,
        confidence_threshold: float | None = None,
        **settings: Any,
    ) -> None:
        """Store the settings; other keyword arguments are names of the plan's `config`."""
        self.session_dir = Path(session_dir)
        values = {
            "max_iterations": max_iterations,
            "confidence_threshold": confidence_threshold,
            **settings,
        }
        self._config = {name: value for name, value in values.items() if value is not None}

    def execute_plan(self, plan_path: str | Path, autonomous_mode: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - the document's signature
        """Run or continue the plan; return the content of `session-metadata.yaml`."""
        runtime = open_runtime()
        plan, directory = Path(plan_path), self.session_dir
        service.start_session_at(
            runtime, plan, directory, autonomous=autonomous_mode, config=self._config
        )
        return self.resume()

    def resume(self, **limits: float) -> dict[str, Any]:
        """Continue a paused or interrupted session.

        `limits` are new ones: `max_iterations`, `wall_time_seconds`, `usd`, `calls`, `tokens`.
        """
        service.conduct_session(
            open_runtime(),
            self.session_dir,
            service.Terminal(tell=_print_line),
            mode=session.RunMode.RESUME,
            changes=service.merge_limits(self.session_dir, limits, ()),
        )
        return self.status()

    def answer(self, text: str) -> None:
        """Answer the open question; the answer counts when a runner reads it."""
        state = open_loop_session(self.session_dir).state
        if state.question is None:
            name = self.session_dir.name
            raise NotFound(f"{name} has no open question", hint="see status()")
        question = state.question.event
        check_answer(question, text)
        send_control_request(self.session_dir, ControlRequest("answer", question.question_id, text))

    def pause(self) -> None:
        """Pause a running session after its current task."""
        send_control_request(self.session_dir, ControlRequest("pause", reason="RalphRuntime.pause"))

    def stop(self) -> None:
        """Stop a running session immediately."""
        send_control_request(self.session_dir, ControlRequest("stop", reason="RalphRuntime.stop"))

    def status(self) -> dict[str, Any]:
        """Return the content of `session-metadata.yaml`, from the journal."""
        return open_loop_session(self.session_dir).build_metadata(make_redactor(open_runtime()))


def _print_line(line: str) -> None:
    click.echo(make_inert(line), err=True)
