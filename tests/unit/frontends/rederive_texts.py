"""A small dump whose every claim follows from its bodies, before and after fusion.

op0 reads arg0_1, op1 overwrites arg0_1 with what op0 made, op2 reads it again, transposed.
"""

from __future__ import annotations

FLAT = "FixedLayout('cuda:0', torch.float32, size=[8, 16], stride=[16, 1])"
TURNED = "FixedLayout('cuda:0', torch.float32, size=[8, 16], stride=[1, 8])"
MUTATED = "MutationLayoutSHOULDREMOVE('cuda:0', torch.float32, size=[8, 16], stride=[16, 1])"

BUF0 = f"""\
    buf0: ComputedBuffer
    buf0.layout = {FLAT}
    buf0.users = [NodeUser(node=SchedulerNode(name='op1'), can_inplace=False, is_weak=False)]
"""
BUF1 = f"""\
    buf1: ComputedBuffer
    buf1.layout = {MUTATED}
    buf1.mutations = ['arg0_1']
    buf1.users = [
        NodeUser(node=SchedulerNode(name='op2'), can_inplace=False, is_weak=False),
        NodeUser(node=OUTPUT, can_inplace=False, is_weak=False),
    ]
"""

OP0 = f"""\
op0: SchedulerNode(ComputedBuffer)
op0.writes = [MemoryDep('buf0', c0, {{c0: 128}})]
op0.unmet_dependencies = []
op0.met_dependencies = [MemoryDep('arg0_1', c0, {{c0: 128}})]
op0.outputs = [
{BUF0}]
op0.group.device = cuda:0
op0.group.iteration = (128, 1)
op0.sizes = ([128], [])
arg0_1_layout = {FLAT}
buf0_layout = {FLAT}
class op0_loop_body:
    var_ranges = {{p0: 128}}
    index0 = p0
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        neg = ops.neg(load)
        get_index_1 = self.get_index('index0')
        store = ops.store('buf0', get_index_1, neg, None)
        return store
"""

OP1 = f"""\
op1: SchedulerNode(ComputedBuffer)
op1.writes = [MemoryDep('buf1', c0, {{c0: 128}})]
op1.unmet_dependencies =\x20
    [   MemoryDep('buf0', c0, {{c0: 128}}),
        WeakDep(name='buf0', mutating_buf='buf1', is_fake=True)]
op1.met_dependencies = [StarDep(name='arg0_1', mode=None)]
op1.outputs = [
{BUF1}]
op1.group.device = cuda:0
op1.group.iteration = (128, 1)
op1.sizes = ([128], [])
buf0_layout = {FLAT}
arg0_1_layout = {FLAT}
buf1_layout = {MUTATED}
class op1_loop_body:
    var_ranges = {{p0: 128}}
    index0 = p0
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('buf0', get_index)
        get_index_1 = self.get_index('index0')
        store = ops.store('buf1', get_index_1, load, None)
        return store
"""

OP2 = f"""\
op2: SchedulerNode(ComputedBuffer)
op2.writes = [MemoryDep('buf2', c0 + 8*c1, {{c0: 8, c1: 16}})]
op2.unmet_dependencies = [MemoryDep('buf1', c0, {{c0: 128}})]
op2.met_dependencies = []
op2.outputs = [
    buf2: ComputedBuffer
    buf2.layout = {TURNED}
    buf2.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
]
op2.group.device = cuda:0
op2.group.iteration = (128, 1)
op2.sizes = ([8, 16], [])
buf1_layout = {MUTATED}
buf2_layout = {TURNED}
class op2_loop_body:
    var_ranges = {{p0: 8, p1: 16}}
    index0 = 16*p0 + p1
    index1 = p0 + 8*p1
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        get_index_1 = self.get_index('index1')
        store = ops.store('buf2', get_index_1, load, None)
        return store
"""

HEADER = f"""\
op0_op1: FusedSchedulerNode(SchedulerNode,SchedulerNode)
op0_op1.writes = [MemoryDep('buf0', c0, {{c0: 128}}), MemoryDep('buf1', c0, {{c0: 128}})]
op0_op1.unmet_dependencies = []
op0_op1.met_dependencies =\x20
    [   MemoryDep('arg0_1', c0, {{c0: 128}}),
        StarDep(name='arg0_1', mode=None),
        WeakDep(name='buf0', mutating_buf='buf1', is_fake=True)]
op0_op1.outputs = [
{BUF0}{BUF1}]
"""

BEFORE = f"{OP0}\n\n{OP1}\n\n{OP2}\n\n"
AFTER = f"{HEADER}op0_op1.snodes[0] =\n{OP0}op0_op1.snodes[1] =\n{OP1}\n\n{OP2}\n\n"

# A reduction on a CPU: reduced loops stand apart, and are not part of what is written.
REDUCTION = """\
op0: SchedulerNode(ComputedBuffer)
op0.writes = [MemoryDep('buf0', c0, {c0: 8})]
op0.unmet_dependencies = []
op0.met_dependencies = [MemoryDep('arg0_1', c0, {c0: 128})]
op0.outputs = [
    buf0: ComputedBuffer
    buf0.layout = FixedLayout('cpu', torch.float32, size=[8], stride=[1])
    buf0.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
]
op0.group.device = cpu
op0.group.iteration = ((8,), (16,))
op0.sizes = ([8], [16])
arg0_1_layout = FixedLayout('cpu', torch.float32, size=[8, 16], stride=[16, 1])
buf0_layout = FixedLayout('cpu', torch.float32, size=[8], stride=[1])
class op0_loop_body:
    var_ranges = {p0: 8, p1: 16}
    index0 = 16*p0 + p1
    index1 = p0
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        reduction = ops.reduction(torch.float32, torch.float32, 'sum', load)
        get_index_1 = self.get_index('index1')
        store_reduction = ops.store_reduction('buf0', get_index_1, reduction)
        return store_reduction


"""

# torch 2.4 and older: node and buffer are one thing, and users stand in the node.
OLD_FIRST = """\
buf0: SchedulerNode(ComputedBuffer)
buf0.writes = [MemoryDep('buf0', c0, {c0: 128}, None)]
buf0.unmet_dependencies = []
buf0.met_dependencies = [MemoryDep('arg0_1', c0, {c0: 128}, None)]
buf0.users = [NodeUser(node=SchedulerNode(name='buf1'), can_inplace=True, is_weak=False)]
buf0.group.device = cpu
buf0.group.iteration = ((128,), ())
buf0.sizes = ([128], [])
arg0_1_layout = FixedLayout('cpu', torch.float32, size=[8, 16], stride=[16, 1])
buf0_layout = FixedLayout('cpu', torch.float32, size=[8, 16], stride=[16, 1])
class buf0_loop_body:
    var_ranges = {z0: 128}
    index0 = z0
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('arg0_1', get_index)
        get_index_1 = self.get_index('index0')
        store = ops.store('buf0', get_index_1, load, None)
        return store
"""
OLD_SECOND = """\
buf1: SchedulerNode(ComputedBuffer)
buf1.writes = [MemoryDep('buf1', c0, {c0: 128}, None)]
buf1.unmet_dependencies = [MemoryDep('buf0', c0, {c0: 128}, None)]
buf1.met_dependencies = []
buf1.users = [NodeUser(node=ExternKernelSchedulerNode(name='buf2'), can_inplace=False, is_weak=False)]
buf1.group.device = cpu
buf1.group.iteration = ((128,), ())
buf1.sizes = ([128], [])
buf0_layout = FixedLayout('cpu', torch.float32, size=[8, 16], stride=[16, 1])
buf1_layout = FixedLayout('cpu', torch.float32, size=[8, 16], stride=[16, 1])
class buf1_loop_body:
    var_ranges = {z0: 128}
    index0 = z0
    def body(self, ops):
        get_index = self.get_index('index0')
        load = ops.load('buf0', get_index)
        get_index_1 = self.get_index('index0')
        store = ops.store('buf1', get_index_1, load, None)
        return store
"""  # noqa: E501
OLD_CALL = """\
buf2: ExternKernelSchedulerNode(ExternKernelOut)
buf2.writes = [StarDep(name='buf2', mode=None)]
buf2.unmet_dependencies = [StarDep(name='buf1', mode=None)]
buf2.met_dependencies = [StarDep(name='arg1_1', mode=None)]
buf2.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
buf2.node.kernel = extern_kernels.mm
"""
OLD = f"{OLD_FIRST}\n\n{OLD_SECOND}\n\n{OLD_CALL}\n\n"
