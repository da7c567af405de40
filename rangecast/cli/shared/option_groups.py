"""Groups of options: one parameter of a command that stands for several options.

    def cover(space: SpaceFile, on: EngineOptions, options: SubscriptionOptions, ...) -> None: ...

A group is a dataclass; `Annotated[Group, "first", "second"]` offers only these of its options. The
options of groups come after the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer

from rangecast.cli.shared.options import (
    EngineOption,
    EventId,
    ExplainPlan,
    IgnoreUnknown,
    Json,
    Keep,
    Master,
    Nan,
    Quiet,
    RejectedFile,
    SubscriptionId,
    Track,
    TrackAfter,
    TrackDwell,
    TrackFirst,
    TrackFor,
    TrackInside,
    TrackLateness,
    TrackRulesFile,
    TrackTime,
)
from rangecast.errors import UsageError
from rangecast.model.attributes.base import NanMeaning


@dataclass(frozen=True)
class RunOptions:
    """Options for reading rows and for the summary."""

    rejected: RejectedFile = None
    event_id: EventId = None
    subscription_id: SubscriptionId = None
    keep: Keep = None
    ignore_unknown: IgnoreUnknown = False
    nan: Nan = NanMeaning.ERROR
    as_json: Json = False
    quiet: Quiet = False

    @property
    def kept(self) -> tuple[str, ...]:
        """Columns to keep; one value may list several, separated by commas."""
        names = [name.strip() for listed in self.keep or () for name in listed.split(",")]
        return tuple(dict.fromkeys(filter(None, names)))


OutputOptions = Annotated[RunOptions, "as_json", "quiet"]
RowOptions = Annotated[RunOptions, "rejected", "ignore_unknown", "as_json", "quiet"]
SubscriptionOptions = Annotated[
    RunOptions, "rejected", "subscription_id", "ignore_unknown", "as_json", "quiet"
]
EventOptions = Annotated[
    RunOptions, "rejected", "event_id", "ignore_unknown", "nan", "as_json", "quiet"
]
BothOptions = Annotated[
    RunOptions,
    "rejected",
    "event_id",
    "subscription_id",
    "ignore_unknown",
    "nan",
    "as_json",
    "quiet",
]


@dataclass(frozen=True)
class PlannedEngine:
    """Engine that runs the kernels, and whether to explain the plan."""

    engine: EngineOption = "local"
    master: Master = None
    explain_plan: ExplainPlan = False

    def __post_init__(self) -> None:
        """Reject a --master without --engine spark."""
        if self.master is not None and not self.is_spark:
            raise UsageError(
                f"--master {self.master} requires --engine spark, but --engine is {self.engine}\n"
                "  hint: pass --engine spark, or leave out --master"
            )

    @property
    def is_spark(self) -> bool:
        """Whether Spark workers run the kernels."""
        return self.engine == "spark"


EngineOptions = Annotated[PlannedEngine, "engine", "master"]


@dataclass(frozen=True)
class TrackOptions:
    """Options for tracking objects."""

    track: Track = None
    time: TrackTime = None
    for_: TrackFor = None
    dwell: TrackDwell = None
    first: TrackFirst = None
    after: TrackAfter = None
    lateness: TrackLateness = None
    inside: TrackInside = False
    rules: TrackRulesFile = None

    def as_settings(self, taken: Mapping[str, Any]) -> TrackOptions | None:
        """Return the options if objects are tracked; reject options that exclude each other.

        taken   other options and their values, which exclude `--track`
        """
        if self.track is None:
            names = [field.name for field in fields(self) if getattr(self, field.name)]
            if names:
                raise UsageError(
                    f"--{names[0].rstrip('_')} requires --track\n"
                    "  hint: name the column of the objects: --track COLUMN"
                )
            return None
        other = next((name for name, value in taken.items() if value), None)
        if other is not None:
            raise UsageError(
                f"--track can't be combined with {other}\n  hint: leave out one of them"
            )
        return self


class App(typer.Typer):
    """Command group whose commands take option groups; without arguments it shows its help."""

    def __init__(self, **settings: Any):
        super().__init__(**{"no_args_is_help": True, "rich_markup_mode": None} | settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a command."""
        register = super().command(name, **settings)

        def registered(function: Callable[..., None]) -> Callable[..., None]:
            register(_flat(function))
            return function

        return registered


def _flat(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes each option of its groups as a separate parameter."""
    declared = inspect.signature(command, eval_str=True).parameters.values()
    groups = {
        parameter.name: named for parameter in declared if (named := _group(parameter.annotation))
    }
    if not groups:
        return command

    def called(**arguments: Any) -> None:
        for name, (group, options) in groups.items():
            arguments[name] = group(
                **{option.name: arguments.pop(option.name) for option in options}
            )
        command(**arguments)

    ungrouped = [parameter for parameter in declared if parameter.name not in groups]
    of_groups = [option for _, options in groups.values() for option in options]
    called.__signature__ = inspect.Signature([*ungrouped, *of_groups])  # type: ignore[attr-defined]
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    return called


def _group(hint: Any) -> tuple[Any, list[inspect.Parameter]] | None:
    """Return the group of a parameter and the options offered; `None` if it is a single option."""
    group, *offered = get_args(hint) or [hint]
    if not is_dataclass(group):
        return None
    hints = get_type_hints(group, include_extras=True)
    by_name = inspect.Parameter.KEYWORD_ONLY
    return group, [
        inspect.Parameter(field.name, by_name, default=field.default, annotation=hints[field.name])
        for field in fields(group)
        if not offered or field.name in offered
    ]
