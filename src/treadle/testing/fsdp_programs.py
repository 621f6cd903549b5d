"""Training steps of transformers whose weights are sharded, as programs of one rank.

    fsdp_program(layers=8, world=64)

Every weight is gathered right before it is used, in the forward and again in the backward, and its
gradient is reduced and scattered as soon as it is there; each collective is waited for at once, as
a capture of such a model has them. Nothing overlaps until it is scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.ir.types import Buffer

WEIGHTS = ("qkv", "out", "up", "down")


@dataclass(frozen=True)
class FsdpShape:
    """The size of a transformer and of the job that trains it."""

    layers: int = 8
    world: int = 8
    hidden: int = 4096
    tokens: int = 8192
    """Rows of activations on each rank."""

    def weight(self, name: str) -> tuple[int, int]:
        """Rows and columns of a weight."""
        h = self.hidden
        shapes = {"qkv": (h, 3 * h), "out": (h, h), "up": (h, 4 * h), "down": (4 * h, h)}
        return shapes[name]


def fsdp_program(
    layers: int = 8, world: int = 8, hidden: int = 4096, tokens: int = 8192
) -> Program:
    """One training step: forward, backward, gradients of the rank's own shards."""
    return _StepWriter(FsdpShape(layers, world, hidden, tokens)).program()


class _StepWriter:
    """Writes one program, forward then backward."""

    def __init__(self, shape: FsdpShape) -> None:
        self.shape = shape
        self.b = ProgramBuilder(f"fsdp_{shape.layers}_layers_{shape.world}_ranks", device="cuda:0")
        self.ranks = tuple(range(shape.world))
        self.shards: dict[tuple[int, str], Buffer] = {}
        self.grads: list[Buffer] = []
        self.count = 0

    def program(self) -> Program:
        shape, b = self.shape, self.b
        x = b.input("x", "bf16", [shape.tokens, shape.hidden])
        for layer in range(shape.layers):
            for name in WEIGHTS:
                rows, columns = shape.weight(name)
                size = [rows * columns // shape.world]
                self.shards[layer, name] = b.input(f"shard{layer}_{name}", "bf16", size)
        kept = []
        for layer in range(shape.layers):
            kept.append(self.forward(layer, x))
            x = kept[-1]["result"]
        grad = self.pointwise("loss_grad", x)
        for layer in reversed(range(shape.layers)):
            grad = self.backward(layer, kept[layer], grad)
        b.returns(grad, *self.grads)
        return b.build()

    def fresh(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"

    def pointwise(self, what: str, *sources: Buffer) -> Buffer:
        """A kernel that reads its sources element by element."""
        name = self.fresh(what)
        sizes = [int(str(n)) for n in sources[0].layout.sizes]
        out = self.b.buffer(f"{name}_v", "bf16", sizes)
        with self.b.loop(name, sizes) as k:
            value = k.load(sources[0], *k.vars)
            for other in sources[1:]:
                value = value + k.load(other, *k.vars)
            k.store(out, k.vars, value)
        return out

    def product(self, what: str, left: Buffer, right: Buffer, rows: int, columns: int) -> Buffer:
        name = self.fresh(what)
        out = self.b.buffer(f"{name}_v", "bf16", [rows, columns])
        self.b.extern("aten.mm.default", [left, right], [out], name=name)
        return out

    def turned(self, value: Buffer) -> Buffer:
        """A view with rows and columns exchanged."""
        rows, columns = (int(str(n)) for n in value.layout.sizes)
        return self.b.view(self.fresh("turned"), value, [columns, rows], [1, columns])

    def gathered(self, layer: int, name: str) -> Buffer:
        rows, columns = self.shape.weight(name)
        call = self.fresh(f"gather_{name}_{layer}_")
        whole = self.b.buffer(f"{call}_v", "bf16", [rows, columns])
        self.b.collective(
            "_c10d_functional.all_gather_into_tensor.default",
            [self.shards[layer, name], self.shape.world, "fsdp"],
            writes=[whole], group="fsdp", ranks=self.ranks, name=call,
        )  # fmt: skip
        self.b.wait(whole, name=f"{call}_wait")
        return whole

    def scattered(self, layer: int, name: str, grad: Buffer) -> None:
        rows, columns = self.shape.weight(name)
        call = self.fresh(f"scatter_{name}_{layer}_")
        part = self.b.buffer(f"{call}_v", "bf16", [rows * columns // self.shape.world])
        self.b.collective(
            "_c10d_functional.reduce_scatter_tensor.default",
            [grad, "avg", self.shape.world, "fsdp"],
            writes=[part], group="fsdp", ranks=self.ranks, name=call,
        )  # fmt: skip
        self.b.wait(part, name=f"{call}_wait")
        self.grads.append(self.pointwise(f"grad_{name}_{layer}_", part))

    def forward(self, layer: int, x: Buffer) -> dict[str, Buffer]:
        t, h = self.shape.tokens, self.shape.hidden
        kept = {"x": x, "n1": self.pointwise("norm", x)}
        qkv = self.product("qkv", kept["n1"], self.gathered(layer, "qkv"), t, 3 * h)
        attended = self.fresh("attention")
        kept["qkv"], kept["a"] = qkv, self.b.buffer(f"{attended}_v", "bf16", [t, h])
        self.b.extern("aten.attention.default", [qkv], [kept["a"]], name=attended)
        o = self.product("out", kept["a"], self.gathered(layer, "out"), t, h)
        kept["m"] = self.pointwise("add", x, o)
        kept["n2"] = self.pointwise("norm", kept["m"])
        kept["u"] = self.product("up", kept["n2"], self.gathered(layer, "up"), t, 4 * h)
        kept["s"] = self.pointwise("act", kept["u"])
        d = self.product("down", kept["s"], self.gathered(layer, "down"), t, h)
        kept["result"] = self.pointwise("add", kept["m"], d)
        return kept

    def linear_backward(self, layer: int, name: str, given: Buffer, grad: Buffer) -> Buffer:
        """The gradient of what a product was given; that of its weight goes out."""
        rows, columns = self.shape.weight(name)
        t = self.shape.tokens
        whole = self.turned(self.gathered(layer, name))
        back = self.product(f"d_{name}_", grad, whole, t, rows)
        weight = self.product(f"w_{name}_", self.turned(given), grad, rows, columns)
        self.scattered(layer, name, weight)
        return back

    def backward(self, layer: int, kept: dict[str, Buffer], grad: Buffer) -> Buffer:
        ds = self.linear_backward(layer, "down", kept["s"], grad)
        du = self.pointwise("d_act", ds, kept["u"])
        dn2 = self.linear_backward(layer, "up", kept["n2"], du)
        dm = self.pointwise("d_norm", dn2, kept["m"], grad)
        da = self.linear_backward(layer, "out", kept["a"], dm)
        name = self.fresh("d_attention")
        shape = [self.shape.tokens, 3 * self.shape.hidden]
        dqkv = self.b.buffer(f"{name}_v", "bf16", shape)
        self.b.extern("aten.attention_backward.default", [da, kept["qkv"]], [dqkv], name=name)
        dn1 = self.linear_backward(layer, "qkv", kept["n1"], dqkv)
        return self.pointwise("d_norm", dn1, kept["x"], dm)
