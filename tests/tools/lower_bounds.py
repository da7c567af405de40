"""The core dependencies at their lower bounds, for pip: `numpy>=2.0` becomes `numpy==2.0`.

`make lower-bounds` installs them and runs a short part of the suite.
"""

import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    print(*(one.split(",")[0].replace(">=", "==") for one in project["dependencies"]))
