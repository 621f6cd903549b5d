"""Models compiled ahead of time give what eager gives: from Python, and from C without Python."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from package_models import Block, Cache, Normed, even, many  # noqa: E402
from torch_bounds import bound_for_graph  # noqa: E402

import treadle  # noqa: E402
from treadle.codegen.package_c import render as rendering  # noqa: E402
from treadle.core.errors import InputError, TreadleError, UsageError  # noqa: E402
from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.capture.package import ExportedModel  # noqa: E402
from treadle.lab.cli import main  # noqa: E402
from treadle.runtime.packages import write as writing  # noqa: E402
from treadle.torch import package  # noqa: E402

pytestmark = pytest.mark.torch
SOURCE = Path(treadle.__file__).parents[1]
TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
ROWS = (1, 2, 3, 7, 8)


def python(script: str, *args: object) -> str:
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model and its package, the batch of any size."""
    torch.manual_seed(0)
    model = Block().eval()
    path = tmp_path_factory.mktemp("packages") / "block.treadle"
    package(model, (torch.randn(8, 5, 16),), path, dynamic={"x": {0: "batch"}}, name="block")
    return model, path


def within_the_bound(model: Any, x: Any, found: Any) -> None:
    """Demand that a result is as near to exact as the program promises."""
    exported = ExportedModel(model, (x,), {}, {})
    weights = dict(exported._weights())
    made = exported.lowered(Options(), weights)
    (bound,) = bound_for_graph(made, [*weights.values(), x])  # type: ignore[arg-type]
    assert bound is not None
    apart = (found.double() - bound.value.double()).abs()
    assert bool((apart <= bound.error).all()), f"{apart.max()} of {bound.error.max()}"
    assert float(bound.error.max()) < 1e-2, "a bound that says something"


# ------------------------------------------------------------------------------- from Python


@pytest.mark.parametrize("rows", [2, 8])
def test_a_package_gives_what_eager_gives_within_the_bound(block: Any, rows: int) -> None:
    model, path = block
    x = torch.randn(rows, 5, 16)
    found = treadle.load_package(path)(x)
    within_the_bound(model, x, found)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)


def test_every_size_runs_and_inputs_may_lie_in_any_way(block: Any) -> None:
    model, path = block
    loaded = treadle.load_package(path)
    for rows in (*ROWS, 40):
        for x in (torch.randn(rows, 5, 16), torch.randn(16, rows, 5).permute(1, 2, 0)):
            with torch.no_grad():
                torch.testing.assert_close(loaded(x), model(x), rtol=1e-4, atol=1e-5)
    x = np.random.default_rng(0).standard_normal((3, 5, 16), dtype=np.float32)
    backwards = x[::-1]
    with torch.no_grad():
        expected = model(torch.from_numpy(backwards.copy())).numpy()
    found = loaded(backwards)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_process_that_loads_neither_traces_nor_imports_the_compiler(
    block: Any, tmp_path: Path
) -> None:
    _, path = block
    np.save(tmp_path / "x.npy", np.ones((4, 5, 16), np.float32))
    script = (
        "import sys, treadle, numpy as np\n"
        "p = treadle.load_package(sys.argv[1])\n"
        "y = p(np.load(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules, 'numpy needs no torch'\n"
        "import torch\n"
        "z = p(torch.from_numpy(np.load(sys.argv[2])))\n"
        "assert torch.equal(z, torch.from_numpy(y))\n"
        "assert 'torch._dynamo' not in sys.modules and 'torch._inductor' not in sys.modules\n"
        "print(y.shape)\n"
    )
    assert python(script, path, tmp_path / "x.npy") == "(4, 5, 16)\n"


def test_kernels_alone_need_no_torch_at_all(tmp_path: Path) -> None:
    path = package(many, (torch.randn(4, 6), torch.randn(4, 6)), tmp_path / "many.zip")
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    np.savez(tmp_path / "given.npz", x=x.numpy(), y=y.numpy())
    script = (
        "import sys, numpy as np\n"
        "sys.modules['torch'] = None\n"
        "import treadle\n"
        "given = np.load(sys.argv[2])\n"
        "p = treadle.load_package(sys.argv[1])\n"
        "r = p(given['x'], y=given['y'])\n"
        "assert p.manifest['torch'] is None and r['n'] is None and r['k'] == 3\n"
        "np.savez(sys.argv[3], a=r['z'], b=r['both'][0], c=r['both'][1], d=r['sum'][0])\n"
    )
    python(script, path, tmp_path / "given.npz", tmp_path / "made.npz")
    made, expected = np.load(tmp_path / "made.npz"), many(x, y)
    for name, one in zip("abcd", [expected["z"], *expected["both"], *expected["sum"]], strict=True):
        np.testing.assert_allclose(made[name], one.numpy(), rtol=1e-5, atol=1e-6)


def test_threads_may_share_a_package(block: Any) -> None:
    model, path = block
    loaded, failed = treadle.load_package(path), []

    def work(rows: int) -> None:
        x = torch.randn(rows, 5, 16)
        with torch.no_grad():
            expected = model(x)
        for _ in range(50):
            if not torch.allclose(loaded(x), expected, rtol=1e-4, atol=1e-5):
                failed.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 4, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


# ------------------------------------------------------------------------------- from C

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "block.h"

int main(int count, char **words)
{
    treadle_options options;
    memset(&options, 0, sizeof options);
    options.folder = words[1];
    options.torch_library = words[2];
    treadle_block *block = treadle_block_load(&options);
    if (!block) { fprintf(stderr, "%s\\n", treadle_block_error()); return 2; }
    for (int k = 3; k < count; ++k) {
        int64_t rows = atoi(words[k]);
        treadle_tensor x = {0, TREADLE_F32, 3, {rows, 5, 16}, {80, 16, 1}}, y;
        x.data = malloc((size_t)rows * 80 * 4 + 1);
        if (fread(x.data, 4, (size_t)rows * 80, stdin) != (size_t)rows * 80) return 3;
        if (treadle_block_describe(block, &x, &y)) { fprintf(stderr, "%s\\n", treadle_block_error()); return 2; }
        y.data = malloc((size_t)rows * 80 * 4 + 1);
        if (treadle_block_run(block, &x, &y)) { fprintf(stderr, "%s\\n", treadle_block_error()); return 2; }
        fwrite(y.data, 4, (size_t)(y.sizes[0] * y.sizes[1] * y.sizes[2]), stdout);
        free(x.data);
        free(y.data);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "libpython") || strstr(line, "libtorch_python")) return 4;
    treadle_block_free(block);
    return 0;
}
"""  # noqa: E501


def compiled_c(folder: Path, text: str, package_folder: Path, name: str) -> Path:
    """A C program that uses a package, compiled with all warnings."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, made = folder / "main.c", folder / "main"
    source.write_text(text)
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-std=c11", f"-I{package_folder}"]
    library = package_folder / f"{name}.so"
    subprocess.run([*command, str(source), str(library), "-o", str(made)], check=True)
    return made


def test_c_runs_it_without_python_at_several_sizes(block: Any, tmp_path: Path) -> None:
    model, path = block
    program = compiled_c(tmp_path, PROGRAM, path, "block")
    given = [torch.randn(rows, 5, 16) for rows in ROWS]
    content = b"".join([x.numpy().tobytes() for x in given])
    done = subprocess.run(
        [program, path, TORCH, *map(str, ROWS)], input=content, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32)
    for x in given:
        mine, found = found[: x.numel()].reshape(x.shape), found[x.numel() :]
        with torch.no_grad():
            torch.testing.assert_close(mine, model(x), rtol=1e-4, atol=1e-5)
    within_the_bound(model, given[-1], mine)


def test_c_says_in_one_line_what_is_wrong(block: Any, tmp_path: Path) -> None:
    _, path = block
    program = compiled_c(tmp_path, PROGRAM, path, "block")

    def said(*words: object, env: dict[str, str] | None = None) -> str:
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, env=env)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "cannot be loaded: name it in `torch_library`" in said(path, tmp_path / "none.so")
    assert "weights.bin: No such file or directory" in said(tmp_path, TORCH)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    content = bytearray((copy / "weights.bin").read_bytes())
    content[200] ^= 1
    (copy / "weights.bin").write_bytes(content)
    assert "weights.bin is damaged" in said(copy, TORCH)
    content[200] ^= 1
    content[30] ^= 1
    (copy / "weights.bin").write_bytes(content)
    assert "weights of another package" in said(copy, TORCH)
    (copy / "weights.bin").write_bytes(content[:-8])
    assert "bytes, expected" in said(copy, TORCH)


def test_the_header_is_for_cpp_too(block: Any) -> None:
    _, path = block
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    command = [compiler, "-Wall", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    text = f'#include "{path}/block.h"\ntreadle_block *load() {{ return treadle_block_load(0); }}\n'
    subprocess.run(command, input=text, text=True, check=True)


# ------------------------------------------------------------------------------- sizes


def test_sizes_and_what_must_hold_between_them_are_checked(tmp_path: Path) -> None:
    given = torch.randn(8, 4), torch.randn(8, 4)
    sizes = {"x": {0: ("rows", 2, 64)}, "y": {0: "rows"}}
    path = package(even, given, tmp_path / "even.treadle", dynamic=sizes)
    loaded = treadle.load_package(path)
    for rows in (2, 6, 64):
        x, y = torch.randn(rows, 4), torch.randn(rows, 4)
        torch.testing.assert_close(loaded(x, y), even(x, y))
    for rows, other, words in (
        (7, 7, "rows % 2"),
        (66, 66, "size rows is 66 (dimension 0 of input 'x'), expected 2 to 64"),
        (0, 0, "size rows is 0"),
        (6, 8, "rows == rows_y"),
    ):
        with pytest.raises(UsageError, match="PKG004") as refused:
            loaded(torch.randn(rows, 4), torch.randn(other, 4))
        assert words in str(refused.value)


def test_a_saved_program_of_torch_export_keeps_what_it_assumed(tmp_path: Path) -> None:
    class Even(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return even(x, y)

    dim = torch.export.Dim.DYNAMIC
    given = torch.randn(8, 4), torch.randn(8, 4)
    exported = torch.export.export(Even(), given, dynamic_shapes={"x": {0: dim}, "y": {0: dim}})
    torch.export.save(exported, str(tmp_path / "even.pt2"))
    saved, made = str(tmp_path / "even.pt2"), str(tmp_path / "even.treadle")
    assert main(["compile", saved, "-o", made]) == 0
    loaded = treadle.load_package(tmp_path / "even.treadle")
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    torch.testing.assert_close(loaded(x, y), even(x, y))
    with pytest.raises(UsageError, match="% 2"):
        loaded(torch.randn(7, 4), torch.randn(7, 4))


# ------------------------------------------------------------------------------- state


def test_buffers_that_change_are_kept_between_runs(tmp_path: Path) -> None:
    model = Cache()
    given = torch.randn(2, 4), torch.tensor([1, 5])
    path = package(Cache(), given, tmp_path / "cache.treadle")
    loaded = treadle.load_package(path)
    for k in range(3):
        x, at = torch.randn(2, 4), torch.tensor([k, k + 4])
        torch.testing.assert_close(loaded(x, at), model(x, at))
    again, other = Cache(), treadle.load_package(path)
    loaded.reset()
    x, at = torch.randn(2, 4), torch.tensor([0, 7])
    expected = again(x, at)
    torch.testing.assert_close(loaded(x, at), expected)
    torch.testing.assert_close(other(x, at), expected)  # a state of its own


def test_batch_norm_learns_in_a_package(tmp_path: Path) -> None:
    model = Normed().train()
    path = package(Normed().train(), (torch.randn(5, 6),), tmp_path / "normed.treadle")
    loaded = treadle.load_package(path)
    for _ in range(3):
        x = torch.randn(5, 6)
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), model(x))


def test_inputs_that_change_change(tmp_path: Path) -> None:
    def add(x: Any, y: Any) -> Any:
        x.add_(y)
        return x * 2

    path = package(add, (torch.ones(3, 4), torch.ones(3, 4)), tmp_path / "add.treadle")
    loaded = treadle.load_package(path)
    x, y = np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)
    assert (loaded(x, y) == 4).all()
    assert (x == 2).all()
    with pytest.raises(UsageError, match="changed by the run"):
        loaded(np.ones((4, 3), np.float32).T, y)
    x.flags.writeable = False
    with pytest.raises(UsageError, match="cannot be written to"):
        loaded(x, y)


def test_an_input_that_changes_shares_no_memory_with_another(tmp_path: Path) -> None:
    class Doubles(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            x.mul_(2)
            return (x + y).flip(0) * y

    x, y = torch.ones(4, 5), torch.full((4, 5), 3.0)
    package(Doubles(), (x.clone(), y), tmp_path / "doubles.treadle")
    loaded = treadle.load_package(tmp_path / "doubles.treadle")
    torch.testing.assert_close(loaded(x.clone(), y), Doubles()(x.clone(), y))
    memory = np.arange(40, dtype="f4")
    halves = memory[:20].reshape(4, 5), memory[20:].reshape(4, 5)
    over = memory[19:39].reshape(4, 5)
    np.testing.assert_allclose(
        loaded(halves[0].copy(), halves[1]), loaded(halves[0], halves[1]), rtol=0
    )  # neighbours do not meet
    for pair in ((x, x), (x, x[:, :1].expand(4, 5)), (halves[0], over)):
        before = pair[0].copy() if isinstance(pair[0], np.ndarray) else pair[0].clone()
        with pytest.raises(UsageError, match="'x' is changed by the run and shares memory with"):
            loaded(*pair)
        assert (pair[0] == before).all()


def test_a_buffer_that_shares_memory_and_changes_is_refused(tmp_path: Path) -> None:
    class Shared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.zeros(4, 4)
            self.register_buffer("whole", whole)
            self.register_buffer("part", whole[1])

        def forward(self, x: Any) -> Any:
            self.part.add_(x)
            return self.whole + 1

    with pytest.raises(UsageError, match=r"PKG003.*shares memory"):
        package(Shared(), (torch.ones(4),), tmp_path / "shared.treadle")
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------- types


def test_bf16_comes_and_goes_as_tensors_and_as_bits(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.SiLU()).bfloat16()
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    loaded = treadle.load_package(package(model, (x,), tmp_path / "b.treadle", portable=True))
    assert "avx2" not in loaded.manifest["platform"]["features"]
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(loaded(x), expected)
    bits = loaded(x.view(torch.uint16).numpy())
    assert np.array_equal(np.asarray(bits).view(np.uint16), expected.view(torch.uint16).numpy())
    with pytest.raises(UsageError, match="type f32, expected bf16"):
        loaded(x.float())


def test_anything_with_dlpack_is_an_input(block: Any) -> None:
    class Other:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack__(self, **rest: Any) -> Any:
            return self.tensor.__dlpack__()

    model, path = block
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(treadle.load_package(path)(Other(x)), expected, atol=1e-5, rtol=1e-4)


# ------------------------------------------------------------------------------- weights


def test_weights_may_come_from_who_loads_it(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 3)
    x = torch.randn(4, 6)
    path = package(model, (x,), tmp_path / "names.treadle", weights="names")
    assert not (tmp_path / "names.treadle" / "weights.bin").exists()
    with pytest.raises(UsageError, match="weight 'weight' is missing"):
        treadle.load_package(path)
    state = {name: one.detach() for name, one in model.state_dict().items()}
    loaded = treadle.load_package(path, weights=state)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x))
    with pytest.raises(TreadleError, match="elements in dimension"):
        treadle.load_package(path, weights={**state, "weight": torch.randn(3, 7)})
    with pytest.raises(UsageError, match="no weight 'wieght'"):
        treadle.load_package(path, weights={**state, "wieght": torch.randn(3, 6)})


# ------------------------------------------------------------------------------- refused


def test_what_needs_python_is_named_with_its_line_and_nothing_is_written(tmp_path: Path) -> None:
    def finds(x: Any) -> Any:
        return torch.randn_like(x) + torch.linalg.matrix_exp(x)

    with pytest.raises(UsageError) as refused:
        package(finds, (torch.randn(4, 4),), tmp_path / "finds.treadle")
    text = str(refused.value)
    assert "PKG003" in text
    assert "aten.randn_like.default (at test_torch_packages.py:" in text
    assert "linalg_matrix_exp" in text
    assert os.listdir(tmp_path) == []


def test_the_line_is_the_users_and_not_torchs(tmp_path: Path) -> None:
    class Drops(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.drop(x)

    with pytest.raises(UsageError, match=r"native_dropout.default \(at test_torch_packages.py:"):
        package(Drops().train(), (torch.ones(3),), tmp_path / "drops.treadle")


@pytest.mark.parametrize(
    "function",
    [lambda x: x, lambda x: (x, x + 1, x.t()), lambda x: (x * 2).expand(3, 2, 4), lambda x: x[:0]],
)
def test_results_may_be_inputs_and_views(function: Any, tmp_path: Path) -> None:
    loaded = treadle.load_package(package(function, (torch.ones(2, 4),), tmp_path / "p.treadle"))
    x = torch.randn(2, 4)
    found, expected = loaded(x), function(x)
    torch.testing.assert_close(found, expected)


def test_a_package_appears_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = torch.randn(4, 6), torch.randn(4, 6)
    path = package(many, given, tmp_path / "many.treadle")
    before = sorted(os.listdir(path))
    with pytest.raises(UsageError, match="there already"):
        package(many, given, path)

    def full(*rest: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "put_in_place", full)
    with pytest.raises(TreadleError, match="No space left on device"):
        package(even, given, path, force=True)
    assert sorted(os.listdir(path)) == before
    assert os.listdir(tmp_path) == ["many.treadle"]
    monkeypatch.undo()
    package(even, given, path, force=True)
    assert "even.so" in os.listdir(path)
    assert os.listdir(tmp_path) == ["many.treadle"]


def test_another_processor_and_another_torch_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rendering, "FEATURES", (*rendering.FEATURES, "gnuc"))  # no processor has it
        path = package(torch.sin, (torch.ones(3),), tmp_path / "sin.treadle", name="sin")
    with pytest.raises(InputError, match=r"processor with gnuc, which this one lacks \[PKG002\]"):
        treadle.load_package(path)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "1.99.0")
        path = package(torch.mm, (torch.ones(2, 2), torch.ones(2, 2)), tmp_path / "mm.treadle")
    with pytest.raises(InputError, match=r"made with torch 1\.99, found 2\.\d+ \[PKG002\]"):
        treadle.load_package(path)


def test_a_package_that_was_replaced_is_the_new_one(tmp_path: Path) -> None:
    path, x = tmp_path / "same.treadle", np.ones(3, np.float32)
    loaded = []
    for k in (2, 3):
        package(lambda y, k=k: y * k, (torch.ones(3),), path, name="same", force=True)
        loaded.append(treadle.load_package(path))
    assert [float(one(x)[0]) for one in loaded] == [2.0, 3.0]


def test_the_planned_memory_is_shared_at_all_sizes(tmp_path: Path) -> None:
    def long(x: Any) -> Any:
        for _ in range(4):
            x = torch.softmax(0.1 * x @ x.transpose(-1, -2), -1) @ x
        return x

    path = package(long, (torch.randn(2, 16, 8),), tmp_path / "l.treadle", dynamic={0: {0: "b"}})
    loaded = treadle.load_package(path)
    for rows in (2, 3, 11):
        x = torch.randn(rows, 16, 8)
        torch.testing.assert_close(loaded(x), long(x), rtol=1e-4, atol=1e-4)
        one = rows * 16 * 16 * 4
        assert loaded.held_bytes <= 4 * one + 4096, "some of its temporaries lie where others lay"


def test_the_record_in_python_is_the_record_of_the_header(block: Any, tmp_path: Path) -> None:
    from treadle.runtime.packages.arrays import CTensor

    _, path = block
    text = '#include <stdio.h>\n#include "block.h"\nint main(void)\n{\n'
    text += '    printf("%zu", sizeof(treadle_tensor));\n    return 0;\n}\n'
    program = compiled_c(tmp_path, text, path, "block")
    assert int(subprocess.check_output([program])) == ctypes.sizeof(CTensor)
