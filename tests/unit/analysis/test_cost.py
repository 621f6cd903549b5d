"""Bytes, flops, roofline times and calibration files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.analysis.cost import WORK, Roofline, bytes_moved, cost_model, work_of
from treadle.analysis.devices import DEVICES, read_calibration
from treadle.core.errors import InputError
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import GROUP_KINDS, LEAF_KINDS, Fused, Program
from treadle.ir.spec import verify
from treadle.ir.types import DType


def example() -> Program:
    b = ProgramBuilder("p", "cuda:0")
    x = b.input("x", "bf16", [2048, 256])
    w = b.input("w", "bf16", [2048])
    t = b.buffer("t", "bf16", [2048, 256])
    with b.loop("scale", [2048, 256]) as k:
        i, j = k.vars
        k.store(t, (i, j), k.load(x, i, j) * k.load(w, i))
    a = b.input("a", "bf16", [128, 2048])
    y = b.output("y", "bf16", [128, 256])
    b.extern("extern_kernels.mm", [a, t], [y], name="mm")
    return verify(b.build())


def test_a_broadcast_operand_is_read_once() -> None:
    program = example()
    work = work_of(program, program.ops[0])
    assert work.bytes == 2 * 2048 * 256 * 2 + 2048 * 2 == 2_101_248
    assert work.flops == 2048 * 256


def test_a_matrix_product_counts_two_flops_per_multiply_add() -> None:
    program = example()
    work = work_of(program, program.ops[1])
    assert work.flops == 2 * 128 * 256 * 2048
    assert work.bytes == 2 * (128 * 2048 + 2048 * 256 + 128 * 256)


def test_repeated_loads_of_one_buffer_count_no_more_than_it_holds() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [100]), b.output("y", "f32", [99])
    with b.loop("diff", [99]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(x, i + 1) - k.load(x, i))
    program = verify(b.build())
    assert bytes_moved(program) == 4 * (100 + 99)


def test_a_kernel_moves_only_what_crosses_its_border() -> None:
    b = ProgramBuilder("p")
    x, t, y = b.input("x", "f32", [64]), b.buffer("t", "f32", [64]), b.output("y", "f32", [64])
    with b.group(Fused, "f"):
        for name, target, source in (("a", t, x), ("b", y, t)):
            with b.loop(name, [64]) as k:
                k.store(target, k.vars, k.exp(k.load(source, *k.vars)))
    program = verify(b.build())
    assert work_of(program, program.ops[0]).bytes == 2 * 64 * 4
    apart = program.with_ops(program.leaves)
    assert bytes_moved(apart) == 4 * 64 * 4


def test_gathers_count_one_element_per_point() -> None:
    b = ProgramBuilder("p")
    table, at = b.input("table", "f32", [1000]), b.input("at", "i64", [10])
    y = b.output("y", "f32", [10])
    with b.loop("gather", [10]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(table, k.indirect(k.load(at, i), 1000)))
    assert bytes_moved(verify(b.build())) == 10 * 4 + 10 * 8 + 10 * 4


def test_work_is_known_for_every_kind() -> None:
    assert set(WORK) == {*LEAF_KINDS, *GROUP_KINDS}


def test_time_is_the_slower_of_memory_and_arithmetic_plus_a_launch() -> None:
    program = example()
    model = Roofline(program, "h200")
    device = DEVICES["h200"]
    assert model.op_ns(program.ops[0]) == pytest.approx(2_101_248 / 4800 + device.launch_ns)
    flops = 2 * 128 * 256 * 2048
    bytes_ = 2 * (128 * 2048 + 2048 * 256 + 128 * 256)
    expected = max(bytes_ / 4800, flops / 989000) + device.launch_ns
    assert model.op_ns(program.ops[1]) == pytest.approx(expected)
    assert model.latency_ns(program.ops[0], program.ops[1]) == 0.0


def test_devices_differ_where_it_matters() -> None:
    assert set(DEVICES) >= {"h100", "h200", "a100", "b200", "mi300", "cpu"}
    assert DEVICES["h200"].gigabytes_per_second > DEVICES["h100"].gigabytes_per_second
    assert DEVICES["h100"].gigaflops(DType.BF16, matrix=True) == 989000
    assert DEVICES["h100"].gigaflops(DType.F8E4M3, matrix=True) == 1979000
    assert DEVICES["h100"].gigaflops(DType.BF16, matrix=False) == 67000
    assert DEVICES["h100"].gigaflops(DType.F64, matrix=False) == 34000
    assert DEVICES["a100"].gigaflops(DType.F32, matrix=True) == 156000


def write(tmp_path: Path, data: object) -> str:
    file = tmp_path / "cal.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(file)


def test_a_calibration_file_replaces_what_it_names(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "treadle_calibration": 1,
            "devices": {
                "h100": {"gigabytes_per_second": 2900},
                "mine": {"like": "h200", "launch_ns": 7, "cores": 3},
            },
        },
    )
    table = read_calibration(file)
    assert table["h100"].gigabytes_per_second == 2900
    assert table["h100"].launch_ns == DEVICES["h100"].launch_ns
    assert table["mine"].launch_ns == 7
    assert table["mine"].cores == 3
    assert table["a100"] == DEVICES["a100"]
    model = cost_model(example(), Options(cost_file=file))
    assert model.device_of(model.program.ops[0]).gigabytes_per_second == 2900
    assert cost_model(example(), Options()).device_of(example().ops[0]) is DEVICES["h100"]


@pytest.mark.parametrize(
    "data, expected",
    [
        ("{", "1: expected JSON, found Expecting property name"),
        ("[]", 'expected an object with "treadle_calibration": 1, found something else'),
        ({"treadle_calibration": 2}, 'expected an object with "treadle_calibration": 1'),
        ({"treadle_calibration": 1}, 'expected an object under "devices", found NoneType'),
        (
            {"treadle_calibration": 1, "devices": {"h100": 3}},
            'expected an object for device "h100", found int',
        ),
        (
            {"treadle_calibration": 1, "devices": {"x": {}}},
            'expected "like" with one of a100, b200, cpu, h100, h200, mi300 for device "x"',
        ),
        (
            {"treadle_calibration": 1, "devices": {"h100": {"lauch_ns": 3}}},
            "expected a field such as launch_ns",
        ),
        (
            {"treadle_calibration": 1, "devices": {"h100": {"launch_ns": -3}}},
            'expected a number of at least 0 for "launch_ns", found -3',
        ),
        (
            {"treadle_calibration": 1, "devices": {"h100": {"vector_gflops": 0}}},
            'expected a positive number for "vector_gflops", found 0',
        ),
    ],
)
def test_a_bad_calibration_file_gets_one_clear_line(
    tmp_path: Path, data: object, expected: str
) -> None:
    with pytest.raises(InputError) as e:
        read_calibration(write(tmp_path, data))
    assert expected in e.value.render()
    assert "[COST001]" in e.value.render()
    assert "\n" not in e.value.render()


def test_a_missing_calibration_file_gets_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a readable calibration file, found No such"):
        read_calibration(str(tmp_path / "none.json"))


def test_a_summand_is_not_taken_for_a_factor() -> None:
    b = ProgramBuilder("p")
    bias, left = b.input("bias", "f32", [2, 64, 128]), b.input("a", "f32", [2, 64, 8])
    right, y = b.input("b", "f32", [2, 8, 128]), b.output("y", "f32", [2, 64, 128])
    b.extern("aten.baddbmm", [bias, left, right], [y], name="mm")
    program = verify(b.build())
    assert work_of(program, program.ops[0]).flops == 2 * 2 * 64 * 128 * 8
