"""What the kernels of attention have in common: arguments, tiles in memory, walks along blocks.

Names in the text: `b`, `h` batch and head of the queries, `hk` head of keys and values, `m` and `n`
places of queries and keys as functions see them (clamped where a tile is cut off, so that nothing
outside is read), `start` where the present step of a walk begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from treadle.codegen.triton.flex.points import PointLines, pointer_to, write_points
from treadle.codegen.triton.flex.spec import FlexKernel, FlexSpec, Points, Tile
from treadle.codegen.triton.functions import source_of
from treadle.codegen.triton.ops import helpers_in
from treadle.codegen.triton.types import STORED
from treadle.codegen.triton.writer import Lines, power_of_two

LOG2_E = 1.4426950408889634
LEAST = 16
"""The shortest side of a product of tiles."""
MINUS_INFINITY = 'float("-inf")'


class FlexWriter:
    """The text of one kernel under construction."""

    def __init__(self, spec: FlexSpec, tile: Tile, is_even: bool) -> None:
        """`is_even`: lengths are multiples of the tile's sides."""
        self.spec, self.tile, self.is_even = spec, tile, is_even
        self.lines = Lines()
        self.addresses: list[str] = []
        self.numbers: list[str] = []
        self.element = STORED[spec.dtype]
        self.qk_width = max(power_of_two(spec.qk_dim), LEAST)
        self.v_width = max(power_of_two(spec.v_dim), LEAST)

    def add(self, *lines: str) -> None:
        """Append lines."""
        self.lines.add(*lines)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Lines inside of a loop."""
        self.add(head)
        self.lines.depth += 1
        yield
        self.lines.depth -= 1

    # -- arguments -----------------------------------------------------------------------------
    def pointer(self, name: str, kind: str) -> None:
        """An address that is handed over, as a pointer of that name."""
        self.addresses.append(name)
        self.add(f"{name} = tl.multiple_of(a_{name}.to({kind}), 16)")

    def tensors(self, *names: str) -> None:
        """Tensors of four dimensions, the last without gaps: an address and three strides each."""
        for name in names:
            self.pointer(name, f"tl.pointer_type({self.element})")
            self.numbers += [f"{name}_b", f"{name}_h", f"{name}_s"]

    def rows(self, *names: str) -> None:
        """f32 for every query of every head, without gaps."""
        for name in names:
            self.pointer(name, "tl.pointer_type(tl.float32)")

    def captured(self) -> None:
        """The tensors and sizes that functions read."""
        for name in self.spec.captured:
            self.pointer(name, pointer_to(self.spec.buffer(name)))
        self.numbers += [f"n_{s.name}" for s in self.spec.sizes]

    def list_pointers(self, side: str) -> None:
        """The lists of blocks along keys (`kv`) or queries (`q`)."""
        lists = self.spec.lists
        if lists is None:
            return
        for kind in ("part", "full") if lists.has_full else ("part",):
            for name in (f"{kind}_count", f"{kind}_block"):
                self.pointer(name, "tl.pointer_type(tl.int32)")
            self.numbers.append(f"{kind}_width")
        self.numbers.append("list_rows")

    # -- tiles in memory -------------------------------------------------------------------------
    def base(self, name: str, head: str, begin: str, batch: str = "b") -> str:
        """Where a head of a tensor begins, from some row on."""
        at = f"{name} + {batch}.to(tl.int64) * {name}_b + {head}.to(tl.int64) * {name}_h"
        return f"{at} + {begin}.to(tl.int64) * {name}_s" if begin else at

    def kv_batch(self) -> str:
        """The batch of keys and values."""
        return "(b * 0)" if self.spec.one_kv_batch else "b"

    def tile_at(self, base: str, stride: str, rows: str, width: int, turned: bool = False) -> str:
        """Pointers to a tile: a row for each of `rows`, or a column if it is turned."""
        column = self.column(width)
        if turned:
            return f"{base} + ({rows}[None, :] * {stride} + {column}[:, None])"
        return f"{base} + ({rows}[:, None] * {stride} + {column}[None, :])"

    def column(self, width: int) -> str:
        """The places along a head."""
        return f"tl.arange(0, {width})"

    def inside_of(
        self, width: int, dim: int, place: str, length: str, turned: bool = False
    ) -> str | None:
        """What holds for elements of a tile that exist; None if all of them do."""
        along, across = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        parts = []
        if not self.is_even:
            parts.append(f"({place} < {length}){along}")
        if width != dim:
            parts.append(f"({self.column(width)} < {dim}){across}")
        return " & ".join(parts) or None

    def load_tile(
        self,
        name: str,
        at: str,
        side: tuple[int, int],
        place: str,
        length: str,
        turned: bool = False,
    ) -> None:
        """Load a tile; what does not exist is zero."""
        mask = self.inside_of(*side, place, length, turned)
        rest = f", {mask}, other=0.0" if mask else ""
        self.add(f"{name} = tl.load({at}{rest})")

    def store_tile(
        self, at: str, value: str, side: tuple[int, int], place: str, length: str
    ) -> None:
        """Store a tile in the type of the tensors."""
        mask = self.inside_of(*side, place, length)
        self.add(f"tl.store({at}, ({value}).to({self.element}), {mask})")

    def load_row(self, name: str, pointer: str, place: str, length: str) -> None:
        """Load an f32 for each query of a tile; what does not exist is zero."""
        rest = "" if self.is_even else f", {place} < {length}, other=0.0"
        self.add(f"{name} = tl.load({pointer} + {place}{rest})")

    @property
    def qk_side(self) -> tuple[int, int]:
        """Padded and true width of queries and keys."""
        return self.qk_width, self.spec.qk_dim

    @property
    def v_side(self) -> tuple[int, int]:
        """Padded and true width of values."""
        return self.v_width, self.spec.v_dim

    def dot(self, a: str, b: str, onto: str | None = None) -> str:
        """A product of tiles in f32."""
        more = f", {onto}" if onto else ""
        exact = f', input_precision="{self.spec.precision}"' if self.is_f32 else ""
        return f"tl.dot({a}, {b}{more}{exact})"

    @property
    def is_f32(self) -> bool:
        """Whether products are of f32."""
        return self.element == "tl.float32"

    def narrow(self, value: str) -> str:
        """A value as products take it."""
        return value if self.is_f32 else f"{value}.to({self.element})"

    # -- functions -------------------------------------------------------------------------------
    def function(self, points: Points | None, prefix: str, fixed: frozenset[str]) -> PointLines:
        """A function; what can be computed before the walk is written now."""
        if points is None:
            return PointLines()
        made = write_points(points, prefix, fixed, is_short=not self.is_f32)
        self.add(*made.early)
        return made

    def whole(self, made: PointLines, shape: str) -> str:
        """The result of a function in the shape of a tile."""
        if "pair" in made.varies:
            return made.result
        return f"tl.broadcast_to({made.result}, {shape})"

    # -- walks ------------------------------------------------------------------------------------
    def walk(self, side: str, step: int, length: str, body: Callable[[bool], None]) -> None:
        """Steps along keys or queries; `body` is told whether every pair of its block counts.

        Blocks are listed: the number of the next one is loaded before it is needed.
        """
        lists = self.spec.lists
        if lists is None:
            head = (
                f"for i in tl.range(0, tl.cdiv({length}, {step}), num_stages={self.tile.stages}):"
            )
            with self.inside(head):
                self.add(f"start = tl.full([], 0, tl.int32) + i * {step}")
                body(self.spec.mask is None)
            return
        block = lists.block_kv if side == "kv" else lists.block_q
        times = block // step
        for kind in ("part", "full") if lists.has_full else ("part",):
            self.add(f"count = tl.load({kind}_count + listed)")
            self.add(f"blocks_at = {kind}_block + listed.to(tl.int64) * {kind}_width")
            self.add("block = tl.load(blocks_at, count > 0, other=0)")
            with self.inside(
                f"for i in tl.range(0, count * {times}, num_stages={self.tile.stages}):"
            ):
                part = f" + (i % {times}) * {step}" if times > 1 else ""
                self.add(f"start = block * {block}{part}")
                following = f"(i + 1) // {times}" if times > 1 else "i + 1"
                self.add(f"after = {following}")
                self.add("block = tl.load(blocks_at + after, after < count, other=0)")
                body(kind == "full" or self.spec.mask is None)

    def list_row(self, block: str) -> str:
        """Which row of the lists a block has."""
        lists = self.spec.lists
        assert lists is not None, "without lists nobody asks for their rows"
        row, heads = "", self.spec.heads
        if lists.per_batch:
            row = f"b * {heads} + h" if lists.per_head else "b"
        elif lists.per_head:
            row = "h"
        return f"({row}) * list_rows + {block}" if row else block

    def finish(self, name: str, about: str) -> FlexKernel:
        """The kernel."""
        given = [f"a_{a}" for a in self.addresses] + self.numbers
        body = "\n".join(self.lines.text)
        text = f'@triton.jit\ndef {name}({", ".join(given)}):\n    """{about}"""\n{body}\n'
        helpers = source_of(helpers_in(text))
        head = "import triton\nimport triton.language as tl\n"
        whole = "\n\n".join([p for p in (head, helpers, text) if p])
        return FlexKernel(name, whole, tuple(self.addresses), tuple(self.numbers), self.tile)
