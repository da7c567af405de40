"""Tables of a TOML file, read key by key; each error names the file, the key and what it takes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rangecast.errors import FileError, near


class Settings:
    """One table. Ask for its keys, then call `done`, which refuses those nobody asked for."""

    def __init__(self, file: Path, place: str, values: Mapping[str, Any]):
        self.file = file
        self._place = place
        self._values = dict(values)
        self._asked: list[str] = []

    @classmethod
    def load(cls, path: str | Path) -> Settings:
        """Read a TOML file."""
        file = Path(path)
        try:
            return cls(file, "", tomllib.loads(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{file}: can't be read: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise FileError(f"{file}: is not a TOML file: {error}") from None

    def error(self, key: str, problem: str) -> FileError:
        """Return the error about a key."""
        return FileError(f"{self.file}: {self._place}{key}: {problem}")

    def has(self, key: str) -> bool:
        """Whether a key is given."""
        return key in self._values

    def text(self, key: str, what: str, default: str | None = None) -> str:
        """Return a text; without a default it must be given."""
        value = self._value(key, what, default, (str,))
        assert isinstance(value, str)
        return value

    def optional_text(self, key: str, what: str) -> str | None:
        """Return a text, `None` if it isn't given."""
        self._asked.append(key)
        return self.text(key, what) if self.has(key) else None

    def choice(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        """Return one of the known texts."""
        what = "one of " + ", ".join(map(repr, known))
        value = self.text(key, what, default)
        if value not in known:
            raise self.error(
                key, f"there is no {value!r}: {near(value, known)}\n  expected: {what}"
            )
        return value

    def count(self, key: str, what: str, default: int | None = None) -> int:
        """Return a whole number of at least one."""
        value = self._value(key, what, default, (int,))
        if value < 1:
            raise self._unfit(key, what, value)
        assert isinstance(value, int)
        return value

    def optional_count(self, key: str, what: str) -> int | None:
        """Return a whole number of at least one, `None` if it isn't given."""
        self._asked.append(key)
        return self.count(key, what) if self.has(key) else None

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return bool(self._value(key, "true or false", default, (bool,)))

    def texts(self, key: str, what: str) -> tuple[str, ...]:
        """Return a list of texts, empty if it isn't given."""
        value = self._value(key, what, [], (list,))
        if not all(isinstance(one, str) for one in value):
            raise self._unfit(key, what, value)
        return tuple(value)

    def scalars(self, key: str, what: str) -> dict[str, str]:
        """Return a table of plain values, as texts; empty if it isn't given."""
        given = self._value(key, what, {}, (dict,))
        for name, value in given.items():
            if isinstance(value, dict | list):
                raise self._unfit(f"{key}.{name}", "a text, a number, true or false", value)
        plain = {True: "true", False: "false"}
        return {k: plain[v] if isinstance(v, bool) else str(v) for k, v in given.items()}

    def table(self, key: str, what: str) -> Settings:
        """Return a table; it must be given."""
        value = self._value(key, what, None, (dict,))
        return Settings(self.file, f"{self._place}{key}.", value)

    def optional_table(self, key: str, what: str) -> Settings | None:
        """Return a table, `None` if it isn't given."""
        self._asked.append(key)
        return self.table(key, what) if self.has(key) else None

    def tables(self, key: str, what: str) -> list[Settings]:
        """Return the tables of a list; there must be one."""
        value = self._value(key, what, None, (list,))
        if not value or not all(isinstance(one, dict) for one in value):
            raise self._unfit(key, what, value)
        return [
            Settings(self.file, f"{self._place}{key}[{place}].", one)
            for place, one in enumerate(value)
        ]

    def path(self, key: str, what: str) -> Path:
        """Return a path, which counts from the folder of the file."""
        return (self.file.parent / self.text(key, what)).resolve()

    def location(self, key: str, what: str) -> str:
        """Return a path, or a URL as it is."""
        text = self.text(key, what)
        return text if "://" in text else str((self.file.parent / text).resolve())

    def optional_path(self, key: str, what: str) -> Path | None:
        """Return a path, `None` if it isn't given."""
        text = self.optional_text(key, what)
        return None if text is None else (self.file.parent / text).resolve()

    def done(self) -> None:
        """Refuse keys that mean nothing here."""
        for key in self._values:
            if key not in self._asked:
                raise self.error(key, f"means nothing here: {near(key, self._asked)}")

    def _value(self, key: str, what: str, default: Any, kinds: tuple[type, ...]) -> Any:
        self._asked.append(key)
        if not self.has(key):
            if default is None:
                raise self.error(key, f"is missing\n  expected: {what}")
            return default
        value = self._values[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self._unfit(key, what, value)
        return value

    def _unfit(self, key: str, what: str, value: Any) -> FileError:
        return self.error(key, f"can't be used\n  given: {value!r}\n  expected: {what}")
