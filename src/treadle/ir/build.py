"""A small builder that makes hand-written programs pleasant.

    b = ProgramBuilder("demo")
    x = b.input("x", "f32", [128, 256])
    y = b.output("y", "f32", [128, 256])
    with b.loop("softmax", [128], reduce=[256]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        e = k.exp(v - k.max(v))
        k.store(y, (i, j), e / k.sum(e))
    program = b.build()

Coordinates go through the buffer's layout; `k.load_at(x, index)` takes a storage index as it is.
Python numbers become constants of the other operand's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from treadle.index import Expr, IntLike, Symbol, as_expr, size
from treadle.ir.body import Literal, Scalar
from treadle.ir.build_body import BodyBuilder, Value
from treadle.ir.numerics import EXACT, Numerics
from treadle.ir.program import (
    Arg,
    Call,
    Collective,
    Extern,
    Fused,
    Group,
    Loop,
    MultiOutput,
    Nop,
    Operation,
    Program,
    Ref,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import Buffer, BufferKind, DType, Layout, dtype

__all__ = ["BodyBuilder", "ProgramBuilder", "Value"]

G = TypeVar("G", bound=Group)


class ProgramBuilder:
    """Collects buffers and operations; `build` gives the frozen program."""

    def __init__(self, name: str, device: str = "cpu", numerics: Numerics = EXACT) -> None:
        self.name, self.device, self.numerics = name, device, numerics
        self.buffers: dict[str, Buffer] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.donated: list[str] = []
        self.sizes: dict[str, Symbol] = {}
        self._ops: list[Operation] = []
        self._count = 0

    # -- sizes and buffers -----------------------------------------------------------------
    def size(
        self,
        name: str,
        lo: int = 1,
        hi: int | None = None,
        divisor: int = 1,
        hint: int | None = None,
    ) -> Symbol:
        """Declare a run-time size."""
        if name in self.sizes:
            raise ValueError(f"size {name} is declared twice")
        self.sizes[name] = size(name, lo, hi, divisor, hint)
        return self.sizes[name]

    def buffer(
        self,
        name: str,
        element: str | DType,
        sizes: Sequence[IntLike],
        strides: Sequence[IntLike] | None = None,
        offset: IntLike = 0,
        device: str | None = None,
    ) -> Buffer:
        """Declare a buffer with storage of its own."""
        layout = _layout(sizes, strides, offset)
        return self._declare(Buffer(name, dtype(element), layout, device or self.device))

    def input(
        self,
        name: str,
        element: str | DType,
        sizes: Sequence[IntLike],
        *,
        donated: bool = False,
        **rest: Any,
    ) -> Buffer:
        """Declare a buffer the caller provides; a donated one may be reused after its last use."""
        self.inputs.append(name)
        if donated:
            self.donated.append(name)
        return self.buffer(name, element, sizes, **rest)

    def output(
        self, name: str, element: str | DType, sizes: Sequence[IntLike], **rest: Any
    ) -> Buffer:
        """Declare a buffer the caller gets back."""
        self.outputs.append(name)
        return self.buffer(name, element, sizes, **rest)

    def returns(self, *buffers: Buffer | str) -> None:
        """Give buffers declared elsewhere back to the caller too."""
        self.outputs.extend(_name(b) for b in buffers)

    def view(
        self,
        name: str,
        of: Buffer,
        sizes: Sequence[IntLike],
        strides: Sequence[IntLike] | None = None,
        offset: IntLike = 0,
        element: str | DType | None = None,
    ) -> Buffer:
        """Declare another view of the storage of `of`, maybe with its bytes read anew."""
        layout = _layout(sizes, strides, offset)
        seen_as = of.dtype if element is None else dtype(element)
        return self._declare(Buffer(name, seen_as, layout, of.device, of.name))

    def token(self, name: str, kind: BufferKind = BufferKind.TOKEN) -> Buffer:
        """Declare a buffer without bytes: a token, or a tuple of tensors."""
        return self._declare(
            Buffer(name, DType.U8, Layout.contiguous([0]), self.device, None, kind)
        )

    def _declare(self, buffer: Buffer) -> Buffer:
        if buffer.name in self.buffers:
            raise ValueError(f"buffer {buffer.name} is declared twice")
        self.buffers[buffer.name] = buffer
        return buffer

    # -- operations ------------------------------------------------------------------------
    def _common(self, name: str | None, rest: dict[str, Any]) -> dict[str, Any]:
        if name is None:
            name = f"op{self._count}"
        self._count += 1
        rest.setdefault("device", self.device)
        for key in ("origins", "after"):
            if isinstance(rest.get(key), str):
                raise TypeError(f"{key} takes a list of names, not the text {rest[key]!r}")
            if key in rest:
                rest[key] = tuple(rest[key])
        return {"name": name, **rest}

    def add(self, op: Operation) -> Operation:
        """Append an operation made elsewhere."""
        self._ops.append(op)
        return op

    @contextmanager
    def loop(
        self,
        name: str | None,
        extents: Sequence[IntLike],
        reduce: Sequence[IntLike] = (),
        **rest: Any,
    ) -> Iterator[BodyBuilder]:
        """A loop operation; its body is written inside the `with` block."""
        body = BodyBuilder(self.buffers, extents, reduce)
        yield body
        self.add(Loop(**self._common(name, rest), body=body.build()))

    @contextmanager
    def group(self, kind: type[G] | None = None, name: str | None = None) -> Iterator[None]:
        """Operations added inside the `with` block become members of one group (Fused)."""
        outer, self._ops = self._ops, []
        try:
            yield
        finally:
            members, self._ops = tuple(self._ops), outer
        joined = name or "_".join(m.name for m in members)
        device = members[0].device if members else self.device
        self._ops.append((kind or Fused)(name=joined, device=device, members=members))

    def extern(self, target: str, args: Sequence[Any], writes: Sequence[Any], **rest: Any) -> Call:
        """A library call that fills `writes` (and changes `mutates`)."""
        return self._call(Extern, target, args, writes, rest)

    def template(
        self, target: str, args: Sequence[Any], writes: Sequence[Any], **rest: Any
    ) -> Call:
        """A kernel template."""
        return self._call(Template, target, args, writes, rest)

    def user_kernel(self, target: str, args: Sequence[Any], **rest: Any) -> Call:
        """A user's kernel; say what it changes with `mutates`."""
        return self._call(UserKernel, target, args, rest.pop("writes", ()), rest)

    def collective(self, target: str, args: Sequence[Any], **rest: Any) -> Call:
        """The start of a collective; say `writes` or `mutates`, and `group`."""
        return self._call(Collective, target, args, rest.pop("writes", ()), rest)

    def _call(
        self,
        kind: type[Call],
        target: str,
        args: Sequence[Any],
        writes: Sequence[Any],
        rest: dict[str, Any],
    ) -> Call:
        rest["mutates"] = tuple(_name(m) for m in rest.pop("mutates", ()))
        rest["attrs"] = tuple((k, _arg(v)) for k, v in rest.pop("attrs", {}).items())
        common = self._common(rest.pop("name", None), rest)
        call = kind(
            **common,
            target=target,
            args=tuple(_arg(a) for a in args),
            writes=tuple(_name(w) for w in writes),
        )
        self.add(call)
        return call

    def wait(self, buffer: Buffer, name: str | None = None, **rest: Any) -> Operation:
        """Wait for the collective that wrote `buffer`."""
        return self.add(Wait(**self._common(name, rest), buffer=buffer.name))

    def take(
        self, target: Buffer, source: Buffer, position: int, name: str | None = None, **rest: Any
    ) -> Operation:
        """Take one tensor out of a tuple."""
        common = self._common(name, rest)
        return self.add(
            MultiOutput(**common, source=source.name, position=position, target=target.name)
        )

    def nop(self, *writes: Buffer, name: str | None = None, **rest: Any) -> Operation:
        """Allocate buffers without filling them."""
        common = self._common(name, rest)
        return self.add(Nop(**common, writes=tuple(b.name for b in writes)))

    def build(self) -> Program:
        """The frozen program (not yet verified; see `treadle.ir.spec.verify`)."""
        return Program(
            name=self.name,
            buffers=tuple(self.buffers.values()),
            ops=tuple(self._ops),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            donated=tuple(self.donated),
            sizes=tuple(self.sizes.values()),
            numerics=self.numerics,
        )


def _layout(sizes: Sequence[IntLike], strides: Sequence[IntLike] | None, offset: IntLike) -> Layout:
    plain = Layout.contiguous(sizes)
    if strides is None and offset == 0:
        return plain
    exact: tuple[Expr, ...] = (
        plain.strides if strides is None else tuple(as_expr(s) for s in strides)
    )
    return Layout(plain.sizes, exact, as_expr(offset))


def _name(buffer: Buffer | str) -> str:
    return buffer if isinstance(buffer, str) else buffer.name


def _arg(value: Buffer | Expr | Scalar | Sequence[Any]) -> Arg:
    if isinstance(value, Buffer):
        return Ref(value.name)
    if isinstance(value, Expr):
        return value
    if isinstance(value, list | tuple):
        return tuple(_arg(v) for v in value)
    assert value is None or isinstance(value, bool | int | float | str), (
        "an argument is a buffer, a size, a literal or a list of them"
    )
    return Literal(value)
