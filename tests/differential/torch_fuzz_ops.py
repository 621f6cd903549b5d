"""The statements random torch functions are made of, as templates of source text.

    {x} {y} {z}   tensors: x any that fits the row, y and z ones that broadcast with x
    {i}           an index tensor of i64 with values below the size of dimension {d} of x
    {m}           a mask that broadcasts with x
    {d} {e}       dimensions of x (different ones); {dims} several dimensions
    {s} {w}       a Python number, a whole number
    {a} {b} {c}   a start, an end and a step along dimension {d}
    {t}           an element type;  {keep} True or False;  {n} the size of dimension {d}

The mark before a template says how exactly results can be compared:

    =   as exact as the operands: moves, selects, or is rounded the same way everywhere
    ~   depends on the order of sums or on a library function
    !   jumps: a small difference between operands can become a large one, so these must be exact
"""

from __future__ import annotations

from dataclasses import dataclass

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8")


@dataclass(frozen=True)
class Row:
    """One template: its mark, what x must be, and the text."""

    mark: str
    needs: str
    """Words: f float, i int, b bool, n number (no bool), 1+ 2+ 3+ dimensions, some (elements)."""
    text: str
    is_statement: bool = False
    """A statement that changes something, rather than an expression."""


def rows(needs: str, text: str, is_statement: bool = False) -> list[Row]:
    """One row per line: the mark, then the template."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return [Row(line[0], needs, line[1:].strip(), is_statement) for line in lines]


VIEWS = [
    *rows(
        "",
        """
        = {x}.unsqueeze({u})
        = {x}[None]
        = {x}.squeeze()
        = {x}.detach()
        = {x}.expand(2, *{x}.shape)
        = {x}.view(-1)
        = {x}.flatten()
        = {x}.reshape(-1)
        = {x}.reshape({shape})
        = {x}.view({shape})
        = {x}.ravel()
        = {x}.view_as({x})
        """,
    ),
    *rows(
        "1+",
        """
        = {x}.squeeze({d})
        = {x}.transpose({d}, {e})
        = {x}.movedim({d}, {e})
        = {x}.permute({perm})
        = {x}[..., None]
        = {x}.swapaxes({d}, {e}).unsqueeze(0)
        = {x}.unfold({d}, 1, 1)
        = {x}.chunk(2, {d})[0]
        = {x}.expand_as({x})
        """,
    ),
    *rows(
        "1+ some",
        """
        = {x}[{a}:]
        = {x}[..., {a}:{b}]
        = {x}[{a}:{b}:{c}]
        = {x}[..., ::{c}]
        = {x}.select({d}, {p})
        = {x}[{p0}]
        = {x}[..., -1]
        = {x}.narrow({d}, 0, 1)
        = {x}.unbind({d})[-1]
        = {x}.split(2, {d})[0]
        = {x}.tensor_split(2, {d})[-1]
        = {x}.as_strided({x}.shape, {x}.stride(), {x}.storage_offset())
        """,
    ),
    *rows(
        "2+",
        """
        = {x}.diagonal(0, {d}, {e})
        = {x}.diagonal(1, {d}, {e})
        = {x}.diagonal(-1, {d}, {e})
        = {x}.mT
        = {x}.flatten(0, 1)
        = {x}.flatten(-2)
        = {x}[:, {a}:]
        = {x}[:, ::{c}]
        """,
    ),
]

COPIES = [
    *rows(
        "",
        """
        = {x}.clone()
        = {x}.contiguous()
        = {x}.repeat(2, *[1 for _ in {x}.shape])
        = torch.stack([{x}, {x}], {u})
        = torch.zeros_like({x})
        = torch.ones_like({x})
        = torch.full_like({x}, {w})
        = {x}.new_zeros({x}.shape)
        = torch.broadcast_to({x}, (2, *{x}.shape))
        = {x}.to(torch.{t})
        ! {x}.to(torch.{t})
        = torch.stack([{x}, {y}.expand_as({x}).to({x}.dtype)])
        = {x}.new_full((2, 3), {w})
        """,
    ),
    *rows(
        "1+",
        """
        = {x}.flip({d})
        = {x}.flip({dims})
        = {x}.roll(1, {d})
        = {x}.roll(({w}, -1), ({d}, {e}))
        = torch.cat([{x}, {x}], {d})
        = torch.cat([{x}, {x}.flip({d}), {x}[{a}:]], {d})
        = torch.hstack([{x}, {x}])
        = {x}.repeat_interleave(2, {d})
        = {x}.tile(2)
        = F.pad({x}, (1, 0), value={w})
        = F.pad({x}, (0, 2))
        = torch.arange({x}.shape[{d}])
        = torch.arange({x}.shape[{d}]) * 2 + {w}
        = torch.ones({x}.shape[{d}], 2, dtype=torch.{t})
        = torch.full(({x}.shape[{d}],), {s})
        = torch.cat([{x}, {x}.to(torch.{t})], {d})
        """,
    ),
    *rows(
        "2+",
        """
        = torch.tril({x})
        = torch.triu({x}, 1)
        = torch.tril({x}, -1)
        = F.pad({x}, (1, 1, 0, 2), value={w})
        = F.pad({x}, (-1, 1, 2, 0))
        = {x}.rot90(1, ({d}, {e}))
        = torch.vstack([{x}, {x}])
        = torch.eye({x}.shape[{d}])
        = torch.diag_embed({x})
        = {x}.contiguous().view({x}.shape[0], -1)
        """,
    ),
    *rows("1+ some", "= F.pad({x}.unsqueeze(0), (0, 1), mode='replicate')"),
    *rows(
        "f 2+ some",
        """
        = F.pad({x}.reshape(1, 1, -1), (1, 2), mode='replicate')
        = F.pad({x}.reshape(1, 1, -1), (1, 1), mode='circular')
        = F.interpolate({x}.reshape(1, 1, -1), scale_factor=2.0, mode='nearest')
        ~ F.interpolate({x}.reshape(1, 1, -1), scale_factor=2.0, mode='linear')
        = F.max_pool1d({x}.reshape(1, 1, -1), 2, 1, 1)
        ~ F.avg_pool1d({x}.reshape(1, 1, -1), 3, 2, 1)
        """,
    ),
]

UNARY = [
    *rows(
        "n",
        """
        = -{x}
        = {x}.abs()
        = {x}.relu()
        = {x}.square()
        ! {x}.sign()
        = {x}.clamp(-{k}, {k})
        = {x}.clamp(min={w})
        = {x} + {s}
        = {x} * {s}
        = {s} - {x}
        = {x} - {w}
        = {x} ** 2
        = {x} * 2 + 1
        = {x} / {k}
        ! {x} // {k}
        ! {x} % {k}
        ! torch.fmod({x}, {k})
        ! {x}.div({k}, rounding_mode='trunc')
        ! {x} == {w}
        ! {x} > {w}
        ! {x} <= {s}
        ! {x}.logical_not()
        = F.leaky_relu({x}.float(), 0.1)
        = torch.where({x} == {x}, {x}, {w})
        """,
    ),
    *rows(
        "f",
        """
        ! {x}.floor()
        ! {x}.ceil()
        ! {x}.round()
        ! {x}.trunc()
        ! {x}.frac()
        ~ {x}.exp()
        ~ {x}.sin()
        ~ {x}.cos()
        ~ {x}.tanh()
        ~ {x}.sigmoid()
        ~ {x}.abs().sqrt()
        ~ ({x}.abs() + 0.5).rsqrt()
        ~ ({x}.abs() + 0.5).log()
        ~ {x}.erf()
        ~ {x}.abs().log1p()
        ~ {x}.clamp(max=2).expm1()
        ~ {x}.atan()
        ~ F.gelu({x})
        ~ F.silu({x})
        ~ F.softplus({x})
        ~ F.elu({x})
        ~ F.mish({x})
        = F.hardtanh({x})
        ~ F.hardswish({x})
        ~ F.logsigmoid({x})
        ~ 1 / ({x}.abs() + 0.5)
        ~ {x} ** 3
        ~ {x}.abs() ** 1.5
        = {x}.nan_to_num()
        ! {x}.isnan()
        ! {x}.signbit()
        """,
    ),
    *rows(
        "i",
        """
        = ~{x}
        = {x} & 3
        = {x} | 1
        = {x} ^ 5
        = {x} << 1
        = {x} >> 1
        ~ {x}.float().sin()
        ~ {x} / 3
        ~ {x}.sqrt().nan_to_num()
        """,
    ),
    *rows(
        "b",
        """
        = ~{x}
        = {x}.logical_not()
        = {x}.float() * 2
        = {x} + {x}
        = {x} * {w}
        = {x} + 1.5
        = {x} ^ True
        """,
    ),
]

BINARY = [
    *rows(
        "",
        """
        = {x} * {y}
        = {x} + {y}
        ! {x} == {y}
        ! {x} < {y}
        ! {x} >= {y}
        ! {x} != {y}
        ! torch.logical_and({x}, {y})
        ! torch.logical_xor({x}, {y})
        = torch.where({m}, {x}, {y})
        = torch.where({m}, {x}, {w})
        = torch.where({m}, {s}, {x})
        = {x}.masked_fill({m}, {w})
        = torch.maximum({x}, {y})
        = torch.minimum({x}, {y})
        """,
    ),
    *rows(
        "n",
        """
        = {x} - {y} * 2
        = torch.add({x}, {y}, alpha=2)
        ~ torch.sub({x}, {y}.to({x}.dtype), alpha=3)
        ~ {x} / ({y}.abs() + 1)
        ! {x} // ({y}.abs() + 1)
        ! {x} % ({y}.abs() + 1)
        ! torch.fmod({x}, {y}.abs() + 1)
        = {x}.clamp(min={y}.to({x}.dtype))
        """,
    ),
    *rows(
        "f",
        """
        ~ torch.atan2({x}, {y})
        ~ torch.hypot({x}, {y}.to({x}.dtype))
        = torch.copysign({x}, {y})
        = torch.fmax({x}, {y})
        = torch.fmin({x}, {y})
        ~ torch.lerp({x}, {y}.to({x}.dtype), 0.25)
        ~ torch.addcmul({x}, {y}.to({x}.dtype), {z}.to({x}.dtype), value=2)
        ~ torch.addcdiv({x}, {y}.to({x}.dtype), {z}.to({x}.dtype).abs() + 1, value=2)
        ~ torch.logaddexp({x}, {y}.to({x}.dtype))
        ~ torch.xlogy({x}, {y}.abs() + 1)
        ~ F.mse_loss({x}, {y}.to({x}.dtype).expand_as({x}))
        ~ F.smooth_l1_loss({x}, {y}.to({x}.dtype).expand_as({x}), reduction='none')
        """,
    ),
    *rows("i", "= {x} & {y}.to(torch.int64)\n= {x} ^ {y}.bool()\n= {x} | {y}.to(torch.uint8)"),
]

REDUCTIONS = [
    *rows(
        "",
        """
        ~ {x}.sum()
        ~ {x}.sum(dtype=torch.float64)
        ! {x}.any()
        ! {x}.all()
        ! {x}.count_nonzero()
        """,
    ),
    *rows(
        "1+",
        """
        ~ {x}.sum({d})
        ~ {x}.sum({dims}, keepdim={keep})
        ~ {x}.sum({d}, keepdim=True, dtype=torch.float32)
        ! {x}.any({d})
        ! {x}.all({d}, keepdim={keep})
        ! {x}.count_nonzero({d})
        ~ {x}.cumsum({d})
        ~ {x}.clamp(-1, 1).cumprod({d})
        ~ {x}.float().mean({d}, keepdim={keep})
        ~ {x}.float().softmax({d})
        """,
    ),
    *rows(
        "n some",
        """
        = {x}.amax()
        = {x}.max()
        = {x}.min()
        ! {x}.argmax()
        ~ {x}.clamp(-1, 1).prod()
        """,
    ),
    *rows(
        "n 1+ some",
        """
        = {x}.amax({d})
        = {x}.amin({dims}, keepdim={keep})
        = {x}.max({d}, keepdim={keep}).values
        ! {x}.max({d}).indices
        ! {x}.argmin({d}, keepdim={keep})
        ~ {x}.clamp(-1, 1).prod({d})
        ! {x}.cummax({d}).values
        = torch.sort({x}, dim={d}, stable=True).values
        ! torch.argsort({x}, dim={d}, stable=True)
        ! torch.sort({x}, dim={d}, stable=True, descending=True).indices
        = {x}.detach().topk(1, {d}).values
        = torch.diff({x}, dim={d})
        = {x}.contiguous().median({d}).values
        = {x}.kthvalue(1, {d}).values
        = {x}.aminmax(dim={d}, keepdim={keep}).max
        """,
    ),
    *rows(
        "f 1+",
        """
        ~ {x}.mean()
        ~ {x}.mean({dims}, keepdim={keep})
        ~ {x}.softmax({d})
        ~ {x}.log_softmax({d})
        ~ {x}.logsumexp({dims}, keepdim={keep})
        ~ {x}.logcumsumexp({d})
        ~ {x}.norm(dim={d})
        ~ {x}.norm(1, dim={d}, keepdim={keep})
        ~ torch.linalg.vector_norm({x}, float('inf'), dim={d})
        ~ F.normalize({x} + 3, dim={d})
        ~ {x}.nansum({d})
        ~ F.softmin({x}, {d})
        """,
    ),
    *rows(
        "f 1+ two",
        """
        ~ {x}.var({d}, keepdim={keep})
        ~ {x}.std({d}, correction=0)
        ~ torch.var_mean({x}, {d}, keepdim={keep})[0]
        ~ F.layer_norm({x}, {x}.shape[-1:])
        ~ F.rms_norm({x}, {x}.shape[-1:])
        ~ F.normalize({x}, p=1.0, dim={d}, eps=0.1)
        """,
    ),
]

INDEXING = [
    *rows(
        "1+ some",
        """
        = {x}[{i}] if {d} == 0 else {x}.index_select({d}, {i})
        = {x}.index_select({d}, {i})
        = {x}.take({i})
        = {x}.gather({d}, {g})
        = torch.take_along_dim({x}, {g}, {d})
        = {x}.index_fill({d}, {i}, {w})
        = {x}.scatter({d}, {g}, {w})
        ~ {x}.scatter_add({d}, {g}, {x})
        ~ {x}.index_add({d}, {i}, {x}.index_select({d}, {i}))
        = {x}.select_scatter({x}.select({d}, 0), {d}, {p})
        = {x}.slice_scatter(torch.zeros_like({x}.narrow({d}, 0, 1)), {d}, 0, 1)
        ~ {x}.index_put(({i0},), torch.ones_like({x}[0]), accumulate=True)
        = {x}.masked_fill({m}, {w})
        = {x}.masked_scatter({m}.expand_as({x}), torch.zeros_like({x}))
        = {x}.index_copy({d}, {u1}, {x}.index_select({d}, {u1}))
        """,
    ),
    *rows(
        "n 1+ some",
        """
        = {x}.scatter_reduce({d}, {g}, {x}, 'amax')
        ~ {x}.scatter_reduce({d}, {g}, {x}, 'sum', include_self=False)
        = {x}.float().scatter_reduce({d}, {g}, {x}.float(), 'amin', include_self=False)
        ! torch.bucketize({x}, torch.tensor([-1.0, 0.0, 0.5, 2.0]))
        ! torch.searchsorted(torch.tensor([-1.0, 0.0, 0.5, 2.0]), {x}.float(), right=True)
        """,
    ),
    *rows(
        "2+ some",
        """
        = {x}[{i0}, 0]
        = {x}[:, {i1}]
        = {x}[{i0}[:, None], {i1}[None, :]]
        = {x}[{i0}, ..., 0]
        = {x}.diagonal_scatter(torch.zeros_like({x}.diagonal(0, {d}, {e})), 0, {d}, {e})
        = F.embedding({i0}, {x}.reshape({x}.shape[0], -1))
        """,
    ),
]

PRODUCTS = rows(
    "f 1+",
    """
    ~ {x}.flatten() @ {x}.flatten()
    ~ torch.outer({x}.flatten()[:5], {x}.flatten()[:3])
    ~ F.linear({x}, torch.ones(2, {x}.shape[-1], dtype={x}.dtype))
    ~ torch.einsum('...i,...i->...', {x}, {x})
    ~ {x}.reshape(1, -1) @ {x}.reshape(-1, 1)
    ~ ({x}.unsqueeze(-1) @ {x}.unsqueeze(-2))
    """,
)

CHANGES = [
    *rows(
        "",
        """
        = {x}.zero_()
        = {x}.fill_({w})
        = {x}.copy_({y})
        = {x}.view(-1)[:1] = {w}
        = {x}.masked_fill_({m}, {w})
        = {x}.unsqueeze_(0)
        """,
        True,
    ),
    *rows(
        "n",
        """
        = {x}.add_({y})
        = {x}.mul_({w})
        = {x}.sub_({w})
        = {x}.neg_()
        = {x}.relu_()
        = {x}.abs_()
        = {x}.clamp_(-1, 1)
        = {x} += {w}
        = {x} *= {y}
        """,
        True,
    ),
    *rows(
        "1+ some",
        """
        = {x}[0] = {w}
        = {x}[{p0}] = {x}[-1]
        = {x}[{a}:] = {w}
        = {x}[..., ::{c}] = {w}
        = {x}.select({d}, {p}).fill_({w})
        = {x}[{m1}] = {w}
        = {x}[{i0}] = {w}
        = {x}.transpose({d}, {e}).copy_({y})
        = {x}.scatter_({d}, {g}, {w})
        = {x}.narrow({d}, 0, 1).zero_()
        = {x}.transpose_({d}, {e})
        = {x}.index_fill_({d}, {i}, {w})
        = {x}.squeeze_({d})
        """,
        True,
    ),
    *rows(
        "n 1+ some",
        """
        = {x}[{a}:] += 1
        = {x}[{a}:{b}:{c}] *= 2
        ~ {x}[..., 0] -= {x}[..., -1]
        = {x}.select({d}, {p}).add_(1)
        ~ {x}.index_add_({d}, {i}, {x}.index_select({d}, {i}))
        ~ {x}.cumsum_({d})
        = {x}.view(-1)[::2].add_(1)
        """,
        True,
    ),
    *rows(
        "f",
        """
        ~ {x}.sigmoid_()
        ~ {x}.addcmul_({y}.to({x}.dtype), {z}.to({x}.dtype), value=0.5)
        ~ {x}.exp_()
        ~ {x}.div_({k})
        ! {x}.floor_()
        """,
        True,
    ),
]

GROUPS: tuple[tuple[int, list[Row]], ...] = (
    (22, VIEWS),
    (12, COPIES),
    (14, UNARY),
    (16, BINARY),
    (14, REDUCTIONS),
    (9, INDEXING),
    (2, PRODUCTS),
    (11, CHANGES),
)
"""Every kind of statement with its weight."""
