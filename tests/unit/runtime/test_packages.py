"""Packages of programs that only have kernels: written, verified, loaded, run, refused."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.core.errors import InputError, TreadleError, UsageError
from treadle.ir.text import parse_program
from treadle.lab.cli import main
from treadle.runtime.packages import manifest as about
from treadle.runtime.packages.input_texts import dynamic_texts, tensor_text
from treadle.testing.error_bound import assert_within

PROGRAM = """treadle 1
program rows
inputs x, at
outputs y, total
numerics blocked 512, functions 6 ulp, as result, contract, reassociate

size n in 1..64 hint 8

buffer x : f32[n, 16] on cpu
buffer at : i64[n] on cpu
buffer y : f32[n, 16] on cpu
buffer t : f32[n, 16] on cpu
buffer total : f32[n] on cpu

loop t on cpu for i0 in n, i1 in 16 {
  %0 = load at[i0]
  %1 = indirect %0 size n check
  %2 = load x[16*%1 + i1]
  %3 = exp %2
  store t[16*i0 + i1] = %3
}
loop y on cpu for i0 in n, i1 in 16 {
  %0 = load t[16*i0 + i1]
  %1 = load x[16*i0 + i1]
  %2 = mul %0, %1
  store y[16*i0 + i1] = %2
}
loop total on cpu for i0 in n reduce r0 in 16 {
  %0 = load t[16*i0 + r0]
  %1 = reduce sum %0
  store total[i0] = %1
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the program."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "rows.txt").write_text(PROGRAM)
    path = folder / "rows.treadle"
    assert main(["compile", str(folder / "rows.txt"), "-o", str(path)]) == 0
    return path


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy to do things to."""
    import shutil

    return Path(shutil.copytree(made, tmp_path / "copy.treadle"))


def given(rows: int, seed: int = 0) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((rows, 16), dtype=np.float32)
    return {"x": x, "at": numbers.permutation(rows).astype(np.int64)}


# ------------------------------------------------------------------------------- running


@pytest.mark.parametrize("rows", [1, 2, 8, 33, 64])
def test_a_program_runs_at_every_size_it_allows(made: Path, rows: int) -> None:
    loaded = treadle.load_package(made)
    assert loaded.manifest["torch"] is None
    y, total = loaded(**given(rows))
    program = parse_program(PROGRAM, "rows.txt")
    assert_within(program, given(rows), {"y": y, "total": total}, sizes={"n": rows})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((65, 16), np.float32), "at": np.zeros(65, np.int64)}, "size n is 65"),
        ({"x": np.zeros((3, 17), np.float32)}, "17 elements in dimension 1, expected 16"),
        ({"x": np.zeros((3, 16), np.float64)}, "type f64, expected f32"),
        ({"x": np.zeros((48,), np.float32)}, "1 dimensions, expected 2"),
        ({"at": np.zeros(4, np.int64)}, "input 'at' has 4 elements in dimension 0, expected 3"),
        ({"x": [1.0, 2.0]}, "is list: expected an array"),
        ({"x": None}, "is NoneType"),
        ({"x": np.zeros((3, 16), ">f4")}, "type >f4"),
        ({"x": np.zeros((3, 16), object)}, "type object"),
        ({"x": np.zeros((1,) * 20, np.float32)}, "20 dimensions"),
        ({"z": np.zeros(3)}, "has no input 'z'"),
    ],
)
def test_inputs_that_are_not_as_they_must_be_are_refused(
    made: Path, change: dict[str, Any], words: str
) -> None:
    loaded = treadle.load_package(made)
    with pytest.raises(UsageError, match="PKG004") as refused:
        loaded(**{**given(3), **change})
    assert words in refused.value.message


def test_missing_and_repeated_inputs_are_refused(made: Path) -> None:
    loaded, rows = treadle.load_package(made), given(3)
    with pytest.raises(UsageError, match="input 'at' is missing: expected x, at"):
        loaded(rows["x"])
    with pytest.raises(UsageError, match="given twice"):
        loaded(rows["x"], rows["at"], at=rows["at"])
    with pytest.raises(UsageError, match="was given 3 inputs, expected 2"):
        loaded(rows["x"], rows["at"], rows["at"])


def test_an_index_out_of_range_is_an_error_of_the_run(made: Path) -> None:
    loaded, rows = treadle.load_package(made), given(3)
    with pytest.raises(TreadleError, match="RUN0") as refused:
        loaded(rows["x"], np.array([0, 3, 1]))
    assert "found 3, limit 3" in refused.value.message
    assert loaded(**rows)[0].shape == (3, 16)  # it can be called again


def test_memory_is_shared_by_what_does_not_live_together(made: Path) -> None:
    loaded = treadle.load_package(made)
    loaded(**given(64))
    assert loaded.held_bytes <= 64 * 16 * 4 + 64


# ------------------------------------------------------------------------------- verified


@pytest.mark.parametrize(
    "name", ["rows.so", "rows.h", "plan.json", "kernels.c", "manifest.json", "package.c"]
)
def test_a_changed_byte_is_found_before_anything_is_loaded(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(InputError) as refused:
        treadle.load_package(copy)
    assert "PKG00" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_missing_or_cut_short_are_found(copy: Path) -> None:
    library = copy / "rows.so"
    library.write_bytes(library.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"rows\.so: expected \d+ bytes, found \d+ \[PKG001\]"):
        treadle.load_package(copy)
    library.unlink()
    with pytest.raises(InputError, match="No such file"):
        treadle.load_package(copy)


def rewritten(folder: Path, **fields: Any) -> None:
    """The manifest with other fields and a checksum that fits."""
    content = json.loads((folder / about.NAME).read_text())
    (folder / about.NAME).write_text(about.as_text({**content, **fields}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": 2}, "expected version 1 of packages, found version 2 [PKG002]"),
        ({"format": "other"}, "[PKG001]"),
        ({"platform": {"system": "other", "machine": "x86_64"}}, "found one for other [PKG002]"),
        ({"files": {"../../etc/passwd": {"bytes": 1, "sha256": ""}}}, "[PKG001]"),
        ({"files": {}}, "the file rows.so in its list"),
        ({"inputs": 3}, "the field 'inputs'"),
    ],
)
def test_foreign_manifests_are_refused(copy: Path, fields: dict[str, Any], words: str) -> None:
    rewritten(copy, **fields)
    with pytest.raises(InputError) as refused:
        treadle.load_package(copy)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b"PK\x03\x04broken", b"[" * 9999]
)
def test_what_is_no_package_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.zip"
    file.write_bytes(content)
    with pytest.raises(InputError, match="PKG001"):
        treadle.load_package(file)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / about.NAME).write_bytes(content)
    for path in (tmp_path / "folder", tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="PKG001"):
            treadle.load_package(path)


def test_one_file_is_a_package_too_and_leaves_nothing_behind(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    packed = tmp_path / "rows.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name in os.listdir(made):
            archive.write(made / name, name)
    loaded = treadle.load_package(packed)
    assert loaded(**given(2))[1].shape == (2,)
    del loaded
    with zipfile.ZipFile(packed, "w") as archive:
        for name in os.listdir(made):
            content = (made / name).read_bytes()
            archive.writestr(name, content if name != "rows.so" else content[::-1])
    with pytest.raises(InputError, match="PKG001"):
        treadle.load_package(packed)
    assert os.listdir(tmp_path / "scratch") == []


# ------------------------------------------------------------------------------- commands


def test_run_reads_files_and_writes_results(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = given(5)
    for name, array in rows.items():
        np.save(tmp_path / f"{name}.npy", array)
    words = [
        f"--input={tmp_path}/x.npy",
        f"--input=at={tmp_path}/at.npy",
        "--repeat",
        "3",
        "--json",
    ]
    assert main(["run", str(made), *words, "--output", str(tmp_path / "out.npz")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [r["type"] for r in said["results"]] == ["f32[5, 16]", "f32[5]"]
    assert said["runs"] == 3
    assert said["microseconds"]["least"] > 0
    saved = np.load(tmp_path / "out.npz")
    y, total = treadle.load_package(made)(**rows)
    assert np.array_equal(saved["y"], y)
    assert np.array_equal(saved["total"], total)


def test_random_inputs_are_the_same_for_the_same_seed(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = []
    for seed in ("1", "1", "2"):
        assert main(["run", str(made), "--random", seed, "--size", "n=4", "--json"]) == 0
        digests.append(json.loads(capsys.readouterr().out)["results"][0]["sha256"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "input 'x' is missing"),
        (["--input", "none.npy"], "No such file"),
        (["--input", "z=x.npy"], "there is no input 'z'"),
        (["--input", "x.npy", "--input", "x.npy", "--input", "x.npy"], "one input too many"),
        (["--input", "text.npy", "--random", "0"], "expected an .npy file of numbers"),
        (["--random", "0", "--size", "m=3"], "--size cannot be 'm=3'"),
        (["--random", "0", "--size", "n=-3"], "--size cannot be 'n=-3'"),
        (["--random", "0", "--size", "n=70"], "expected 1 to 64"),
        (["--random", "0", "--repeat", "0"], "--repeat cannot be 0"),
        (["--random", "0", "--output", "out.txt"], "expected .npy or .npz"),
        (["--random", "0", "--output", "out.npy"], "2 results need an .npz"),
        (["--random", "0", "--output", "no/out.npz"], "expected a file in a folder that exists"),
        (["--random", "0", "--weights", "text.npy"], "expected an .npz file"),
    ],
)
def test_run_says_in_one_line_what_is_wrong(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], words: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((2, 16), np.float32))
    (tmp_path / "text.npy").write_text("not numbers")
    assert main(["run", str(made), *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_damaged_package_is_exit_code_2(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "rows.so").write_bytes(b"")
    assert main(["run", str(copy), "--random", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ------------------------------------------------------------------------------- programs


def test_kernels_for_triton_are_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text(PROGRAM)
    out = tmp_path / "rows.triton"
    words = ["compile", str(tmp_path / "rows.txt"), "--target", "triton", "-o", str(out)]
    assert main(words) == 0
    found = json.loads((out / about.NAME).read_text())
    assert found["format"] == "treadle kernels"
    assert found["checksum"] == about.checksum_of(found)
    for kernel in found["kernels"]:
        assert "@triton.jit" in (out / f"{kernel['name']}.py").read_text()
    assert "launch" in (out / "plan.txt").read_text()
    assert set(found["files"]) == set(os.listdir(out)) - {about.NAME}
    with pytest.raises(InputError, match="PKG001"):
        treadle.load_package(out)  # kernels, no package
    assert main(words) == 2  # it is there already
    assert main([*words, "--force"]) == 0


def test_a_program_with_calls_becomes_sources_and_a_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PROGRAM.replace(
        "loop total on cpu",
        'extern product on cpu call "aten.mm.default" (t, w) writes (z)\n\nloop total on cpu',
    )
    text = text.replace("buffer total", "buffer z : f32[n, 4] on cpu\nbuffer total")
    text = text.replace("buffer at ", "buffer w : f32[16, 4] on cpu\nbuffer at ")
    text = text.replace("inputs x, at", "inputs x, at, w").replace("y, total", "y, total, z")
    (tmp_path / "calls.txt").write_text(text)
    assert main(["check", str(tmp_path / "calls.txt")]) == 0, capsys.readouterr()
    out = tmp_path / "calls.c"
    assert main(["compile", str(tmp_path / "calls.txt"), "-o", str(out)]) == 0
    assert "not a package: it calls aten.mm.default" in capsys.readouterr().out
    assert {"kernels.c", "kernels.so", "plan.json", "plan.txt"} <= set(os.listdir(out))


def test_texts_of_inputs_and_sizes_are_read_or_refused() -> None:
    assert tensor_text(" bf16[ 2 , 3 ] ").shape == (2, 3)
    assert tensor_text("torch.float32[]").shape == ()
    assert dynamic_texts(["0:1=n", "x:0=m[2..]", "x:2=k[1..9]"]) == {
        0: {1: "n"},
        "x": {0: ("m", 2, None), 2: ("k", 1, 9)},
    }
    for text in ("f32", "f32[2", "f33[2]", "f32[-1]", "f32[2,]x", "f32[99999999999999]"):
        with pytest.raises(UsageError, match="OPT002"):
            tensor_text(text)
    for text in ("0", "0:0", "0:0=", "0:x=n", "0:0=1n", "0:0=n[3..2]", "0:0=n[..]"):
        with pytest.raises(UsageError, match="OPT002"):
            dynamic_texts([text])
