"""What is counted: trials, each an answer or a whole session, in groups that were asked the same. Values only."""

from collections.abc import Mapping

from msgspec import Struct

from flightlog.lab.statistics.actions import Action


class Trial(Struct, frozen=True):
    """One answer or one session; `place` is its file or directory from the run's, by which it is shown.

    `action` is None for a whole session; `outcomes` says of each verifier whether it passed.
    """

    place: str
    action: Action | None = None
    outcomes: Mapping[str, bool] = {}
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class TrialGroup(Struct, frozen=True):
    """Trials that were asked the same. `stopped` says that a stopping rule decided how many there are."""

    name: str
    trials: tuple[Trial, ...]
    label: str = ""
    model: str = ""
    stopped: bool = False
    failed: tuple[str, ...] = ()


class ComparisonQuestion(Struct, frozen=True):
    """Groups that can be compared: the first is the one as recorded. `recorded` is what was done then."""

    name: str
    groups: tuple[TrialGroup, ...]
    recorded: Action | None = None
    recorded_place: str = ""
