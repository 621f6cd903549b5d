"""Small dumps as text, for the tests beside this file."""

from __future__ import annotations

LOOP = """\
op0: SchedulerNode(ComputedBuffer)
op0.writes = [MemoryDep('buf0', c0, {c0: 128})]
op0.unmet_dependencies = []
op0.met_dependencies = [MemoryDep('arg0_1', c0, {c0: 128}), MemoryDep('arg1_1', c1, {c0: 8, c1: 16})]
op0.outputs = [
    buf0: ComputedBuffer
    buf0.layout = FixedLayout('cuda:0', torch.float32, size=[8, 16], stride=[16, 1])
    buf0.users = [
        NodeUser(node=ExternKernelSchedulerNode(name='op1'), can_inplace=False, is_weak=False),
        NodeUser(node=OUTPUT, can_inplace=False, is_weak=False),
    ]
]
op0.group.device = cuda:0
op0.group.iteration = (128, 1)
op0.sizes = ([8, 16], [])
arg0_1_layout = FixedLayout('cuda:0', torch.float32, size=[8, 16], stride=[16, 1])
arg1_1_layout = FixedLayout('cuda:0', torch.float32, size=[16], stride=[1])
buf0_layout = FixedLayout('cuda:0', torch.float32, size=[8, 16], stride=[16, 1])
class op0_loop_body:
    var_ranges = {p0: 8, p1: 16}
    index0 = 16*p0 + p1
    index1 = p1
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        get_index_1 = self.get_index('index1')
        load_1 = ops.load('arg1_1', get_index_1)
        to_dtype = ops.to_dtype(load_1, torch.float32, src_dtype = torch.int8)
        add = ops.add(load, to_dtype)
        get_index_2 = self.get_index('index0')
        store = ops.store('buf0', get_index_2, add, None)
        return store


"""  # noqa: E501

EXTERN = """\
op1: ExternKernelSchedulerNode(FallbackKernel)
op1.writes = [StarDep(name='buf1', mode=None), StarDep(name='buf2', mode=None)]
op1.unmet_dependencies = 
    [   StarDep(name='buf0', mode=None),
        WeakDep(name='buf0', mutating_buf='buf2', is_fake=False)]
op1.met_dependencies = [StarDep(name='arg2_1', mode=None)]
op1.min_input_distance = 1
op1.max_input_distance = 2
op1.outputs = [
    buf1: FallbackKernel
    buf1.layout = MultiOutputLayout(device=device(type='cuda', index=0))
    buf1.aliases = ['arg2_1']
    buf1.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
    buf2: MutationOutput
    buf2.layout = NoneLayout(device=device(type='cuda', index=0), size=[0], stride=[0])
    buf2.mutations = ['arg2_1']
    buf2.users = []
]
op1.node.kernel = torch.ops.aten.sort.stable


"""  # noqa: W291

GRAPH = LOOP + EXTERN

WITH_MODES = GRAPH.replace(", MemoryDep('arg1_1', c1, {c0: 8, c1: 16})]", "]").replace(
    "})", "}, None)"
)

WITHOUT_FAKE = GRAPH.replace(
    "    [   StarDep(name='buf0', mode=None),\n        WeakDep(",
    "    [   StarDep(name='buf0_of_a_longer_name', mode=None),\n        WeakDep(",
).replace(", is_fake=False", "")

# torch 2.4 and older: node and buffer are one thing, users stand in the node, as pasted.
OLD = """\
buf0: SchedulerNode(ComputedBuffer)
buf0.writes = [MemoryDep('buf0', c0, {c0: 67120})]
buf0.unmet_dependencies = []
buf0.met_dependencies =
    [   MemoryDep('arg0_1', c1, {c0: 8390, c1: 8}),
        MemoryDep('arg1_1', c0, {c0: 67120})]
buf0.users = [NodeUser(node=OUTPUT, can_inplace=False), NodeUser(node=SchedulerNode(name='buf1'), can_inplace=True)]
buf0.group.device = cpu
buf0.group.iteration = ((8390, 8), ())
buf0.sizes = ([8390, 8], [])
buf0.mutations = ['arg1_1']
class buf0_loop_body:
    var_ranges = {z0: 8390, z1: 8}
    index0 = 8*z0 + z1
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg1_1', get_index)
        get_index_1 = self.get_index('index0')
        store = ops.store('buf0', get_index_1, load, None)
        return store


buf1: NopKernelSchedulerNode(ComputedBuffer)
buf1.writes = [MemoryDep('buf1', d0, {d0: 0})]
buf1.unmet_dependencies = []
buf1.met_dependencies = []
buf1.users = []


"""  # noqa: E501


def as_log(text: str, title: str = "AFTER FUSION") -> str:
    """The same dump as the logger prints it."""
    prefix = "I0101 00:00:00.000000 1 torch/_inductor/debug.py:757] [0/0] [__ir_post_fusion] "
    return "".join(f"{prefix}{line}\n" for line in f"{title}\n{text}".split("\n"))


def as_member_of_group(*nodes: str, name: str = "op0_op1") -> str:
    """A fused node around the given ones; its header is only as good as a parser needs it."""
    members = [node.rstrip("\n") for node in nodes]
    lines = [
        f"{name}: FusedSchedulerNode({','.join(['SchedulerNode'] * len(nodes))})",
        f"{name}.writes = []",
        f"{name}.unmet_dependencies = []",
        f"{name}.met_dependencies = []",
        f"{name}.outputs = [\n]",
        *[f"{name}.snodes[{i}] =\n{member}" for i, member in enumerate(members)],
    ]
    return "\n".join(lines) + "\n\n\n"
