"""Parts of an index that the writer has wrapped keep their loops apart."""

from __future__ import annotations

from treadle.frontends.inductor_dump import export_dump, import_program, parse_dump, rederive

WRAPPED = """op0: SchedulerNode(ComputedBuffer)
op0.writes = [MemoryDep('buf0', c0, {c0: 8192})]
op0.unmet_dependencies = []
op0.met_dependencies = [MemoryDep('arg0_1', c1 + 64*((c0)), {c0: 128, c1: 64})]
op0.outputs = [
    buf0: ComputedBuffer
    buf0.layout = FixedLayout('cuda:0', torch.float32, size=[128, 64], stride=[64, 1])
    buf0.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
]
op0.group.device = cuda:0
op0.group.iteration = (8192, 1)
op0.sizes = ((128, 64), ())
arg0_1_layout = FixedLayout('cuda:0', torch.float32, size=[128, 64], stride=[64, 1])
buf0_layout = FixedLayout('cuda:0', torch.float32, size=[128, 64], stride=[64, 1])
class op0_loop_body:
    var_ranges = {p0: 128, p1: 64}
    index0 = p1 + 64*((p0))
    index1 = 64*p0 + p1
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        get_index_1 = self.get_index('index1')
        store = ops.store('buf0', get_index_1, load, None)
        return store


"""


def test_a_wrapped_loop_is_not_merged_with_its_neighbour() -> None:
    assert rederive(parse_dump(WRAPPED)).differences == []


def test_the_same_loop_without_the_wrapping_is() -> None:
    bare = WRAPPED.replace("index0 = p1 + 64*((p0))", "index0 = 64*p0 + p1")
    assert [d.code for d in rederive(parse_dump(bare)).differences][:1] == ["IND011"]


def test_a_program_does_not_keep_the_wrapping() -> None:
    program = import_program(parse_dump(WRAPPED)).program
    (node,) = export_dump(program, "2.6").nodes
    assert [getattr(d, "index", None) and d.index.text for d in node.met] == ["c0"]  # type: ignore[union-attr]
