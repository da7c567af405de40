"""Workloads, the parameters that generators declare, and the registry of generators.

A generator is a function `f(seed, *, parameter=default, ...) -> Workload`, registered with
`@workload(...)`. Each parameter is annotated with `Annotated[type, takes(meaning, limits)]`, so the
signature alone defines the parameters: `generate` checks values against it before
any row is made, and the shell makes its options from it.

Tables have the columns of the product's files:

    events           id, one column per attribute; null: the event lacks it
    subscriptions    id, <attribute>_lo, <attribute>_hi ...; null: no bound on that side
                     or id, filter; both with score and weight_<attribute> where there are any
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec
import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, did_you_mean
from rangecast.kernels.arrays import F64, AnyArray, Bool
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space

if TYPE_CHECKING:  # a generator of texts needs no reader of filters
    from rangecast.model.boxes import Boxes

Function = Callable[..., "Workload"]


@dataclass(frozen=True)
class Workload:
    """Tables that belong together, and their space."""

    name: str
    space: Space
    tables: dict[str, pa.Table]

    @cached_property
    def boxes(self) -> Boxes:
        """The table of subscriptions as boxes."""
        from rangecast.model.encoding.subscriptions import encode_subscriptions

        return encode_subscriptions(self.tables["subscriptions"], self.space)

    @cached_property
    def points(self) -> F64:
        """The table of events as points, (events, attributes)."""
        from rangecast.model.encoding.events import encode_events

        return encode_events(self.tables["events"], self.space).points


def takes(meaning: str, **limits: Any) -> msgspec.Meta:
    """Annotate a parameter with its meaning and its limits `ge`, `gt`, `le`, `lt`."""
    return msgspec.Meta(description=meaning, **limits)


@dataclass(frozen=True)
class Generator:
    """A registered workload: its description, its parameters, and its generator function."""

    name: str
    description: str
    source: str
    function: Function
    parameters: Mapping[str, inspect.Parameter]
    """Parameters by name, with annotation and default."""

    def generate(self, *, seed: int = 0, **parameters: Any) -> Workload:
        """Return the workload; the same seed and parameters give the same tables."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise UsageError(f"seed must be a whole number, at least 0; given: {seed!r}")
        checked = {name: self._checked(name, value) for name, value in parameters.items()}
        return self.function(int(seed), **checked)

    def _checked(self, name: str, value: Any) -> Any:
        if name not in self.parameters:
            raise UsageError(
                f"workload {self.name!r} has no parameter {name!r}: "
                f"{did_you_mean(name, list(self.parameters))}"
            )
        if isinstance(value, np.generic):
            value = value.item()
        annotation = self.parameters[name].annotation
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise msgspec.ValidationError("expected a finite number")
            return msgspec.convert(value, annotation)
        except msgspec.ValidationError as error:
            kind, _ = get_args(annotation)
            why = str(error).replace("Expected", "expected")
            if get_origin(kind) is Literal:
                why = f"expected one of {', '.join(get_args(kind))}"
            raise UsageError(
                f"parameter {name!r} of workload {self.name!r}: {why}; given: {value!r}"
            ) from None


WORKLOADS: dict[str, Generator] = {}
"""All workloads by name."""


def workload(name: str, *, source: str) -> Callable[[Function], Function]:
    """Register a generator, described by its docstring's first line and its signature."""

    def register(function: Function) -> Function:
        description = (inspect.getdoc(function) or "").partition("\n")[0]
        _, *parameters = inspect.signature(function, eval_str=True).parameters.values()
        by_name = {parameter.name: parameter for parameter in parameters}
        WORKLOADS[name] = Generator(name, description, source, function, by_name)
        return function

    return register


def generate(name: str, *, seed: int = 0, **parameters: Any) -> Workload:
    """Return the workload of this name; the same seed and parameters give the same tables."""
    return named(name).generate(seed=seed, **parameters)


def named(name: str) -> Generator:
    """Return the generator of this name."""
    if name not in WORKLOADS:
        raise UsageError(f"no workload {name!r}: {did_you_mean(str(name), list(WORKLOADS))}")
    return WORKLOADS[name]


def numbered(letter: str, count: int) -> list[str]:
    """Return generated attribute names: a0, a1, ..."""
    return [f"{letter}{index}" for index in range(count)]


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


def unit_cube(
    name: str,
    lo: F64,
    hi: F64,
    rng: np.random.Generator,
    events: int,
    mentioned: Bool | None = None,
) -> Workload:
    """Return boxes on [0, 1]^d with events that are uniform on it."""
    space = Space(Number(axis, min=0, max=1) for axis in numbered("a", lo.shape[1]))
    tables = {
        "subscriptions": box_table(space.names, lo, hi, mentioned=mentioned),
        "events": event_table(space.names, rng.random((events, len(space)))),
    }
    return Workload(name, space, tables)
