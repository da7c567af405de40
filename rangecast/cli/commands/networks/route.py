"""`rangecast route`: networks of brokers that advertise interest to each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rangecast.cli.commands.networks.servers import servers
from rangecast.cli.commands.networks.zones import zones
from rangecast.cli.shared.option_groups import App, BothOptions, EngineOptions, OutputOptions
from rangecast.cli.shared.options import Output, Plot

if TYPE_CHECKING:
    from rangecast.cli.shared.run import Run
    from rangecast.overlay.networks.network import Network
    from rangecast.overlay.networks.scenario import ScenarioData

app = App(
    help="Networks of brokers: their deliveries, the savings of strategies, and fault injection."
)
app.command("servers", short_help="Measure objects that are spread over a row of servers.")(servers)
app.command("zones", short_help="Compare the cost of messages in a network of zones.")(zones)


Strategy = Literal["none", "covering", "subsumption", "merging", "both"]
"""Keys of `overlay.strategies.STRATEGIES`."""


Shape = Literal["random", "chain", "star", "balanced"]
"""Keys of `overlay.tree.SHAPES`."""


@app.command("run", short_help="Send subscriptions and events through a network.")
def run_(
    options: BothOptions,
    events: Annotated[
        Path | None, typer.Argument(help="Events, one column per attribute; - is stdin.")
    ] = None,
    subscriptions: Annotated[
        Path | None,
        typer.Argument(help="Subscriptions: id and filter, or id and bounds; - is stdin."),
    ] = None,
    space: Annotated[
        Path | None, typer.Option("--space", help="The space: a TOML file of attributes.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload", help="Generate events and subscriptions: market, ... (see generate)."
        ),
    ] = None,
    brokers: Annotated[int, typer.Option("--brokers", min=1, help="Number of brokers.")] = 11,
    shape: Annotated[Shape, typer.Option("--tree", help="The shape of the tree.")] = "random",
    strategy: Annotated[
        Strategy,
        typer.Option("--strategy", help="What brokers advertise; see above."),
    ] = "covering",
    max_ranges: Annotated[
        int, typer.Option("--max-ranges", min=1, help="Maximum ranges advertised to a neighbour.")
    ] = 1000,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", min=1, help="Number of subscriptions that arrive together."),
    ] = 100,
    commands: Annotated[
        Path | None,
        typer.Option(
            "--commands",
            help="Edits between events: before (row of an event, from 0), command, id, filter.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the tree and of the broker of every client.")
    ] = 0,
    output: Output = "-",
    plot: Plot = None,
) -> None:
    """Write every delivery of a network: event, subscription. The rows equal those of `match`.

    Brokers form a tree; each subscription and each event enters at a random broker. Brokers
    advertise to their neighbours which events they need: with --strategy none, all subscriptions;
    covering: those that no other subscription covers; subsumption: those that the union of the
    others doesn't cover; merging: at most --max-ranges ranges on a curve; both: covering while few
    are left, then ranges. The
    deliveries are always the same; the summary shows the cost.

    --plot draws the tree: lines as thick as their traffic.

    \b
    Examples:
      rangecast route run events.csv subscriptions.csv --space space.toml --brokers 50 \\
          --strategy merging --seed 1 -o deliveries.csv --plot network.svg
      rangecast route run --workload market --brokers 50 -o deliveries.csv
    """
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.errors import UsageError
    from rangecast.overlay.networks.scenario import Scenario, read_commands, table_of
    from rangecast.overlay.networks.tree import tree_of
    from rangecast.report.route import draw

    if (workload is None) == (events is None or subscriptions is None or space is None):
        raise UsageError(
            "route run takes EVENTS, SUBSCRIPTIONS and --space, or --workload\n"
            "  hint: give the three files, or the name of a workload"
        )
    with Run.started(
        output, reads=[events, subscriptions, space, commands], pictures=[plot], options=options
    ) as run:
        if workload is not None:
            workload_data = _generated(workload, seed)
        else:
            assert events is not None
            assert subscriptions is not None
            assert space is not None
            workload_data = _read(run, events, subscriptions, space)
        edits = read_commands(run.file(commands), workload_data) if commands is not None else []
        scenario = Scenario(workload_data, tree_of(shape, brokers, seed), brokers, seed)
        settings: dict[str, Any] = {"strategy": strategy, "max_ranges": max_ranges}
        with run.task("routing"):
            network = scenario.through(edits, batch_size=batch_size, **settings)
        run.write(table_of(workload_data, network, edits), output)
        traffic, sizes = network.traffic, network.table_sizes
        if plot is not None:
            title = f"{brokers} brokers, {strategy}: {traffic.event_messages:,} event messages"
            draw(plot, scenario.tree, scenario.subscriptions_at, traffic.by_link, title)
        facts = {
            "events": len(workload_data.points),
            "subscriptions": workload_data.boxes.rows,
            "commands": len(edits),
            "brokers": brokers,
            "tree": shape,
            "seed": seed,
            **settings,
            "rows": traffic.deliveries,
            "control_messages": traffic.control_messages,
            "control_bytes": traffic.control_bytes,
            "table_items": int(sizes.sum()),
            "largest_table": int(sizes.max()),
            "event_messages": traffic.event_messages,
            "false_forwards": traffic.false_forwards,
            "mean_hops": round(traffic.mean_hops, 3),
            "longest_way": traffic.longest,
            "plot": plot,
        }
        text = (
            f"{counted(len(workload_data.points), 'event')} and "
            f"{counted(workload_data.boxes.rows, 'subscription')} at {counted(brokers, 'broker')}: "
            f"{counted(traffic.deliveries, 'delivery', 'deliveries')}"
        )
        run.done(text, len(workload_data.points), facts, [_sentence(network, strategy)])


def _sentence(network: Network, strategy: str) -> str:
    traffic, sizes = network.traffic, network.table_sizes
    share = traffic.false_forwards / max(1, traffic.event_messages)
    return (
        f"{strategy}: {traffic.control_messages:,} control messages "
        f"({traffic.control_bytes:,} bytes), {sizes.sum():,} items in tables "
        f"({sizes.max():,} in the largest), {traffic.event_messages:,} event messages, "
        f"{traffic.false_forwards:,} of them unnecessary ({share:.1%}), "
        f"{traffic.mean_hops:.1f} hops per delivery (at most {traffic.longest})"
    )


def _read(run: Run, events: Path, subscriptions: Path, space: Path) -> ScenarioData:
    """Read the input files."""
    import numpy as np
    import pyarrow as pa

    from rangecast.overlay.networks.scenario import ScenarioData

    where = run.space(space)
    source = run.events(events, where)
    boxes = run.subscriptions(subscriptions, where)
    batches = list(run.batches("reading events", source))
    kind = source.id_type or pa.int64()
    ids = pa.concat_arrays([pa.array([], kind), *(batch.ids.cast(kind) for batch in batches)])
    points = [np.zeros((0, len(where))), *(batch.points for batch in batches)]
    return ScenarioData(where, boxes, np.concatenate(points), ids)


def _generated(name: str, seed: int) -> ScenarioData:
    """Return the events and subscriptions of a workload."""
    from rangecast.errors import UsageError
    from rangecast.overlay.networks.scenario import ScenarioData
    from rangecast.workloads import generate

    made = generate(name, seed=seed)
    if not {"events", "subscriptions"} <= made.tables.keys():
        raise UsageError(
            f"workload {name!r} has the tables {', '.join(made.tables)}\n"
            "  hint: choose one with events and subscriptions, such as market"
        )
    boxes = made.boxes
    ids = made.tables["events"]["id"].combine_chunks()
    return ScenarioData(made.space, boxes, made.points, ids)


@app.command("simulate", short_help="Inject faults into simulated networks; verify deliveries.")
def simulate_(
    on: EngineOptions,
    options: OutputOptions,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds.")] = 1000,
    first: Annotated[int, typer.Option("--first", min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Run only this seed.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: print every step.")] = False,
    processes: Annotated[
        int, typer.Option("--processes", min=0, help="Number of processes; 0: one per core.")
    ] = 0,
) -> None:
    """Simulate small networks with failing links, disks and brokers; verify their deliveries.

    Each seed draws a tree, a strategy, settings, clients and faults. Faults happen throughout the
    first phase, then everything heals. An oracle computes which deliveries are required and which
    are allowed. If a seed violates this, the command that replays it is printed, and the exit code
    is 1.

    \b
    Examples:
      rangecast route simulate --seeds 10000
      rangecast route simulate --seed 4711 --trace
    """
    from rangecast.cli.shared.run import Run
    from rangecast.errors import UsageError
    from rangecast.overlay.simulation.sweep import outcomes, total

    if trace and seed is None:
        raise UsageError("--trace prints a single run; give its --seed")
    with Run.started(options=options) as run:
        if seed is not None:
            from rangecast.overlay.simulation.run import simulate

            results = [simulate(seed, trace=trace)]
            for line in results[0].trace:
                print(line)
        elif on.is_spark:
            from rangecast.spark.steps.sweep import outcomes_on_spark

            session = run.spark(on.master)
            with run.task("simulating on Spark"):
                results = outcomes_on_spark(session, range(first, first + seeds))
        else:
            with run.task("simulating") as advance:
                results = outcomes(range(first, first + seeds), processes, advance)
        counts = total(results)
        broken = [outcome for outcome in results if outcome.wrong]
        for outcome in broken[:10]:
            run.say(f"seed {outcome.seed}: {'; '.join(outcome.wrong[:3])}")
            run.say(f"  replay: rangecast route simulate --seed {outcome.seed} --trace")
        facts = {
            "seeds": len(results),
            "broken": [outcome.seed for outcome in broken],
            "counts": dict(sorted(counts.items())),
        }
        happened = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if count)
        text = f"{len(results):,} seeds, {len(broken):,} violated a guarantee"
        run.done(text, len(results), facts, [happened], is_loud=True)
    if broken:
        raise typer.Exit(1)
