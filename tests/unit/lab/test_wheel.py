"""A built wheel in a fresh environment, far from the source tree: a dump, the demo, a function.

The wheel is built by the installed `hatchling`, as pip would build it, and nothing is downloaded:
numpy and torch are lent from this environment by a path, which does not lend editable installs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="pip install 'treadle[test]' brings what builds the wheel")

ROOT = Path(__file__).resolve().parents[3]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
DUMP = ROOT / "tests" / "corpus" / "inductor"

pytestmark = pytest.mark.slow


def clean(folder: Path) -> dict[str, str]:
    """The environment of a user: nothing of this tree on any path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TREADLE_"))}
    return {**kept, "TREADLE_CACHE_DIR": str(folder / "cache")}


def run(command: Sequence[object], folder: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=clean(folder),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a fresh environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], capture_output=True, text=True, cwd=ROOT
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("treadle-*.whl")
    venv.create(folder / "fresh", with_pip=False)
    python = folder / "fresh" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run([*pip, wheel], folder)
    return folder / "fresh" / "bin"


def lend_packages(bin_folder: Path) -> None:
    """Let the fresh environment find numpy and torch where they are installed here."""
    (site,) = (bin_folder.parent / "lib").glob("python*/site-packages")
    lent = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (site / "lent.pth").write_text("\n".join(lent) + "\n")


def test_the_command_works_alone_in_a_fresh_environment(installed: Path, tmp_path: Path) -> None:
    dump = next(DUMP.rglob("*.txt"))
    where = run([installed / "python", "-c", "import treadle; print(treadle.__file__)"], tmp_path)
    assert where.startswith(str(installed.parent))
    assert run([installed / "treadle", "--version"], tmp_path).startswith("treadle ")
    shown = json.loads(run([installed / "treadle", "show", dump, "--json"], tmp_path))
    assert shown["kind"] == "inductor_dump"
    run([installed / "treadle", "check", dump], tmp_path)
    run([installed / "treadle", "schedule", dump], tmp_path)
    assert "## What to do" in run([installed / "treadle", "explain", "IR012"], tmp_path)
    (card,) = installed.parent.rglob("treadle-*.dist-info")
    assert "License-Expression: Apache-2.0" in (card / "METADATA").read_text()
    assert "Apache License" in (card / "licenses" / "LICENSE").read_text()


def test_the_demo_and_a_program_of_ones_own_run(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    lend_packages(installed)
    assert "all results agree" in run([installed / "treadle", "demo", "--program"], tmp_path)
    script = tmp_path / "own.py"
    script.write_text(
        "import numpy as np\n"
        "from treadle.ir.build import ProgramBuilder\n"
        "from treadle.runtime import compile_program\n"
        "b = ProgramBuilder('own')\n"
        "x, y = b.input('x', 'f32', [8]), b.output('y', 'f32', [8])\n"
        "with b.loop('double', [8]) as k:\n"
        "    k.store(y, (k.vars[0],), k.load(x, k.vars[0]) * 2.0)\n"
        "compiled = compile_program(b.build())\n"
        "print(compiled.run({'x': np.ones(8, 'f4')})['y'].sum())\n"
    )
    assert run([installed / "python", script], tmp_path) == "16.0\n"


@pytest.mark.torch
def test_torch_finds_the_backend_by_name(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    lend_packages(installed)
    script = tmp_path / "compiled.py"
    script.write_text(
        "import torch\n"
        "def f(x):\n"
        "    return torch.softmax(x * 2, -1).sum(0)\n"
        "fast = torch.compile(f, backend='treadle', options={'strict': True})\n"
        "x = torch.randn(4, 7)\n"
        "torch.testing.assert_close(fast(x), f(x))\n"
        "import treadle\n"
        "print(treadle.__file__)\n"
    )
    assert run([installed / "python", script], tmp_path).startswith(str(installed.parent))
    assert "--rounds" in run([installed / "treadle", "demo", "--help"], tmp_path)
