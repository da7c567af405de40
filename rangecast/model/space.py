"""Space: the ordered attributes of subscriptions and events, read from TOML."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from rangecast.errors import SpaceError, abbreviate, did_you_mean
from rangecast.model.attributes.base import Attribute, Number
from rangecast.model.attributes.column_names import RESERVED, columns_of
from rangecast.model.attributes.field_paths import Fields
from rangecast.model.attributes.patterns import Patterns, Text, TextOrder
from rangecast.model.attributes.places import Location, Place, Point
from rangecast.model.attributes.residuals import Arithmetic, Residual
from rangecast.model.attributes.text import KINDS as SCALARS
from rangecast.model.attributes.text import String
from rangecast.model.display import brief, counted, cut, html_table
from rangecast.model.io.atomic import write_whole
from rangecast.model.validation.flags import flag

KINDS: dict[str, type[Attribute]] = {
    **SCALARS,
    **{kind.type: kind for kind in (Location, Point, Arithmetic, Text)},
}
_SHOWN, _MAX_LENGTH = 20, 60
"""Attributes, and characters of a name, that a repr shows."""
_NOT_ATTRIBUTES = """a space must be a list of attributes
  given: {given}
  hint: Space([Number('price'), String('symbol')]); Space.load(path) reads a file"""


class Space:
    """Ordered list of named attributes; attribute `j` is axis `j` of every array."""

    def __init__(self, attributes: Iterable[Attribute]):
        if isinstance(attributes, str | Mapping) or not isinstance(attributes, Iterable):
            raise SpaceError(_NOT_ATTRIBUTES.format(given=abbreviate(attributes)))
        self.attributes = tuple(attributes)
        for attribute in self.attributes:
            if not isinstance(attribute, Attribute):
                raise SpaceError(
                    _NOT_ATTRIBUTES.format(given=f"a list with {abbreviate(attribute)}")
                )
        if not self.attributes:
            raise SpaceError("a space needs at least one attribute")
        self.attributes, self._implied = _with_coordinates(self.attributes)
        self.names = tuple(a.name for a in self.attributes)
        self.axes = {name: axis for axis, name in enumerate(self.names)}
        self.paths: dict[int, Fields] = {
            axis: attribute.path
            for axis, attribute in enumerate(self.attributes)
            if attribute.path is not None
        }
        """Where events have the values of attributes with a source, by axis."""
        self.fields = frozenset(
            attribute.name if attribute.path is None else attribute.path[0]
            for attribute in self.attributes
        )
        """The fields of events that speak of attributes."""
        self.patterns: dict[int, int] = {
            self.axes[declared.of]: axis
            for axis, declared in enumerate(self.attributes)
            if isinstance(declared, Patterns) and declared.of is not None
        }
        """The axis of the patterns of a text attribute, by the axis of that attribute."""
        self.guesses: dict[str, str] = {}
        """In an inferred space, the type of each column, and the reason for it."""
        self._check_names()

    def _check_names(self) -> None:
        arithmetic = [
            attribute.name for attribute in self.attributes if isinstance(attribute, Arithmetic)
        ]
        if len(arithmetic) > 1:
            raise SpaceError(
                "a space has at most one attribute of type 'arithmetic'; given: "
                f"{', '.join(arithmetic)}"
            )
        taken = dict.fromkeys(RESERVED, "a reserved column of files")
        for name in self.names:
            for column, meaning in columns_of(name).items():
                if column in taken:
                    raise SpaceError(
                        f"the column name {column!r} is ambiguous: {taken[column]} and "
                        f"{meaning}; rename the attribute"
                    )
                taken[column] = meaning

    def __len__(self) -> int:
        return len(self.attributes)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.axis(name)]

    def __getstate__(self) -> dict[str, Any]:
        made = "_places", "_encoder"  # on first use, of encoders several
        return {key: value for key, value in vars(self).items() if not key.startswith(made)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.attributes == other.attributes

    def __hash__(self) -> int:
        return hash(self.attributes)

    def __repr__(self) -> str:
        own = self._own
        shown = [f"{cut(a.name, _MAX_LENGTH)}: {a.type}" for a in own[:_SHOWN]]
        if len(own) > _SHOWN:
            shown.append(f"... {len(own):,} attributes")
        return f"Space({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Return the attributes as a table, for notebooks."""
        rows = (
            (a.name, a.type, ", ".join(f"{key}: {brief(value)}" for key, value in _options(a)))
            for a in self._own
        )
        title = f"Space of {counted(len(self._own), 'attribute')}"
        return html_table(title, ("attribute", "type", "options"), rows, len(self._own))

    @property
    def _own(self) -> list[Attribute]:
        """Declared attributes, without those that texts imply."""
        return [attribute for attribute in self.attributes if attribute.of is None]

    @property
    def valued(self) -> tuple[Attribute, ...]:
        """Attributes with event columns: all but locations, arithmetic and patterns."""
        return tuple(attribute for attribute in self._own if not isinstance(attribute, Residual))

    @property
    def mentionable(self) -> tuple[str, ...]:
        """Names that filters may use: all but those of the patterns and the order of a text."""
        hidden = Patterns | TextOrder
        return tuple(each.name for each in self.attributes if not isinstance(each, hidden))

    @property
    def event_columns(self) -> tuple[str, ...]:
        """Names of the attributes that events have values of."""
        return tuple(attribute.name for attribute in self.valued)

    def axis(self, name: str) -> int:
        """Return the index of an attribute."""
        try:
            return self.axes[name]
        except KeyError:
            hint = did_you_mean(name, self.mentionable)
            raise SpaceError(f"no attribute {name!r}: {hint}") from None

    @property
    def vocabularies(self) -> dict[str, list[str]]:
        """Vocabularies by attribute: the texts that subscriptions mention, saved in snapshots."""
        return {a.name: list(a.vocabulary) for a in self.attributes if isinstance(a, String)}

    def definition(self) -> dict[str, Any]:
        """Return the space as plain data, as in its TOML file."""
        declared = [a for a in self.attributes if a.name not in self._implied]
        return {"attribute": [a.definition() for a in declared]}

    @classmethod
    def from_definition(
        cls, data: Mapping[str, Any], vocabularies: Mapping[str, list[str]] | None = None
    ) -> Space:
        """Create a space from plain data; the inverse of `definition`."""
        unknown = [key for key in data if key != "attribute"]
        tables = data.get("attribute")
        if unknown or not isinstance(tables, list) or not tables:
            keys = ", ".join(map(repr, data)) or "nothing"
            raise SpaceError(f"a space must be a list of [[attribute]] tables; found: {keys}")
        known = vocabularies or {}
        return cls(_attribute(i, table, known) for i, table in enumerate(tables))

    @classmethod
    def infer(cls, events: Any, *, bounds: bool = False) -> Space:
        """Infer a space from data: a file, a table, a DataFrame, a list of dicts.

        `guesses` explains the type of each column, including those that were left out; `save`
        writes it as comments. Correct the file where a guess is wrong. Nested fields become
        attributes with a `source`.

        bounds   give ordered attributes the `min` and `max` of the data; events outside would be
                 rejected
        """
        from rangecast.model.infer import infer_attributes  # which loads NumPy and Arrow

        attributes, guesses = infer_attributes(events, bounds=flag("bounds", bounds))
        space = cls(attributes)
        space.guesses = guesses
        return space

    def without_sources(self) -> Space:
        """Return the space with sources removed: values are under the names of attributes."""
        plain = [
            {key: value for key, value in attribute.definition().items() if key != "source"}
            for attribute in self.attributes
            if attribute.of is None
        ]
        stated = [attribute for attribute in self.attributes if attribute.of is None]
        for table, attribute in zip(plain, stated, strict=True):
            if isinstance(attribute, Place):
                table |= attribute.columns_named(*(axis.name for axis in attribute.coordinates))
        return Space.from_definition({"attribute": plain}, self.vocabularies)

    def to_toml(self) -> str:
        """Return the space as TOML, with guesses as comments."""
        left_out = [name for name in self.guesses if name not in self.axes]
        head = "".join(map(self._comment, left_out))
        declared = [
            attribute for attribute in self.attributes if attribute.name not in self._implied
        ]
        tables = [self._comment(attribute_.name) + _toml_of(attribute_) for attribute_ in declared]
        return "\n".join([head, *tables] if head else tables)

    def _comment(self, name: str) -> str:
        guess = self.guesses.get(name)
        return "" if guess is None else f"# {inferred_line(name, guess)}\n"

    @classmethod
    def from_toml(cls, text: str) -> Space:
        """Parse a space from TOML."""
        try:
            return cls.from_definition(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SpaceError(f"not valid TOML: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Space:
        """Read a space from a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SpaceError(f"{path}: can't be read: {error}") from None
        except SpaceError as error:
            raise SpaceError(f"{path}: {error}") from None

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the space to a TOML file; an existing file is an error unless `overwrite`."""
        if not flag("overwrite", overwrite) and os.path.lexists(path):
            raise SpaceError(
                f"{path}: already exists\n"
                "  hint: save under another name, or replace it with overwrite=True"
            )
        try:
            write_whole(path, self.to_toml().encode())
        except OSError as error:
            raise SpaceError(f"{path}: can't be written: {error}") from None


def _with_coordinates(
    declared: tuple[Attribute, ...],
) -> tuple[tuple[Attribute, ...], frozenset[str]]:
    """Add the attributes that others imply; return all, and the names of the implied ones.

    A place implies its coordinates, a text its patterns and its order.
    """
    known = {attribute.name: attribute for attribute in declared}
    every: list[Attribute] = []
    implied: set[str] = set()
    for attribute in declared:
        for axis in attribute.coordinates if isinstance(attribute, Place) else ():
            is_new = axis.name not in known
            there = known.setdefault(axis.name, axis)
            if there is axis:  # perhaps of a space whose attributes these were
                every += [axis] * is_new
                implied.add(axis.name)
            elif not isinstance(there, Number) or there.path != axis.path:
                raise SpaceError(
                    f"attribute {attribute.name!r}: its coordinate {axis.name!r} must be a "
                    f"number; given: a {there.type}"
                )
        every.append(attribute)
        for companion in attribute.companions if isinstance(attribute, Text) else ():
            if known.get(companion.name, companion) is not companion:
                raise SpaceError(
                    f"attribute {attribute.name!r} reserves the name {companion.name!r}"
                )
            every += [companion] * (companion.name not in known)
            implied.add(companion.name)
    return tuple(every), frozenset(implied)


def _toml_of(attribute: Attribute) -> str:
    keys = attribute.definition()
    below = ""
    if isinstance(keys.get("tree"), Mapping):  # easier to read as a table of its own
        below = "\n" + tomli_w.dumps({"attribute": {"tree": keys.pop("tree")}})
    return f"[[attribute]]\n{tomli_w.dumps(keys)}{below}"


def inferred_line(name: str, inferred: str) -> str:
    """Return an inferred type as one line, for display or as a comment."""
    return f"{name if name.isprintable() else repr(name)}: {inferred}"


_OPTIONS = {
    "number": ("min", "max"),
    "integer": ("min", "max"),
    "timestamp": ("min", "max", "epoch"),
    "boolean": (),
    "category": ("values",),
    "string": (),
    "hierarchy": ("tree",),
    "location": ("longitude", "latitude", "edges", "earth", "border"),
    "point": ("x", "y", "border"),
    "arithmetic": (),
    "text": (),
}
_REQUIRED = ("values", "tree")
_ELSEWHERE = {
    **dict.fromkeys(("date", "datetime", "time"), "timestamp"),
    **dict.fromkeys(("float", "double", "decimal", "real"), "number"),
    **dict.fromkeys(("int", "long", "bigint"), "integer"),
    **dict.fromkeys(("str", "varchar"), "string"),
    "bool": "boolean",
    "enum": "category",
    "tree": "hierarchy",
}
"""Names of the types of attributes in other systems."""


def _attribute(axis: int, table: Any, vocabularies: Mapping[str, list[str]]) -> Attribute:
    if not isinstance(table, Mapping):
        raise SpaceError(f"attribute {axis} is not a table: {table!r}")
    name = table.get("name")
    kind = table.get("type")
    where = f"attribute {name!r}" if name else f"attribute {axis} (it has no name)"
    if kind not in KINDS:
        wrong = "has no type" if kind is None else f"has the unknown type {kind!r}"
        ours = _ELSEWHERE.get(str(kind).lower())
        hint = did_you_mean(str(kind), list(KINDS)) if ours is None else f"use {ours!r}"
        raise SpaceError(f"{where} {wrong}; {hint}")
    options = {key: value for key, value in table.items() if key not in ("name", "type")}
    for key in options:
        own = _OPTIONS[kind] if issubclass(KINDS[kind], Residual) else (*_OPTIONS[kind], "source")
        if key not in own:
            allowed = ", ".join(("name", "type", *own))
            raise SpaceError(f"{where}: a {kind} has no {key!r}; it takes {allowed}")
    for key in _OPTIONS[kind]:
        if key in _REQUIRED and key not in options:
            raise SpaceError(f"{where}: a {kind} needs {key!r}")
    if issubclass(KINDS[kind], String):
        options["vocabulary"] = vocabularies.get(str(name), ())
    if issubclass(KINDS[kind], Text):
        options["patterns"] = vocabularies.get(f"{name} patterns", ())
    return KINDS[kind](name, **options)  # type: ignore[arg-type]


def _options(attribute: Attribute) -> list[tuple[str, Any]]:
    definition = attribute.definition().items()
    return [(key, value) for key, value in definition if key not in ("name", "type")]
