"""What a workload is, how a generator declares its parameters, and the registry of all of them.

A generator is a function `f(seed, *, parameter=default, ...) -> Workload`, registered with
`@workload(...)`. Each parameter is annotated with `Annotated[type, Takes(meaning, limits)]`, so
the signature is the one place that says what there is to set: the shell lists and parses it from
here, and `generate` checks it here before any row is made.

Tables have the columns of the product's files:

    events           id, one column an attribute; null: the event lacks it
    subscriptions    id, <attribute>_lo, <attribute>_hi ...; null: no bound on that side
                     or id, filter; both with score and weight_<attribute> where there are any
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import F64, AnyArray, Bool
from rangecast.model.space import Space

Function = Callable[..., "Workload"]

_KIND_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Workload:
    """Tables that belong together, and the space that they speak of."""

    name: str
    space: Space | None
    tables: dict[str, pa.Table]


@dataclass(frozen=True)
class Takes:
    """What a parameter means and which values it takes; annotate the parameter with it."""

    meaning: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def allows(self, value: Any) -> bool:
        """Return whether a value of the right type lies within the limits."""
        if self.choices:
            return value in self.choices
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def limits(self) -> str:
        """Return the limits in words; empty if there are none."""
        if self.choices:
            return "one of " + ", ".join(map(repr, self.choices))
        words = {"at least": self.least, "above": self.above}
        words |= {"at most": self.most, "below": self.below}
        return " and ".join(
            f"{word} {limit:g}" for word, limit in words.items() if limit is not None
        )


@dataclass(frozen=True)
class Parameter:
    """One thing that can be set about a workload."""

    name: str
    kind: type
    default: Any
    takes: Takes

    @property
    def meaning(self) -> str:
        """What it is, in one line."""
        return self.takes.meaning

    def expected(self) -> str:
        """Return what it takes, in words."""
        limits = self.takes.limits()
        if self.takes.choices:
            return limits
        return _KIND_NAMES[self.kind] + (f", {limits}" if limits else "")

    def check(self, value: Any, workload_name: str) -> Any:
        """Return the value as the generator wants it; refuse one of the wrong type or size."""
        if isinstance(value, np.generic):
            value = value.item()
        fits = isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))
        if self.kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            fits = math.isfinite(value)
        if not fits or not self.takes.allows(value):
            raise UsageError(
                f"parameter {self.name!r} of workload {workload_name!r} takes {self.expected()}; "
                f"given: {value!r}"
            )
        return self.kind(value)

    def read(self, text: str) -> Any:
        """Return the value that a text of the shell stands for, or the text if it is none."""
        stripped = text.strip()
        try:
            if self.kind is bool:
                return _BOOLEANS.get(stripped.casefold(), text)
            return self.kind(stripped)
        except ValueError:
            return text


@dataclass(frozen=True)
class Generator:
    """A registered workload: what it is, what can be set, and the function that makes it."""

    name: str
    description: str
    source: str
    parameters: tuple[Parameter, ...]
    function: Function

    def generate(self, *, seed: int = 0, **parameters: Any) -> Workload:
        """Return the workload; the same seed and parameters give the same tables."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise UsageError(f"seed takes a whole number, at least 0; given: {seed!r}")
        checked = {
            name: self.parameter(name).check(value, self.name) for name, value in parameters.items()
        }
        return self.function(int(seed), **checked)

    def parameter(self, name: str) -> Parameter:
        """Return the parameter of this name."""
        known = {p.name: p for p in self.parameters}
        if name not in known:
            raise UsageError(
                f"workload {self.name!r} has no parameter {name!r}: {near(name, list(known))}"
            )
        return known[name]

    def settings(self, texts: Iterable[str]) -> dict[str, Any]:
        """Return the parameters that texts such as `events=1000` set, checked."""
        values: dict[str, Any] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            name = name.strip()
            if not equals:
                raise UsageError(f"a setting is written name=value, such as events=1000: {text!r}")
            if name in values:
                raise UsageError(f"parameter {name!r} is set twice: {text!r}")
            parameter = self.parameter(name)
            values[name] = parameter.check(parameter.read(value), self.name)
        return values


WORKLOADS: dict[str, Generator] = {}
"""Every workload by its name."""


def workload(name: str, *, source: str) -> Callable[[Function], Function]:
    """Register a generator; its docstring's first line describes it, its signature its settings."""

    def register(function: Function) -> Function:
        description = (inspect.getdoc(function) or "").partition("\n")[0]
        WORKLOADS[name] = Generator(name, description, source, _parameters(function), function)
        return function

    return register


def _parameters(function: Function) -> tuple[Parameter, ...]:
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, declared in inspect.signature(function).parameters.items():
        if declared.kind is inspect.Parameter.KEYWORD_ONLY:
            kind, takes = typing.get_args(hints[name])
            found.append(Parameter(name, kind, declared.default, takes))
    return tuple(found)


def generate(name: str, *, seed: int = 0, **parameters: Any) -> Workload:
    """Return the workload of this name; the same seed and parameters give the same tables."""
    if name not in WORKLOADS:
        raise UsageError(f"no workload {name!r}: {near(str(name), list(WORKLOADS))}")
    return WORKLOADS[name].generate(seed=seed, **parameters)


def numbered(letter: str, count: int) -> list[str]:
    """Return the names of attributes that have no meaning: a0, a1, ..."""
    return [f"{letter}{place}" for place in range(count)]


def event_table(names: Sequence[str], points: AnyArray) -> pa.Table:
    """Return points, (rows, d), as an event table; ids count from 0."""
    columns = {name: pa.array(points[:, axis]) for axis, name in enumerate(names)}
    return pa.table({"id": pa.array(np.arange(len(points)))} | columns)


def box_table(
    names: Sequence[str],
    lo: AnyArray,
    hi: AnyArray,
    *,
    mentioned: Bool | None = None,
    scores: F64 | None = None,
    weights: F64 | None = None,
) -> pa.Table:
    """Return boxes, (rows, d), as a wide table; bounds that aren't mentioned are null."""
    columns: dict[str, Any] = {"id": pa.array(np.arange(len(lo)))}
    for axis, name in enumerate(names):
        mask = None if mentioned is None else ~mentioned[:, axis]
        columns[f"{name}_lo"] = pa.array(lo[:, axis], mask=mask)
        columns[f"{name}_hi"] = pa.array(hi[:, axis], mask=mask)
    if scores is not None:
        columns["score"] = pa.array(scores)
    if weights is not None:
        columns |= {f"weight_{n}": pa.array(weights[:, j]) for j, n in enumerate(names)}
    return pa.table(columns)
