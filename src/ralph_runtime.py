"""The loop under its source document's name: `from ralph_runtime import RalphRuntime`."""

from flightlog.app.ralph import RalphRuntime

__all__ = ["RalphRuntime"]
