"""Jobs of several ranks for tests: what every rank says, as JSON in its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "ranks_server.py"
SECONDS = 240


class Ranks:
    """Runs jobs; the process that starts their ranks is there from the first one on."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def job(self, worker: str, ranks: list[list[str]], folder: Path) -> list[dict[str, Any]]:
        """What each rank says; `ranks` are the words that the worker's `main` gets."""
        for rank, code in enumerate(self._codes(worker, ranks, folder)):
            assert code == 0, (folder / f"{rank}.err").read_text()[-3000:]
        lines = [(folder / f"{rank}.out").read_text().splitlines() for rank in range(len(ranks))]
        return [json.loads(row[-1]) for row in lines if row]

    def script(
        self, folder: Path, text: str, *words: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A program that was run in a folder by a copy of the process, which has torch loaded."""
        file = folder / "program.py"
        file.write_text(text)
        given = [str(file), json.dumps(variables), *words]
        (code,) = self._codes("script_worker", [given], folder)
        out, err = ((folder / name).read_text() for name in ("0.out", "0.err"))
        return subprocess.CompletedProcess(given, code, out, err)

    def _codes(self, worker: str, ranks: list[list[str]], folder: Path) -> list[int]:
        server = self._started()
        asked = {"worker": worker, "ranks": ranks, "folder": str(folder), "seconds": SECONDS}
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the process that starts ranks has ended"
        codes = json.loads(answer)
        assert isinstance(codes, list)
        return codes

    def end(self) -> None:
        """Let the process go."""
        if self._server is not None:
            self._server.communicate(timeout=SECONDS)

    def _started(self) -> subprocess.Popen[str]:
        if self._server is None:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._server = subprocess.Popen([sys.executable, str(SERVER)], **pipes, text=True)
        return self._server
