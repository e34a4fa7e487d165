"""Published data sets: from the files as they were published, or through the `datasets` extra."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.types import CoterieError


@dataclass(frozen=True, slots=True)
class Published:
    """How a data set is called, and what to say when it cannot be had. `files` ends the sentence "set tasks.path to a folder that
    holds …", `publisher` the sentence "use the files as … published them"."""

    name: str
    files: str
    publisher: str

    @property
    def use_theirs(self) -> str:
        return f"use the files as {self.publisher} published them"

    def lines(self, file: Path) -> list[Any]:
        """The objects of a JSONL file. Raises CoterieError with the file, and the line where there is one."""
        lines = self._text(file).split("\n")
        records = []
        for number, line in enumerate(lines, start=1):
            if not line.strip() and number == len(lines):
                break
            records.append(self._parse(line, f"{file}, line {number}"))
        return records

    def document(self, file: Path) -> list[Any]:
        """The objects of a JSON file that holds one list."""
        records = self._parse(self._text(file), str(file))
        if not isinstance(records, list):
            raise CoterieError(f"{file}: not a list of problems; {self.use_theirs}")
        return records

    def download(self, hub_name: str, config: str | None, split: str) -> list[Any]:
        """All rows of a split on the Hugging Face hub."""
        try:
            from datasets import load_dataset  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise CoterieError(
                f"{self.name} without tasks.path needs the package datasets; install it with pip install 'coterie[data]', or set "
                f"tasks.path to a folder that holds {self.files}"
            ) from None
        try:
            return list(load_dataset(hub_name, config, split=split))
        except Exception as error:  # the hub client raises many kinds, all of them "could not be had"
            raise CoterieError(
                f"{hub_name} could not be downloaded ({type(error).__name__}: {' '.join(str(error).split())[:200]}); check the "
                f"network or set tasks.path to a folder that holds {self.files}"
            ) from error

    def _text(self, file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise CoterieError(
                f"{file} cannot be read ({error.strerror}); set tasks.path to a folder that holds {self.files} of {self.name}, "
                "or leave it out to download them"
            ) from None
        except UnicodeDecodeError:
            raise CoterieError(f"{file} is not UTF-8 text; {self.use_theirs}") from None

    def _parse(self, text: str, where: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise CoterieError(f"{where}: not a JSON object ({error}); {self.use_theirs}") from None
