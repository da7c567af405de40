"""Matchers that run on Java, in a process of their own: event-ruler and Lucene Monitor.

Maven brings their jars, and `java` compiles the few lines that call them. They read rules and
events from files and write the ids that match each event, and how long one took.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.started import Unavailable, download_with_maven, fetched

RULER = "software.amazon.event.ruler:event-ruler:1.8.1"
MONITOR = "org.apache.lucene:lucene-monitor:9.11.1"
_FRAME = """
import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.util.*;
%(imports)s

public class Peer {
    static long cpu() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    public static void main(String[] given) throws Exception {
        List<String> rules = Files.readAllLines(Path.of(given[0]));
        List<String> events = Files.readAllLines(Path.of(given[1]));
        int rounds = Integer.parseInt(given[3]);
%(build)s
        for (int i = 0; i < rules.size(); i += 2) {
            try {
                %(add)s
            } catch (Exception error) {
                rejected.add(rules.get(i) + "\\t" + error.getMessage().replaceAll("\\\\s+", " "));
            }
        }
        %(ready)s
        List<String> found = new ArrayList<>();
        long least = Long.MAX_VALUE;
        for (int round = 0; round < rounds; round++) {
            found.clear();
            long began = cpu();
            for (String event : events) {
                %(match)s
                found.add(String.join("\\t", ids));
            }
            least = Math.min(least, cpu() - began);
        }
        Files.write(Path.of(given[2]), found);
        Files.write(Path.of(given[2] + ".rejected"), rejected);
        System.out.println(least / 1e9);
        System.exit(0);
    }
}
"""
_RULER = {
    "imports": "import software.amazon.event.ruler.Machine;",
    "build": """        Machine machine = Machine.builder().build();
        List<String> rejected = new ArrayList<>();""",
    "add": "machine.addRule(rules.get(i), rules.get(i + 1));",
    "ready": "",
    "match": "List<String> ids = machine.rulesForJSONEvent(event);",
}
_ALONE = {
    **_RULER,
    "build": """        Map<String, Machine> machines = new LinkedHashMap<>();
        List<String> rejected = new ArrayList<>();""",
    "add": """Machine machine = Machine.builder().build();
                machine.addRule(rules.get(i), rules.get(i + 1));
                machines.put(rules.get(i), machine);""",
    "match": """List<String> ids = new ArrayList<>();
                for (Machine machine : machines.values()) {
                    ids.addAll(machine.rulesForJSONEvent(event));
                }""",
}
_MONITOR = {
    "imports": """import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.*;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.*;
import org.apache.lucene.search.*;""",
    "build": """        Monitor monitor = new Monitor(new WhitespaceAnalyzer());
        List<String> rejected = new ArrayList<>();
        List<MonitorQuery> queries = new ArrayList<>();""",
    "add": """String[] parts = rules.get(i + 1).split("\\t", -1);
                BooleanQuery.Builder all = new BooleanQuery.Builder();
                for (String part : parts) {
                    boolean isNot = part.startsWith("not ");
                    String[] one = part.substring(isNot ? 4 : 0).split(" ", 4);
                    Query query = switch (one[0]) {
                        case "word" -> new TermQuery(new Term(one[1], one[2]));
                        case "phrase" -> new PhraseQuery(one[1], one[2].split("[+]"));
                        case "prefix" -> new PrefixQuery(new Term(one[1], one[2]));
                        case "wildcard" -> new WildcardQuery(new Term(one[1], one[2]));
                        case "range" -> DoublePoint.newRangeQuery(
                            one[1], Double.parseDouble(one[2]), Double.parseDouble(one[3]));
                        default -> throw new IllegalArgumentException(one[0]);
                    };
                    all.add(query, isNot
                        ? BooleanClause.Occur.MUST_NOT : BooleanClause.Occur.FILTER);
                }
                queries.add(new MonitorQuery(rules.get(i), all.build()));""",
    "ready": "monitor.register(queries);",
    "match": """Document document = new Document();
                for (String part : event.split("\\t", -1)) {
                    String[] one = part.split(" ", 3);
                    switch (one[0]) {
                        case "text" -> document.add(new TextField(one[1], one[2], Field.Store.NO));
                        case "keyword" ->
                            document.add(new StringField(one[1], one[2], Field.Store.NO));
                        default -> document.add(
                            new DoublePoint(one[1], Double.parseDouble(one[2])));
                    }
                }
                List<String> ids = new ArrayList<>();
                for (QueryMatch one : monitor.match(document, QueryMatch.SIMPLE_MATCHER)
                        .getMatches()) {
                    ids.add(one.getQueryId());
                }""",
}


class Answered(NamedTuple):
    """Answer of a matcher."""

    ids: list[list[str]]
    """By event."""
    rejected: dict[str, str]
    """Reasons, by rule."""
    seconds: float
    """Of the processor, for all events: the least of several rounds."""


def ruler(
    rules: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    rounds: int = 1,
    *,
    alone: bool = False,
) -> Answered:
    """Match events with event-ruler.

    rules   event patterns by id
    alone   one machine for each rule: version 1.8.1 finds rules that don't match if patterns that
            ignore case are in one machine with others
    """
    lines = [line for name, rule in rules.items() for line in (name, json.dumps(rule))]
    parts = _ALONE if alone else _RULER
    return _answered("event-ruler", RULER, parts, lines, [*map(json.dumps, events)], rounds)


def monitor(rules: Mapping[str, str], events: Sequence[str], rounds: int = 1) -> Answered:
    """Match events with Lucene Monitor.

    rules    by id, conditions with tabs between: `word FIELD W`, `phrase FIELD V+W`, `prefix FIELD
             P`, `wildcard FIELD P`, `range FIELD LO HI`, and each of them after `not`
    events   fields with tabs between: `text FIELD WORDS`, `keyword FIELD T`, `number FIELD X`
    """
    lines = [line for pair in rules.items() for line in pair]
    return _answered("lucene-monitor", MONITOR, _MONITOR, lines, events, rounds)


def _answered(
    name: str,
    coordinates: str,
    parts: Mapping[str, str],
    rules: Sequence[str],
    events: Sequence[str],
    rounds: int,
) -> Answered:
    if not shutil.which("mvn") or not shutil.which("java"):
        raise Unavailable("there is no Maven or no Java here")
    jars = fetched(name, partial(download_with_maven, coordinates=coordinates, transitive=True))
    with TemporaryDirectory() as place:
        folder = Path(place)
        source = folder / "Peer.java"
        source.write_text(_FRAME % parts)
        for file, lines in (("rules", rules), ("events", events)):
            (folder / file).write_text("\n".join(lines), encoding="utf-8")
        path = os.pathsep.join(map(str, sorted(jars.glob("*.jar"))))
        files = [source, folder / "rules", folder / "events", folder / "ids"]
        done = subprocess.run(
            ["java", "-Xmx4g", "-cp", path, *map(str, files), str(rounds)],
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
        )
        if done.returncode:
            raise Unavailable(f"it ended with {done.returncode}\n{done.stderr[-2000:]}")
        found = (folder / "ids").read_text(encoding="utf-8").split("\n")[:-1]
        rejected = (folder / "ids.rejected").read_text(encoding="utf-8").split("\n")[:-1]
    return Answered(
        [line.split("\t") if line else [] for line in found],
        {name: reason for name, _, reason in (line.partition("\t") for line in rejected)},
        float(done.stdout),
    )
