"""The check of `make check` finds cycles: imports for types and inside functions included."""

from tests.tools.cycles import cycles


def test_cycles_are_found(tmp_path, monkeypatch):
    sources = {
        "__init__": "",
        "a": "import ringed.b",
        "b": "def later():\n    import ringed.c",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ringed.a",
        "d": "import ringed.a\nimport ringed.e",
        "e": "import ringed.f",
        "f": "import ringed.e",
        "g": "import ringed.a",
    }
    (tmp_path / "ringed").mkdir()
    for name, text in sources.items():
        (tmp_path / "ringed" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert cycles("ringed") == [["ringed.a", "ringed.b", "ringed.c"], ["ringed.e", "ringed.f"]]
