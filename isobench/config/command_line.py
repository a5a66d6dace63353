"""Check the settings of a command line as they were typed, before Hydra reads them: Hydra drops some in silence."""

from collections.abc import Sequence

from isobench.common.errors import UserError

GROUPS = ("task", "encoder", "head", "optimization", "tracking", "scale", "experiment", "hydra/launcher")


def check_typed_settings(arguments: Sequence[str]) -> None:
    """Raise UserError for a setting without a name, or typed twice with different values, or for a list of options.

    Hydra takes the last value of a setting. Of ``task=[rte,sst2]`` it takes every setting from the last option that
    has it. Flags such as ``-m`` are passed over; so is ``calibration=[a,b]``, which is a chain of methods.
    """
    typed: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        name = key.strip().lstrip("+")
        if equals and not name.strip("~"):
            raise UserError(f"{argument} has no name before the =: settings are written key=value (isobench --help)")
        if not equals or argument.startswith(("-", "~")):
            continue
        if name in GROUPS and value.strip().startswith("["):
            advice = (
                "give each a command of its own" if name == "experiment" else f"to run several, write -m {name}=A,B"
            )
            raise UserError(f"{argument}: a run has one {name}: {advice}")
        first = typed.setdefault(name, value)
        if first != value:
            raise UserError(f"{name} is given twice, as {first} and as {value}: leave one out")
