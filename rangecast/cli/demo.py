"""`rangecast demo`: the market example from beginning to end, with a table to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.options import Seed


def demo(
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=1)] = 10_000,
    events: Annotated[int, typer.Option("--events", min=1)] = 5_000,
    seed: Seed = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")] = Path(
        "out"
    ),
) -> None:
    """Generate the market example, match and rank it, and show what came out."""
    from rangecast.cli.generate import generate
    from rangecast.cli.match import match
    from rangecast.cli.output import console
    from rangecast.cli.rank import rank

    data = output / "data"
    console.print(f"1. Generating {events:,} quotes and {subscriptions:,} saved searches")
    generate("market", output=data, subscriptions=subscriptions, events=events, seed=seed)
    files = data / "events.parquet", data / "subscriptions.parquet", data / "space.toml"
    console.print("2. Matching every quote with every search that holds it")
    match(*files, output=str(output / "matches.parquet"))
    console.print("3. Ranking: the 3 best-paying searches of each quote")
    rank(*files, k=3, output=str(output / "best.csv"))
    _report(output)


def _report(output: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from rich.console import Console
    from rich.table import Table

    matches = pq.read_table(output / "matches.parquet")
    searches = pq.read_table(output / "data" / "subscriptions.parquet", columns=["id", "filter"])
    quotes = pq.read_metadata(output / "data" / "events.parquet").num_rows
    hits = pc.value_counts(matches.column("subscription").combine_chunks())
    counted = pa.table({"id": hits.field("values"), "matches": hits.field("counts")})
    busiest = counted.sort_by([("matches", "descending"), ("id", "ascending")]).slice(0, 5)
    filters = dict(zip(*(searches.column(c).to_pylist() for c in ("id", "filter")), strict=True))
    table = Table(title="The busiest searches")
    for heading, side in (("search", "left"), ("matches", "right"), ("filter", "left")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for row in busiest.to_pylist():
        table.add_row(row["id"], f"{row['matches']:,}", filters[row["id"]])
    shown = Console(highlight=False)
    shown.print(table)
    wanted = len(pc.unique(matches.column("event")))
    shown.print(
        f"{quotes:,} quotes: {wanted:,} were wanted by someone, {quotes - wanted:,} by nobody. "
        f"{counted.num_rows:,} of {searches.num_rows:,} searches were answered.",
        markup=False,
    )
    shown.print(f"Results: {output / 'matches.parquet'} and {output / 'best.csv'}", markup=False)
