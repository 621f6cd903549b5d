"""Writing where the user says, and never over what was read.

outputs = Outputs({"-o": out, "--svg": picture}, inputs=[file], force=False)
outputs.write("-o", text)   # after the work; what cannot be written was refused before it
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from treadle.core.errors import InputError, UsageError
from treadle.core.reading import STANDARD_INPUT

CODE = "TXT003"


class Outputs:
    """The files that a command will write; refused before the work is done, not after."""

    def __init__(
        self, paths: Mapping[str, str | None], inputs: Iterable[str], force: bool = False
    ) -> None:
        self.paths = {option: path for option, path in paths.items() if path is not None}
        read = [path for path in inputs if path != STANDARD_INPUT]
        taken: dict[str, str] = {}
        for option, path in self.paths.items():
            _refuse_folder(path)
            for other_option, other in taken.items():
                if _is_same(path, other):
                    raise UsageError(f"{option} and {other_option} are one file: {path}", code=CODE)
            taken[option] = path
            for source in read:
                if not force and _is_same(path, source):
                    raise UsageError(
                        f"{option} {path} would overwrite the input {source}",
                        code=CODE,
                        notes=["name another file, or say --force"],
                    )

    def write(self, option: str, text: str) -> None:
        """Write `text` where the option says; nothing if it was not given."""
        self.write_bytes(option, text.encode("utf-8"))

    def write_bytes(self, option: str, content: bytes) -> None:
        """Write bytes where the option says; nothing if it was not given."""
        path = self.paths.get(option)
        if path is None:
            return
        try:
            with open(path, "wb") as file:
                file.write(content)
        except OSError as e:
            raise unwritable(path, e) from None


def unwritable(path: str, error: OSError) -> InputError:
    """The one line about a file that cannot be written."""
    found = error.strerror or str(error)
    return InputError(file=path, expected="a file that can be written", found=found, code="TXT002")


def _refuse_folder(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if "\0" in path or not path:
        found = "no name of a file"
    elif path == STANDARD_INPUT:
        found = "'-', which is standard input (./- is a file of that name)"
    elif os.path.isdir(path):
        found = "a folder"
    elif not os.path.isdir(folder):
        found = "none"
    else:
        return
    raise InputError(
        file=path, expected="a file in a folder that exists", found=found, code="TXT002"
    )


def _is_same(one: str, other: str) -> bool:
    """Whether two names lead to one file, also through links."""
    try:
        if os.path.samefile(one, other):
            return True
    except (OSError, ValueError):
        pass  # one of them does not exist yet: then only the names can be compared
    return os.path.realpath(one) == os.path.realpath(other)
