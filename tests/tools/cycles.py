"""Find import cycles: `python -m tests.tools.cycles` prints each with its imports, and fails.

Imports under `TYPE_CHECKING` and inside functions count: a cycle of names is one for a reader, too.
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import grimp


def cycles(package: str) -> list[list[str]]:
    """Return the modules of each cycle of imports, one cycle per strongly connected component."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    found = []
    while True:
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            component = _component(imports, error.args[1][0])
            found.append(sorted(component))
            imports = {name: each - component for name, each in imports.items()}
        else:
            return sorted(found)


def _component(imports: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module reaches and that reach it."""
    back: dict[str, set[str]] = {name: set() for name in imports}
    for name, imported in imports.items():
        for each in imported:
            back[each].add(name)
    return _reached(imports, start) & _reached(back, start)


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        new = edges[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def main() -> None:
    """Print the cycles of the package."""
    graph = grimp.build_graph("rangecast", cache_dir=None)
    found = cycles("rangecast")
    for modules in found:
        print(f"{len(modules)} modules import one another:")
        for importer in modules:
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if imported in modules:
                    (first, *_) = graph.get_import_details(importer=importer, imported=imported)
                    print(f"  {importer}:{first['line_number']} imports {imported}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
