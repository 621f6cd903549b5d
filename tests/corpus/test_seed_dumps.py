"""Real dumps come back byte for byte, and what is known about them comes out of the model."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from treadle.frontends.inductor_dump import (
    DumpNode,
    InductorDump,
    looks_like_dump,
    model,
    parse_dump,
    print_dump,
    read_dump,
)

HERE = Path(__file__).parent
SHARED = Path(__file__).parents[2].parent / "shared"
GATHERED = sorted(SHARED.glob("dumps/inductor/*/*.txt"))
FIXTURES = sorted((HERE / "inductor").glob("*.txt"))


def seed(number: str) -> Path:
    found = sorted(SHARED.glob(f"seeds/{number}_*.txt"))
    if not found:
        pytest.skip(f"seed {number} is not beside the repository")
    return found[0]


def read_exactly(path: Path) -> InductorDump:
    text = path.read_bytes().decode("utf-8")
    assert looks_like_dump(text)
    dump = parse_dump(text, path.name)
    assert print_dump(dump) == text
    assert dump.unknown_count == 0
    return dump


def buffers_of(dump: InductorDump) -> list[model.DumpBuffer]:
    return [buffer for node in dump.last.leaves() for buffer in node.outputs]


def group_sizes(nodes: tuple[DumpNode, ...]) -> Counter[int]:
    return Counter(len(node.snodes) for node in nodes if node.kind == "group")


def weak_deps(node: DumpNode) -> int:
    return sum(isinstance(dep, model.WeakDep) for dep in (*node.unmet, *node.met))


def layout_kinds(dump: InductorDump) -> Counter[str]:
    return Counter(
        layout.kind if isinstance(layout := buffer.layout, model.TensorLayout)
        else type(layout).__name__
        for buffer in buffers_of(dump)
    )  # fmt: skip


def test_seed_000_has_the_counts_of_the_sharded_backward() -> None:
    dump = read_exactly(seed("000"))
    leaves = list(dump.last.leaves())
    assert (len(dump.nodes), len(leaves)) == (44, 47)
    assert Counter(node.kind for node in leaves) == {"extern": 32, "nop": 6, "loop": 9}
    groups = [node.name for node in dump.nodes if node.kind == "group"]
    assert groups == ["op44_op45", "op46_op47", "op48_op49"]
    assert layout_kinds(dump) == {
        "NoneLayout": 33,
        "FixedLayout": 26,
        "MultiOutputLayout": 3,
        "MutationLayoutSHOULDREMOVE": 3,
    }
    buffers = buffers_of(dump)
    assert sum(bool(buffer.mutations) for buffer in buffers) == 21
    assert sum(bool(buffer.aliases) for buffer in buffers) == 9
    assert sum(weak_deps(node) for node in leaves) == 3
    outputs = [b.name for b in buffers if any(user.is_output for user in b.users)]
    assert outputs == ["buf63", "buf65", "buf67"]
    assert [finding.message.partition(" skipped")[0] for finding in dump.findings] == [
        "buf44, buf51, buf58",
        "op31, op36, op41",
    ]


def test_seed_001_has_the_counts_of_the_resnet_backward() -> None:
    dump = read_exactly(seed("001"))
    leaves = list(dump.last.leaves())
    assert (len(dump.nodes), len(leaves)) == (959, 1104)
    assert Counter(node.arguments for node in leaves if node.kind != "nop") == {
        ("ComputedBuffer",): 365,
        ("UserDefinedTritonKernel",): 262,
        ("FallbackKernel",): 105,
        ("MultiOutput",): 105,
        ("ExternKernelOut",): 2,
    }
    assert sum(node.kind == "nop" for node in leaves) == 265
    assert group_sizes(dump.nodes) == {2: 69, 3: 5, 4: 18, 5: 3}
    assert layout_kinds(dump) == {"FixedLayout": 737, "NoneLayout": 315, "MultiOutputLayout": 105}
    weak = {node.name: count for node in leaves if (count := weak_deps(node))}
    assert (len(weak), sum(weak.values())) == (12, 137)
    assert (weak["op1031"], weak["op826"], weak["op1088"]) == (30, 20, 3)
    assert sum(len(buffer.mutations) for buffer in buffers_of(dump)) == 315
    statements = [
        statement
        for node in leaves
        if isinstance(node.detail, model.DumpLoop) and node.detail.body
        for block in node.detail.body.blocks
        for statement in block.statements
    ]
    assert sum(isinstance(one, model.SetIndirect) for one in statements) == 110
    ops = Counter(one.op for one in statements if isinstance(one, model.OpCall))
    assert (ops["load"], ops["store"], ops["to_dtype"], ops["mul"]) == (549, 365, 316, 214)
    assert dump.findings == ()


def test_seed_001_is_read_and_printed_in_seconds() -> None:
    path = seed("001")
    start = time.process_time()
    print_dump(read_dump(str(path)))
    assert time.process_time() - start < 5


def test_seed_003_keeps_its_generated_code() -> None:
    dump = read_exactly(seed("003"))
    assert [node.kind for node in dump.nodes] == ["loop", "extern", "loop", "extern"]
    assert dump.dialect.always_shows_mode
    assert dump.dialect.loop_variable == "z"
    assert not dump.dialect.layouts_show_device_index
    assert [bool(node.code) for node in dump.nodes] == [True, False, True, False]
    assert dump.findings == ()


@pytest.mark.parametrize("path", GATHERED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_gathered_dumps_come_back(path: Path) -> None:
    dump = read_exactly(path)
    assert not [finding for finding in dump.findings if not finding.is_note]


def test_gathered_dumps_have_foreach_and_mix_order_groups() -> None:
    if not GATHERED:
        pytest.skip("no gathered dumps beside the repository")
    kinds = {node.node_class for path in GATHERED for node in read_dump(str(path)).last.walk()}
    assert {"ForeachKernelSchedulerNode", "FusedMixOrderReductions", "FusedSchedulerNode"} <= kinds


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_fixtures_come_back(path: Path) -> None:
    dump = read_exactly(path)
    assert not [finding for finding in dump.findings if not finding.is_note]


def test_fixtures_cover_the_kinds_of_the_format() -> None:
    dumps = [read_dump(str(path)) for path in FIXTURES]
    nodes = [node for dump in dumps for section in dump.sections for node in section.walk()]
    classes = {node.node_class for node in nodes}
    assert {
        "OuterLoopFusedSchedulerNode",
        "NopKernelSchedulerNode",
        "FusedSchedulerNode",
    } <= classes
    arguments = {name for node in nodes for name in node.arguments}
    wanted = {"MemoryCheckKernel", "Conditional", "DynamicScalar", "AssertScalar", "RandomSeeds",
              "_CollectiveKernel", "_WaitKernel", "MultiOutput", "ConcatKernel",
              "MultiTemplateBuffer"}  # fmt: skip
    assert wanted <= arguments
    assert any(dump.dialect.is_log for dump in dumps)
