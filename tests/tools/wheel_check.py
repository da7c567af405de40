"""Build the wheel and the sdist, and try the wheel as a stranger gets it: `make dist`.

The wheel is installed alone, in a new virtual environment outside of the tree. What it lacks shows
there: a file that the package reads, or a dependency that only an extra brings. It is tried with
each Python that is given, or with the one that runs this.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
SOURCES = ("rangecast", "pyspark_rangecast")
SPACE = '[[attribute]]\nname = "price"\ntype = "number"\n'
SUBSCRIPTIONS = "id,filter\ncheap,price < 20\nextremes,price < 5 or price > 500\n"
EVENTS = "id,price\na,12.5\nb,3\nc,700\nd,100\n"
MATCHES = {"a,cheap", "b,cheap", "b,extremes", "c,extremes"}
ELSEWHERE = """
import rangecast, sys
assert rangecast.__file__.startswith(sys.prefix), rangecast.__file__
engine = rangecast.Engine(rangecast.Space.from_toml(sys.argv[1]))
engine.subscribe("cheap", "price < 20")
assert engine.match({"price": 12.5}) == ["cheap"]
print(rangecast.__version__)
"""


def main() -> None:
    """Build and check; stops at the first thing that isn't right."""
    for old in DIST.glob("rangecast-*"):
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", DIST, cwd=ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as folder:
        check_sdist(sdist, wheel, Path(folder))
        for python in sys.argv[1:] or [sys.executable]:
            check_install(wheel, python)
    if importlib.util.find_spec("twine"):
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    else:
        print("twine isn't installed: the page of the package wasn't checked")
    for made in (wheel, sdist):
        print(f"{made.relative_to(ROOT)}: {made.stat().st_size / 1e6:.1f} MB")


def check_contents(wheel: Path) -> None:
    """Everything in the packages that git knows is in the wheel, and nothing else."""
    known = set(run("git", "ls-files", *SOURCES, cwd=ROOT).splitlines())
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == known, f"only in one of wheel and tree: {sorted(inside ^ known)}"
    assert {"rangecast/py.typed", "rangecast/server/page/index.html"} <= inside


def check_sdist(sdist: Path, wheel: Path, folder: Path) -> None:
    """The wheel that the sdist gives has the same files."""
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    (unpacked,) = folder.glob("rangecast-*")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    run(*build, cwd=unpacked)
    again = {one.filename: one.CRC for one in zipfile.ZipFile(folder / wheel.name).infolist()}
    first = {one.filename: one.CRC for one in zipfile.ZipFile(wheel).infolist()}
    assert again == first, f"differs when built from the sdist: {set(again) ^ set(first)}"


def check_install(wheel: Path, base: str) -> None:
    """The wheel alone can be installed, imported, run and removed."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        run(base, "-m", "venv", place)
        python = place / "bin" / "python"
        (packages,) = place.glob("lib/*/site-packages")
        before, had = size(place), {one.name for one in packages.iterdir()}
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        run(python, "-m", "pip", "check")
        about = run(python, "--version").strip()
        print(f"{about}: a plain install takes {size(place) - before:.0f} MB; the largest parts:")
        parts = [(size(one), one.name) for one in packages.iterdir() if one.name not in had]
        for megabytes, name in sorted(parts, reverse=True)[:8]:
            print(f"{megabytes:8.1f} MB  {name}")
        check_use(python, wheel.name.split("-")[1], Path(folder))
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "rangecast")
        assert not (packages / "rangecast").exists()


def check_use(python: Path, version: str, folder: Path) -> None:
    """What is installed knows its version, can be imported, and answers in the shell."""
    command = python.with_name("rangecast")
    assert run(command, "--version", cwd=folder).strip() == version
    assert run(python, "-c", ELSEWHERE, SPACE, cwd=folder).strip() == version
    given = {"space.toml": SPACE, "subscriptions.csv": SUBSCRIPTIONS, "events.csv": EVENTS}
    for name, text in given.items():
        (folder / name).write_text(text)
    files = ("events.csv", "subscriptions.csv", "--space", "space.toml", "-o", "matches.csv")
    run(command, "match", *files, cwd=folder)
    found = (folder / "matches.csv").read_text().replace('"', "").splitlines()
    assert set(found[1:]) == MATCHES, found


def size(folder: Path) -> float:
    """Megabytes of a file or of all files in a folder."""
    files = [folder, *folder.rglob("*")]
    return sum(one.stat().st_size for one in files if one.is_file() and not one.is_symlink()) / 1e6


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command, with nothing of this tree on Python's path, and return what it prints."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
