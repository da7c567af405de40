"""The reference of the Python interface, from signatures and docstrings: `make reference`.

A name is public if the `__init__.pyi` of one of `MODULES` lists it. A class is shown with its
public methods, those that it inherits from rangecast's own classes included.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

MODULES = {
    "rangecast": "spaces, filters, files, and the live set that matches and ranks",
    "rangecast.client": "the clients of a server; needs `rangecast[server]`",
    "rangecast.cover": "the subscriptions that another one makes redundant",
    "rangecast.interop": "import and export of other systems' rules",
    "rangecast.merge": "subscriptions summed up into ranges",
    "rangecast.notify": "top-k lists kept up to date",
    "rangecast.overlay": "brokers of a network, which another program drives",
    "rangecast.spark": "the steps on DataFrames, streams and pipelines; needs PySpark",
    "rangecast.store": "versions of a set, and folders of committed batches",
}
HEAD = """\
# The Python API

Generated from the docstrings by `make reference`. Only the names on this page are public. `F64`,
`I64`, `I32`, ... are NumPy arrays of that type, and `Id` is a text or an integer.

"""
_OURS = "rangecast."
_WIDTH = 100
_PROTOCOL = {
    "__len__": "`len(x)`",
    "__contains__": "`id in x`",
    "__iter__": "`for ... in x`",
    "__getitem__": "`x[...]`",
    "__eq__": "`x == y`",
    "__enter__": "`with x:`",
}
_SETTING = re.compile(r"^(\w+(?:, \w+)*) {2,}(\S.*)$")
"""A line of a docstring that explains one argument: its name, two spaces or more, a text."""


def page() -> str:
    """Return the page as Markdown."""
    contents = HEAD
    body = ""
    shown: dict[int, str] = {}
    for name, about in MODULES.items():
        module = importlib.import_module(name)
        public = {each: getattr(module, each) for each in sorted(module.__all__, key=_by_kind)}
        links = ", ".join(f"[{each}](#{_anchor(name, each)})" for each in public)
        contents += f"**`{name}`**: {about}.\n\n{_filled(links)}\n\n"
        body += f"## {name}\n\n"
        bases = _common_bases(list(public.values()))
        for base in bases:
            body += f"### {base.__name__}\n\n{_entry(base, bases)}"
        for each, item in public.items():
            body += f"### {name}.{each}\n\n"
            first = shown.setdefault(id(item), f"{name}.{each}")
            body += _entry(item, bases) if first == f"{name}.{each}" else _same_as(first)
    return contents + body.rstrip() + "\n"


def _same_as(name: str) -> str:
    module, _, last = name.rpartition(".")
    return f"The same as [{name}](#{_anchor(module, last)}).\n\n"


def _by_kind(name: str) -> tuple[bool, str]:
    """Errors come last."""
    return name.endswith("Error"), name.lower()


def _anchor(module: str, name: str) -> str:
    return f"{module.replace('.', '')}{name.lower()}"


def _common_bases(public: list[Any]) -> list[type]:
    """Return the classes, not public themselves, that several public ones derive from.

    What these inherit is described once, with the base.
    """
    kinds = [each for each in public if inspect.isclass(each)]
    bases = dict.fromkeys(
        base for kind in kinds for base in kind.__mro__[1:] if base.__module__.startswith(_OURS)
    )
    return [
        base
        for base in bases
        if base not in kinds
        and base.__name__[0] != "_"
        and sum(issubclass(each, base) for each in kinds) > 1
    ]


def _entry(item: Any, bases: list[type]) -> str:
    if inspect.ismodule(item):
        return _text(item) + "".join(
            _signature(name, each) + _text(each)
            for name, each in vars(item).items()
            if inspect.isfunction(each) and each.__module__ == item.__name__ and name[0] != "_"
        )
    if not inspect.isclass(item):
        return _signature(item.__name__, item) + _text(item)
    if issubclass(item, BaseException):
        above = f" It is a `{item.__base__.__name__}`." if item.__base__ is not Exception else ""
        return _text(item).rstrip() + above + "\n\n"
    shown = "The base of several classes below.\n\n" if item in bases else ""
    shown = shown or _signature(item.__name__, item)
    shown += _text(item) + _fields(item)
    protocol = [said for method, said in _PROTOCOL.items() if _owner(item, method)]
    if protocol:
        shown += f"Also: {', '.join(protocol)}.\n\n"
    above = [base for base in bases if base is not item and issubclass(item, base)]
    links = ", ".join(f"[{each.__name__}](#{each.__name__.lower()})" for each in above)
    if links:
        shown += f"It has the methods of {links}.\n\n"
    own = [each for each in _methods(item) if not any(_adds_nothing(item, each, b) for b in above)]
    return shown + "".join(_method(item, each) for each in own)


def _adds_nothing(kind: type, name: str, base: type) -> bool:
    """Whether the description of a method of the base serves for the class as well."""
    for each in kind.__mro__:
        if each is base:
            return name in vars(base) or any(name in vars(b) for b in base.__mro__)
        if name in vars(each) and vars(each)[name].__doc__:
            return False
    return False


def _owner(kind: type, name: str) -> type | None:
    """Return the class of rangecast's that defines a method, if one does."""
    for each in kind.__mro__:
        if name in vars(each):
            ours = each.__module__.startswith(_OURS)
            return each if ours and not _made_by_dataclass(each, name) else None
    return None


def _made_by_dataclass(kind: type, name: str) -> bool:
    return name == "__eq__" and hasattr(kind, "__dataclass_fields__")


def _methods(kind: type) -> Iterator[str]:
    for each in dict.fromkeys(name for base in kind.__mro__ for name in vars(base)):
        fields = getattr(kind, "_fields", ()), getattr(kind, "__dataclass_fields__", ())
        if each.startswith("_") or any(each in some for some in fields):
            continue
        value = inspect.getattr_static(kind, each)
        is_method = isinstance(value, property | classmethod | staticmethod)
        if _owner(kind, each) and (is_method or inspect.isfunction(value)):
            yield each


def _method(kind: type, name: str) -> str:
    value = inspect.getattr_static(kind, name)
    if isinstance(value, property):
        given = value.fget.__annotations__.get("return", "") if value.fget else ""
        return f"```pyi\n{name}: {given}\n```\n\n" + _text(value, kind, name)
    return _signature(name, getattr(kind, name), drop_self=inspect.isfunction(value)) + _text(
        value, kind, name
    )


def _signature(name: str, item: Any, *, drop_self: bool = False) -> str:
    try:
        signature = inspect.signature(item)
    except ValueError:
        return f"```pyi\n{name}\n```\n\n"
    given = [each for each in signature.parameters.values() if not each.name.startswith("_")]
    shown = [_parameter(each) for each in given[drop_self:]]
    kinds = [each.kind for each in given[drop_self:]]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = signature.return_annotation
    end = "" if inspect.isclass(item) or result is inspect.Signature.empty else f" -> {result}"
    line = f"{name}({', '.join(shown)}){end}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){end}"
    return f"```pyi\n{line}\n```\n\n"


def _parameter(given: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown = stars.get(given.kind, "") + given.name
    if given.annotation is not inspect.Parameter.empty:
        shown += f": {_type(given.annotation)}"
    if given.default is not inspect.Parameter.empty:
        default = given.default
        named = "..." if inspect.isfunction(default) else repr(default)
        shown += f" = {named}"
    return shown


def _type(given: Any) -> str:
    """Return an annotation as it was written; a named tuple's are forward references."""
    return str(getattr(given, "__forward_arg__", None) or getattr(given, "__name__", given))


def _fields(kind: type) -> str:
    """Return a list of the fields of a named tuple or dataclass that have a docstring."""
    fields = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", ())
    if not fields:
        return ""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    lines = []
    for node, after in zip(tree.body, tree.body[1:], strict=False):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(said))),
            ) if name in fields and not name.startswith("_"):
                lines.append(_filled(f"- `{name}`: {' '.join(said.split())}", indent="  "))
    return "\n".join(lines) + "\n\n" if lines else ""


def _text(item: Any, kind: type | None = None, name: str = "") -> str:
    """Return a docstring as Markdown; a method without one has that of its base."""
    said = inspect.getdoc(item)
    if not said and kind is not None:
        said = next((d for b in kind.__mro__ if (d := inspect.getdoc(vars(b).get(name)))), None)
    if not said:
        raise SystemExit(f"{kind.__name__ + '.' if kind else ''}{name or item} has no docstring")
    paragraphs = []
    for block in said.split("\n\n"):
        lines = block.splitlines()
        if _SETTING.match(lines[0]):
            paragraphs.append(_settings(lines))
        else:
            paragraphs.append(block)
    return "\n\n".join(paragraphs) + "\n\n"


def _settings(lines: list[str]) -> str:
    """Turn lines `name   what it does`, and those that go on below one, into a list."""
    items: list[str] = []
    for line in lines:
        if found := _SETTING.match(line):
            names = ", ".join(f"`{each}`" for each in found[1].split(", "))
            items.append(f"- {names}: {found[2]}")
        else:
            items[-1] += " " + line.strip()
    return "\n".join(_filled(each, indent="  ") for each in items)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
