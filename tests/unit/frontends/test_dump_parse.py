"""What the model of a dump says, and that changed models print right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dump_texts import (
    EXTERN,
    GRAPH,
    LOOP,
    OLD,
    WITH_MODES,
    WITHOUT_FAKE,
    as_log,
    as_member_of_group,
)

from treadle.frontends.inductor_dump import looks_like_dump, model, parse_dump, print_dump
from treadle.frontends.inductor_dump.model import Index, MemoryDep, StarDep, ValueName, WeakDep
from treadle.index import const, loop


def body_of(*statements: str) -> model.BodyBlock:
    """The block that these statements make in place of those of LOOP."""
    head, _, rest = LOOP.partition("    def body(self, ops):\n")
    text = head + "    def body(self, ops):\n" + "".join(f"        {s}\n" for s in statements)
    dump = parse_dump(text + "\n\n")
    detail = dump.nodes[0].detail
    assert rest
    assert isinstance(detail, model.DumpLoop)
    assert detail.body
    assert print_dump(dump) == text + "\n\n"
    return detail.body.blocks[0]


def test_a_loop_node_is_read_as_structure() -> None:
    node = parse_dump(GRAPH).nodes[0]
    assert (node.name, node.node_class, node.arguments) == (
        "op0",
        "SchedulerNode",
        ("ComputedBuffer",),
    )
    assert node.kind == "loop"
    dep = node.met[1]
    assert isinstance(dep, MemoryDep)
    assert (dep.name, dep.index.expr, dep.ranges[1]) == ("arg1_1", loop("c1"), ("c1", Index("16")))
    buffer = node.outputs[0]
    assert [user.is_output for user in buffer.users] == [False, True]
    detail = node.detail
    assert isinstance(detail, model.DumpLoop)
    assert [name for name, _ in detail.layouts] == ["arg0_1", "arg1_1", "buf0"]
    assert detail.body
    assert detail.body.indices[0][1].expr == 16 * loop("p0") + loop("p1")
    cast = detail.body.blocks[0].statements[4]
    assert isinstance(cast, model.OpCall)
    assert cast.args == (ValueName("load_1"), model.DumpDType("float32"))
    assert cast.keywords == (("src_dtype", model.DumpDType("int8")),)


def test_an_extern_node_has_kernel_distances_aliases_and_mutations() -> None:
    node = parse_dump(GRAPH).nodes[1]
    assert node.kind == "extern"
    assert node.detail == model.DumpCall("torch.ops.aten.sort.stable")
    assert (node.min_input_distance, node.max_input_distance) == (1, 2)
    assert node.unmet == (StarDep("buf0"), WeakDep("buf0", "buf2", is_fake=False))
    assert node.outputs[0].aliases == ("arg2_1",)
    assert node.outputs[1].mutations == ("arg2_1",)
    assert node.outputs[1].layout == model.NoneLayout(
        model.DumpDevice("cuda", 0), model.Bracketed((Index("0"),)), model.Bracketed((Index("0"),))
    )


def test_lines_are_numbered_as_editors_do() -> None:
    node = parse_dump(GRAPH).nodes[1]
    assert GRAPH.split("\n")[node.line - 1] == "op1: ExternKernelSchedulerNode(FallbackKernel)"
    logged = parse_dump("noise\n" + as_log(GRAPH)).nodes[1]
    assert logged.line == node.line + 2


def test_groups_may_stand_in_groups() -> None:
    inner = as_member_of_group(LOOP, EXTERN)
    text = as_member_of_group(inner, LOOP, name="op0_op1_op0")
    dump = parse_dump(text)
    assert print_dump(dump) == text
    assert [node.name for node in dump.last.walk()] == ["op0_op1_op0", "op0_op1", "op0", "op1",
                                                        "op0"]  # fmt: skip
    assert [node.name for node in dump.last.leaves()] == ["op0", "op1", "op0"]


@pytest.mark.parametrize(
    "text",
    [
        GRAPH,
        GRAPH.replace("\n", "\r\n"),
        "\n".join(line.rstrip() for line in GRAPH.split("\n")),
        as_log(GRAPH),
        "\n".join(line.rstrip() for line in as_log(GRAPH).split("\n")),
        as_log(LOOP, "BEFORE FUSION") + "V0101 other message\n" + as_log(EXTERN) + "end\n",
        as_log("", "BEFORE FUSION"),
        "BEFORE FUSION\n" + GRAPH + "AFTER FUSION\n" + GRAPH,
        OLD,
        WITH_MODES,
        WITHOUT_FAKE,
        GRAPH.rstrip("\n") + "\n",
    ],
    ids=[
        "plain",
        "crlf",
        "stripped",
        "log",
        "stripped_log",
        "mixed_log",
        "empty_log",
        "bare_log",
        "old",
        "mode",
        "weak",
        "short_end",
    ],
)
def test_every_dialect_prints_back(text: str) -> None:
    dump = parse_dump(text)
    assert print_dump(dump) == text
    assert looks_like_dump(text) or not dump.nodes


def test_a_log_keeps_its_sections_and_the_lines_between() -> None:
    text = as_log(LOOP, "BEFORE FUSION") + "V0101 other message\n" + as_log(EXTERN) + "end\n"
    dump = parse_dump(text)
    assert [section.title for section in dump.sections] == ["BEFORE FUSION", "AFTER FUSION"]
    assert dump.sections[1].foreign == ("V0101 other message",)
    assert dump.foreign_end == ("end", "")
    assert [node.name for node in dump.nodes] == ["op1"]


def test_the_dialect_is_found_in_the_text() -> None:
    assert parse_dump(GRAPH).dialect.shows_distances
    assert not parse_dump(LOOP).dialect.shows_distances
    old = parse_dump(OLD).dialect
    assert old.users_of_nodes
    assert old.loop_variable == "z"
    assert not old.keeps_trailing_spaces
    assert parse_dump(WITH_MODES).dialect.always_shows_mode
    assert not parse_dump(GRAPH.replace("cuda:0'", "cuda'")).dialect.layouts_show_device_index


def test_old_dumps_have_users_in_the_node() -> None:
    node, nop = parse_dump(OLD).nodes
    assert node.users is not None
    assert [user.node for user in node.users] == ["OUTPUT", "buf1"]
    assert node.users[0].is_weak is None
    assert isinstance(node.detail, model.DumpLoop)
    assert node.detail.mutations == ("arg1_1",)
    assert nop.kind == "nop"


def test_generated_code_is_kept_verbatim() -> None:
    code = "op0 Triton code:\n    import triton\n\n    def k(x, \n        y):\n        pass\n"
    text = LOOP.rstrip("\n") + "\n" + code + "\n\n" + EXTERN
    dump = parse_dump(text)
    assert dump.nodes[0].code == model.DeviceCode(
        "Triton code:", ("    import triton", "", "    def k(x, ", "        y):", "        pass")
    )
    assert print_dump(dump) == text
    assert dump.dialect.has_device_code


def test_a_template_without_body_and_its_remark() -> None:
    text = LOOP[: LOOP.index("class ")] + "op0 Unfinalized multi template buffer\n\n\n"
    dump = parse_dump(text.replace("(ComputedBuffer)", "(MultiTemplateBuffer)"))
    assert dump.nodes[0].code == model.DeviceCode("Unfinalized multi template buffer")
    detail = dump.nodes[0].detail
    assert isinstance(detail, model.DumpLoop)
    assert detail.body is None


def test_statements_of_every_kind() -> None:
    block = body_of(
        "get_index = self.get_index('index0')",
        "load = ops.load('arg0_1', get_index)",
        "set_indirect0 = self.set_indirect0(load)",
        "masked_subblock1 = self.masked_subblock1(load, -inf)",
        "scan0 = self.scan0((torch.float32,), (load,))",
        "getitem = scan0[0]",
        "sort = ops.sort((torch.float32, torch.int16), (load, getitem), True, descending = False)",
        "bucketize = ops.bucketize(load, ('arg1_1', get_index, 1), 0, torch.int64, False, None)",
        "fn = ops.frob(<function <lambda> at 0x7f12>, [load], 'it', 1e-05, {'a': 1})",
        "assert_ = ops.device_assert_async(load, 'index out of bounds: 0 <= tmp < 4')",
        "odd = load + 1",
        "return (load, odd)",
    )
    get, _, indirect, masked, scan, item, sort, bucket, frob, check, odd, back = block.statements
    assert get == model.GetIndex("get_index", "index0")
    assert indirect == model.SetIndirect("set_indirect0", 0, ValueName("load"))
    assert masked == model.MaskedCall(
        "masked_subblock1", "masked_subblock1", ValueName("load"), model.Verbatim("-inf")
    )
    assert scan == model.BodyCall(
        "scan0",
        "scan0",
        (model.Pack((model.DumpDType("float32"),)), model.Pack((ValueName("load"),))),
    )
    assert item == model.GetItem("getitem", "scan0", 0)
    assert isinstance(sort, model.OpCall)
    assert sort.keywords == (("descending", model.Verbatim("False")),)
    assert isinstance(bucket, model.OpCall)
    assert isinstance(bucket.args[1], model.Pack)
    assert isinstance(frob, model.OpCall)
    assert frob.args[0] == model.Verbatim("<function <lambda> at 0x7f12>")
    assert isinstance(check, model.OpCall)
    assert check.args[1] == model.QuotedText("index out of bounds: 0 <= tmp < 4")
    assert odd == model.UnknownStatement("odd = load + 1")
    assert back == model.Return(model.Pack((ValueName("load"), ValueName("odd"))))


@pytest.mark.parametrize(
    "layout",
    [
        "FlexibleLayout('cpu', torch.bool, size=[], stride=[])",
        "NonOwningLayout('cpu', torch.float32, size=[s17, 4], stride=[16*s17, 1], offset=4*s17)",
        "FixedLayout('cpu', torch.uint8, size=[4], stride=[1], is_pinned=True)",
        "CommBufferLayout('cuda:1', torch.bfloat16, size=[4], stride=[1], offset=8)",
        "MutationLayoutSHOULDREMOVE('cuda:0', torch.float8_e4m3fn, size=[(s0//2)], stride=[1])",
        "NoneLayout(device=None)",
        "NoneLayout(device=device(type='cpu'), size=[0], stride=[0])",
        "SparseLayout(nnz=4, blocks=(2, 2))",
    ],
)
def test_layouts_print_back(layout: str) -> None:
    old = "FixedLayout('cuda:0', torch.float32, size=[8, 16], stride=[16, 1])"
    text = LOOP.replace(f"buf0.layout = {old}", f"buf0.layout = {layout}")
    dump = parse_dump(text)
    assert print_dump(dump) == text
    is_unknown = isinstance(dump.nodes[0].outputs[0].layout, model.OtherLayout)
    assert is_unknown == layout.startswith("Sparse")


def test_a_changed_node_prints_as_if_it_had_been_dumped_so() -> None:
    node = parse_dump(LOOP).nodes[0]
    more = MemoryDep("buf9", Index.of(4 * loop("c0") + loop("c1")), (("c0", Index.of(const(8))),))
    users = replace(node.outputs[0], users=node.outputs[0].users[1:])
    changed = replace(node, name="op77", met=(*node.met, more), outputs=(users,))
    dump = parse_dump(LOOP)
    printed = print_dump(replace(dump, sections=(replace(dump.last, nodes=(changed,)),)))
    expected = LOOP.replace("op0", "op77").replace(
        "op77.met_dependencies = [MemoryDep('arg0_1', c0, {c0: 128}), "
        "MemoryDep('arg1_1', c1, {c0: 8, c1: 16})]",
        "op77.met_dependencies = \n"
        "    [   MemoryDep('arg0_1', c0, {c0: 128}),\n"
        "        MemoryDep('arg1_1', c1, {c0: 8, c1: 16}),\n"
        "        MemoryDep('buf9', 4*c0 + c1, {c0: 8})]",
    )
    start, end = expected.index("    buf0.users = ["), expected.index("]\nop77.group")
    one = "    buf0.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]\n"
    assert printed == expected[:start] + one + expected[end:]
    again = parse_dump(printed)
    assert again.nodes == (changed,)


def test_other_texts_do_not_look_like_dumps() -> None:
    for text in ("", "treadle 1\nprogram p\n", "BEFORE FUSION\nhello\n", "op0: Thing\n"):
        assert not looks_like_dump(text)
