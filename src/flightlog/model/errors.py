"""The five errors, told apart by what the caller can do about them.

    FlightlogError
    ├── NotFound      name something else
    ├── Invalid       correct what was given (Misconfigured: in a configuration file;
    │                 ConsentNeeded: look at it, then allow it)
    ├── Conflict      wait, or take over: somebody else holds it
    ├── Unreadable    run doctor: recorded data is damaged
    └── Unavailable   try again later: a program, network or disk is not there

Faces map a type to an exit code or a status; errors know neither. Damage inside a
recording is not an error but a value (`model.damage`). A message says what, then which;
the hint is the one command to run next.
"""

from collections.abc import Mapping


class FlightlogError(Exception):
    """Something a person can act on."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message for the person and the hint for the next step."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(FlightlogError):
    """No such session, step, file or setting."""


class Invalid(FlightlogError):
    """What was given cannot be used as it is."""


class Conflict(FlightlogError):
    """Held by somebody else."""


class Unreadable(FlightlogError):
    """Recorded data is damaged beyond reading."""


class Unavailable(FlightlogError):
    """A program, network or disk that is needed does not answer."""


class Misconfigured(Invalid):
    """A configuration file or variable cannot be used as it is."""


class ConsentNeeded(Misconfigured):
    """A foreign file would make us run, send or write something that no person has allowed yet.

    `effects` is what it would do, by name, to be shown; `subject` is what consent is recorded for.
    """

    def __init__(self, message: str, *, hint: str, subject: str, effects: Mapping[str, object]) -> None:
        """Keep what a person must see before they agree."""
        super().__init__(message, hint=hint)
        self.subject = subject
        self.effects = effects
