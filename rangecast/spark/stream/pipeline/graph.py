"""Graph of a pipeline: the connections of its tables, by name.

Sources give events, subscriptions are sets. A step takes events (match, rank, filter, track,
notify) or a set (cover, merge), and names what stands above it in the file; so there are no
circles. `from`, `subscriptions` and `by` may be left out where only one thing fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rangecast.errors import FileError, did_you_mean
from rangecast.spark.stream.kafka import KafkaSink
from rangecast.spark.stream.pipeline.settings import (
    AnySink,
    AnySource,
    AnyStep,
    CoverStep,
    FilterStep,
    MatchStep,
    MergeStep,
    NotifyStep,
    RankStep,
    Settings,
    Subscriptions,
    TrackStep,
)
from rangecast.spark.stream.sinks.base import lies_inside

EventStep = MatchStep | RankStep | FilterStep | NotifyStep | TrackStep


class Node(NamedTuple):
    """A step, with its inputs and outputs."""

    step: AnyStep
    takes: str
    """A source, a set, or a step."""
    of: str | None
    """match, rank: a set or a step `cover`; filter: a step `merge`."""
    sinks: list[AnySink]


class Graph(NamedTuple):
    """A pipeline with all names resolved."""

    sources: dict[str, AnySource]
    sets: dict[str, Subscriptions]
    nodes: dict[str, Node]
    """The steps, in the order of the file."""

    def source_of(self, name: str) -> str:
        """Return the source whose events a step takes, through filters."""
        takes = self.nodes[name].takes
        return takes if takes in self.sources else self.source_of(takes)

    def filters_of(self, name: str) -> list[str]:
        """Return the steps `merge` that filter the events of a step."""
        node = self.nodes[name]
        own = [node.of] if isinstance(node.step, FilterStep) and node.of else []
        return own + (self.filters_of(node.takes) if node.takes in self.nodes else [])

    def steps_on(self, source: str) -> list[str]:
        """Return the steps that answer events of a source and have sinks or lists of their own."""
        return [
            name
            for name, node in self.nodes.items()
            if isinstance(node.step, EventStep)
            and self.source_of(name) == source
            and (node.sinks or isinstance(node.step, NotifyStep))
        ]


def graph_of(settings: Settings) -> Graph:
    """Resolve all names; raise an error that names the key where that can't be done."""
    sources = {source.name: source for source in settings.source}
    sets = {subscription.name: subscription for subscription in settings.subscriptions}
    names = [
        *((f"source[{i}]", source.name) for i, source in enumerate(settings.source)),
        *(
            (f"subscriptions[{i}]", subscription.name)
            for i, subscription in enumerate(settings.subscriptions)
        ),
        *((f"step[{i}]", source.called) for i, source in enumerate(settings.step)),
    ]
    seen: dict[str, str] = {}
    for at, name in names:
        if name in seen:
            raise FileError(
                f"{at}.name: {seen[name]} already has the name {name!r}\n  hint: give it another"
            )
        seen[name] = at
    for index, set_ in enumerate(settings.subscriptions):
        if set_.edits_source is not None:
            at = f"subscriptions[{index}].edits_source"
            _resolve_name(at, set_.edits_source, list(sources), (), "a source")
    graph = Graph(sources, sets, {})
    for index, step in enumerate(settings.step):
        graph.nodes[step.called] = _node(graph, f"step[{index}]", step)
    for index, sink in enumerate(settings.sink):
        graph.nodes[_sink_of(graph, f"sink[{index}]", sink)].sinks.append(sink)
    problem = next(_problems(graph, settings), None)
    if problem is not None:
        raise FileError(problem)
    return graph


def _node(graph: Graph, at: str, step: AnyStep) -> Node:
    def above(*kinds: type) -> list[str]:
        return [name for name, node in graph.nodes.items() if isinstance(node.step, kinds)]

    of: str | None = None
    if isinstance(step, CoverStep | MergeStep):
        choices = list(graph.sets) + (above(CoverStep) if isinstance(step, MergeStep) else [])
        takes = _resolve_name(f"{at}.input", step.input, choices, list(graph.sets), "a set")
    else:
        feeding = {set_.edits_source for set_ in graph.sets.values()}
        events = [name for name in graph.sources if name not in feeding]
        is_whole = isinstance(step, NotifyStep | TrackStep)
        choices = events if is_whole else events + above(FilterStep)
        takes = _resolve_name(f"{at}.input", step.input, choices, events, "a source")
    if isinstance(step, MatchStep | RankStep | TrackStep):
        sets = list(graph.sets)
        choices = sets if isinstance(step, TrackStep) else sets + above(CoverStep)
        of = _resolve_name(f"{at}.subscriptions", step.subscriptions, choices, sets, "a set")
    elif isinstance(step, FilterStep):
        choices = above(MergeStep)
        of = _resolve_name(
            f"{at}.summary", step.summary, choices, choices, "a step of type 'merge' above it"
        )
    return Node(step, takes, of, [])


def _resolve_name(
    at: str, text: str | None, choices: Sequence[str], usual: Sequence[str], what: str
) -> str:
    """Return the given name, or the only one that fits."""
    if text is None:
        if len(usual) == 1:
            return usual[0]
        if not usual:
            raise FileError(f"{at}: there is no possible input\n  expected: {what}")
        raise FileError(f"{at}: is missing\n  expected: one of {', '.join(map(repr, choices))}")
    if text not in choices:
        raise FileError(
            f"{at}: unknown {text!r}: {did_you_mean(text, choices)}\n  expected: {what}"
        )
    return text


def _sink_of(graph: Graph, at: str, sink: AnySink) -> str:
    used = {name for node in graph.nodes.values() for name in (node.takes, node.of)}
    ends = [name for name in graph.nodes if name not in used]
    return _resolve_name(f"{at}.input", sink.input, list(graph.nodes), ends, "a step")


def _problems(graph: Graph, settings: Settings) -> Iterator[str]:
    used = {name for node in graph.nodes.values() for name in (node.takes, node.of)}
    for index, (name, node) in enumerate(graph.nodes.items()):
        of_set = isinstance(node.step, CoverStep | MergeStep)
        if node.sinks and of_set and settings.mode == "stream":
            yield (
                f"step[{index}]: the rows of a step {node.step.called!r} can only be written by "
                "batch jobs\n  hint: use it as input of another step, or set mode = 'batch'"
            )
        if not node.sinks and name not in used and not isinstance(node.step, NotifyStep):
            yield (
                f"step[{index}]: its output isn't used\n"
                f"  hint: add a [[sink]] with input = {name!r}"
            )
    yield from _sink_problems(graph, settings)
    feeding = {set_.edits_source for set_ in graph.sets.values()}
    for index, name in enumerate(graph.sources):
        steps = [graph.nodes[step_name].step for step_name in graph.steps_on(name)]
        if not steps and name not in feeding:
            yield f"source[{index}]: its events aren't used by any step"
        if getattr(graph.sources[name], "compacted", False) and name not in feeding:
            yield f"source[{index}].compacted: is only for a source named by edits_source"
        if steps and name in feeding:
            yield f"source[{index}]: is a source of edits, so steps can't use it as events"
        if len(steps) > 1 and any(isinstance(step, NotifyStep) for step in steps):
            yield f"source[{index}]: a source of updates is only for one step of type 'notify'"
    for index, name in enumerate(graph.sets):
        if name not in used:
            yield f"subscriptions[{index}]: they aren't used by any step"


def _sink_problems(graph: Graph, settings: Settings) -> Iterator[str]:
    paths = [str(getattr(sink, "path", None)) for sink in settings.sink]
    if settings.rejected is not None:
        paths.append(str(settings.rejected.path))
    others = [] if settings.stream is None else [str(settings.stream.checkpoint)]
    inside = lies_inside([*paths, *others], paths)
    if inside is not None:
        yield (
            f"{inside[0]}: lies inside of {inside[1]}, whose readers would see both\n"
            "  hint: give each sink a folder beside the others"
        )
    for index, sink in enumerate(settings.sink):
        if hasattr(sink, "path") and paths.count(paths[index]) > 1:
            yield (
                f"sink[{index}].path: {paths[index]} is used twice\n"
                "  hint: use a separate path for each"
            )
        if isinstance(sink, KafkaSink):
            keys = _keys(graph.nodes[_sink_of(graph, f"sink[{index}]", sink)].step)
            if not keys:
                yield (
                    f"sink[{index}]: the rows of a step `merge` have no key for Kafka\n"
                    "  hint: write them to a folder or a table"
                )
            elif sink.key not in keys:
                expected = " or ".join(map(repr, keys))
                at = f"sink[{index}].key"
                yield f"{at}: the rows have no column {sink.key!r}\n  expected: {expected}"


def _keys(step: AnyStep) -> tuple[str, ...]:
    """Return the columns of a step's rows that can be the keys of messages."""
    if isinstance(step, NotifyStep):
        return ("object",)
    if isinstance(step, CoverStep):
        return ("subscription",)
    if isinstance(step, TrackStep):
        return ("event", "subscription", "key")
    if isinstance(step, FilterStep) or (isinstance(step, MatchStep) and step.output == "arrays"):
        return ("event",)
    return ("event", "subscription") if isinstance(step, MatchStep | RankStep) else ()


def described(graph: Graph) -> list[str]:
    """Return one line per step: its inputs and its sinks."""
    lines = []
    for name, node in graph.nodes.items():
        takes = node.takes if node.of is None else f"{node.takes}, {node.of}"
        users = [user for user, other in graph.nodes.items() if name in (other.takes, other.of)]
        to = [*users, *(sink.sink.name for sink in node.sinks)]
        if isinstance(node.step, NotifyStep):
            to.append(f"lists in {node.step.lists}")
        lines.append(f"{takes} -> {name} -> {', '.join(to)}")
    return lines


def missing_files(graph: Graph) -> list[str]:
    """Return the local files that are named but don't exist, with their keys."""
    named: list[tuple[str, str | Path | None]] = [
        (f"source[{index}].path", getattr(source, "path", None))
        for index, source in enumerate(graph.sources.values())
    ]
    for index, set_ in enumerate(graph.sets.values()):
        keys = [key for key in _SET_FILES if key != "edits" or set_.edits_source is None]
        named += [(f"subscriptions[{index}].{key}", getattr(set_, key)) for key in keys]
    for index, node in enumerate(graph.nodes.values()):
        if isinstance(node.step, NotifyStep):
            named += [(f"step[{index}].{key}", getattr(node.step, key)) for key in _NOTIFY_FILES]
    return [
        f"{key}: no such file or folder: {path}"
        for key, path in named
        if path is not None and "://" not in str(path) and not Path(path).exists()
    ]


_SET_FILES = ("file", "table", "edits", "delta")
_NOTIFY_FILES = ("objects", "interests", "space")
