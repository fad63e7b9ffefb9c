"""Ralph runtime."""

from pathlib import Path
from typing import Any

from flightlog.app.runtime import open_runtime
from flightlog.loop import service
from flightlog.loop.directories import open_loop_session
from flightlog.loop.runner.control import send_control_request
from flightlog.loop.runner.driver import ControlRequest
from flightlog.privacy.service import make_redactor

__all__ = ["RalphRuntime"]


class RalphRuntime:
    """One session: `session_dir` is opened, or created exactly there."""

    def __init__(
        self,
        session_dir: str | Path,
        max_iterations: int | None = None,
        confidence_threshold: float | None = None,
        **settings: Any,
    ) -> None:
        """Keep the settings; the other names are those of the plan's `config`."""
        self.session_dir = Path(session_dir)
        given = {"max_iterations": max_iterations, "confidence_threshold": confidence_threshold, **settings}
        self._config = {name: value for name, value in given.items() if value is not None}

    def execute_plan(self, plan_path: str | Path, autonomous_mode: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - the document's signature
        """Carry out the plan, or go on with it; return what `session-metadata.yaml` says then."""
        runtime = open_runtime()
        service.start_session_at(
            runtime, Path(plan_path), self.session_dir, autonomous=autonomous_mode, config=self._config
        )
        service.conduct_session(runtime, self.session_dir, mode=service.RunMode.RESUME)
        return self.status()

    def resume(self) -> dict[str, Any]:
        """Go on with a session that rested or was cut short."""
        service.conduct_session(open_runtime(), self.session_dir, mode=service.RunMode.RESUME)
        return self.status()

    def pause(self) -> None:
        """Let a running session rest after its task."""
        send_control_request(self.session_dir, ControlRequest("pause", why="RalphRuntime.pause"))

    def stop(self) -> None:
        """Stop a running session at once."""
        send_control_request(self.session_dir, ControlRequest("stop", why="RalphRuntime.stop"))

    def status(self) -> dict[str, Any]:
        """What `session-metadata.yaml` says, from the journal."""
        return open_loop_session(self.session_dir).build_metadata(make_redactor(open_runtime()))
