"""Attention backward: one kernel for queries, which walks keys, and one for keys and values, which
walks queries. Both compute scores again, and what they are worth from the sums of the forward.
"""

from __future__ import annotations

from treadle.codegen.triton.flex.forward import ROW, begin_rows, next_keys, scores
from treadle.codegen.triton.flex.points import PointLines
from treadle.codegen.triton.flex.spec import FlexKernel, FlexSpec, Tile
from treadle.codegen.triton.flex.writer import LOG2_E, MINUS_INFINITY, FlexWriter

COLUMN = frozenset({"b", "h", "n"})
"""What does not change while the queries of a head are walked."""
DELTA_TILE = Tile(64, 16, 4, 1)


class _Functions:
    """The functions of a backward kernel, with what was written of them before the walk."""

    def __init__(self, w: FlexWriter, fixed: frozenset[str]) -> None:
        self.score: PointLines = w.function(w.spec.score, "sc", fixed)
        self.mask: PointLines = w.function(w.spec.mask, "mk", fixed)
        self.joint: PointLines = w.function(w.spec.joint, "jt", fixed)


def write_delta(spec: FlexSpec, is_even: bool, has_lse_slope: bool) -> FlexKernel:
    """The kernel for what every score of a row is pulled down by: the row's slope along itself."""
    w = FlexWriter(spec, DELTA_TILE, is_even)
    w.tensors("out", "slope")
    w.rows("delta", *(["lse_slope"] if has_lse_slope else []))
    w.numbers.append("q_len")
    begin_rows(w, of_lists=False)
    for name in ("out", "slope"):
        where = w.tile_at(w.base(name, "h", "begin"), f"{name}_s", "rows", w.v_width)
        w.load_tile(f"{name}_tile", where, w.v_side, "at", "q_len")
    w.add("row = tl.sum(out_tile.to(tl.float32) * slope_tile.to(tl.float32), 1)")
    if has_lse_slope:
        w.load_row("more", "lse_slope + head.to(tl.int64) * q_len", "at", "q_len")
        w.add(f"row = row - more * {LOG2_E!r}")
    mask = "None" if is_even else "at < q_len"
    w.add(f"tl.store(delta + head.to(tl.int64) * q_len + at, row, {mask})")
    return w.finish("flex_delta", "What every score of a row is pulled down by.")


def write_queries(spec: FlexSpec, tile: Tile, is_even: bool) -> FlexKernel:
    """The kernel for gradients of queries: a program has a tile of them, and walks keys."""
    w = FlexWriter(spec, tile, is_even)
    w.tensors("q", "k", "v", "slope", "dq")
    w.rows("lse", "delta")
    w.list_pointers("kv")
    w.captured()
    w.numbers += ["q_len", "kv_len"]
    begin_rows(w)
    for name, side in (("q", w.qk_side), ("slope", w.v_side)):
        where = w.tile_at(w.base(name, "h", "begin"), f"{name}_s", "rows", side[0])
        w.load_tile(f"{name}_tile", where, side, "at", "q_len")
    w.load_row("top", "lse + head.to(tl.int64) * q_len", "at", "q_len")
    w.load_row("pull", "delta + head.to(tl.int64) * q_len", "at", "q_len")
    w.add(
        'base = tl.where(tl.abs(top) == float("inf"), 0.0, top)',
        f"k_at = {w.tile_at(w.base('k', 'hk', ''), 'k_s', 'cols', w.qk_width)}",
        f"v_at = {w.tile_at(w.base('v', 'hk', ''), 'v_s', 'cols', w.v_width)}",
        f"acc = tl.zeros([{tile.m}, {w.qk_width}], tl.float32)",
    )
    made = _Functions(w, ROW)
    w.walk("kv", tile.n, "kv_len", lambda all_count: _along_keys(w, made, all_count))
    where = w.tile_at(w.base("dq", "h", "begin"), "dq_s", "rows", w.qk_width)
    w.store_tile(where, f"acc * {_late_scale(w)!r}", w.qk_side, "at", "q_len")
    return w.finish("flex_queries", "Gradients of a tile of queries.")


def _along_keys(w: FlexWriter, made: _Functions, all_count: bool) -> None:
    """One tile of keys."""
    next_keys(w)
    w.load_tile("k_tile", "k_at + start.to(tl.int64) * k_s", w.qk_side, "places", "kv_len")
    w.load_tile("v_tile", "v_at + start.to(tl.int64) * v_s", w.v_side, "places", "kv_len")
    w.add(f"s = {w.dot('q_tile', 'tl.trans(k_tile)')}")
    exist = None if w.is_even else "(places < kv_len)[None, :]"
    shape = f"[{w.tile.m}, {w.tile.n}]"
    _worth(w, made, all_count, exist, shape, "base[:, None]")
    w.add(f"dp = {w.dot('slope_tile', 'tl.trans(v_tile)')}")
    w.add("grad = p * (dp - pull[:, None])")
    slope = _through(w, made, all_count, exist, shape)
    w.add(f"acc = {w.dot(w.narrow(slope), 'k_tile', 'acc')}")


def write_keys(spec: FlexSpec, tile: Tile, is_even: bool) -> FlexKernel:
    """The kernel for gradients of keys and values: a program has a tile, and walks queries.

    It walks those of every query head that looks at its head. Keys that come first come first:
    where a mask lets queries look at what was before them, they are looked at most.
    """
    w = FlexWriter(spec, tile, is_even)
    w.tensors("q", "k", "v", "slope", "dk", "dv")
    w.rows("lse", "delta")
    w.list_pointers("q")
    w.captured()
    w.numbers += ["q_len", "kv_len"]
    _begin_columns(w)
    for name, side in (("k", w.qk_side), ("v", w.v_side)):
        where = w.tile_at(w.base(name, "hk", "begin"), f"{name}_s", "cols", side[0])
        w.load_tile(f"{name}_tile", where, side, "at", "kv_len")
        w.add(f"d{name}_acc = tl.zeros([{tile.n}, {side[0]}], tl.float32)")
    if spec.group > 1:
        with w.inside(f"for g in tl.range(0, {spec.group}, num_stages=1):"):
            w.add(f"h = hk * {spec.group} + g")
            _one_head(w)
    else:
        w.add("h = hk")
        _one_head(w)
    for name, side, scale in (("k", w.qk_side, _late_scale(w)), ("v", w.v_side, 1.0)):
        where = w.tile_at(w.base(f"d{name}", "hk", "begin"), f"d{name}_s", "cols", side[0])
        value = f"d{name}_acc" if scale == 1.0 else f"d{name}_acc * {scale!r}"
        w.store_tile(where, value, side, "at", "kv_len")
    return w.finish("flex_keys", "Gradients of a tile of keys and values.")


def _begin_columns(w: FlexWriter) -> None:
    """Which keys a program has."""
    heads = w.spec.heads // w.spec.group
    w.add(
        f"blocks = tl.cdiv(kv_len, {w.tile.n})",
        "pid = tl.program_id(0)",
        f"begin = (pid % blocks) * {w.tile.n}",
        "head = pid // blocks",
        f"b = head // {heads}",
        f"hk = head % {heads}",
        f"cols = tl.arange(0, {w.tile.n})",
        "at = begin + cols",
        f"rows = tl.arange(0, {w.tile.m})",
        f"n = {'at' if w.is_even else 'tl.minimum(at, kv_len - 1)'}[:, None]",
    )


def _one_head(w: FlexWriter) -> None:
    """The queries of one head."""
    if w.spec.lists is not None:
        w.add(f"listed = {w.list_row(f'begin // {w.spec.lists.block_kv}')}")
    w.add(
        f"row_of = (b * {w.spec.heads} + h).to(tl.int64) * q_len",
        f"q_at = {w.tile_at(w.base('q', 'h', ''), 'q_s', 'rows', w.qk_width)}",
        f"slope_at = {w.tile_at(w.base('slope', 'h', ''), 'slope_s', 'rows', w.v_width)}",
    )
    made = _Functions(w, COLUMN)
    w.walk("q", w.tile.m, "q_len", lambda all_count: _along_queries(w, made, all_count))


def _along_queries(w: FlexWriter, made: _Functions, all_count: bool) -> None:
    """One tile of queries; rows and columns of scores are exchanged."""
    w.add("places = start + rows")
    w.add(f"m = {'places' if w.is_even else 'tl.minimum(places, q_len - 1)'}[None, :]")
    w.load_tile("q_tile", "q_at + start.to(tl.int64) * q_s", w.qk_side, "places", "q_len")
    slopes = "slope_at + start.to(tl.int64) * slope_s"
    w.load_tile("slope_tile", slopes, w.v_side, "places", "q_len")
    w.load_row("top", "lse + row_of", "places", "q_len")
    w.load_row("pull", "delta + row_of", "places", "q_len")
    w.add(
        'base = tl.where(tl.abs(top) == float("inf"), 0.0, top)',
        f"s = {w.dot('k_tile', 'tl.trans(q_tile)')}",
    )
    exist = None if w.is_even else "(places < q_len)[None, :]"
    shape = f"[{w.tile.n}, {w.tile.m}]"
    _worth(w, made, all_count, exist, shape, "base[None, :]")
    w.add(
        f"dv_acc = {w.dot(w.narrow('p'), 'slope_tile', 'dv_acc')}",
        f"dp = {w.dot('v_tile', 'tl.trans(slope_tile)')}",
        "grad = p * (dp - pull[None, :])",
    )
    slope = _through(w, made, all_count, exist, shape)
    w.add(f"dk_acc = {w.dot(w.narrow(slope), 'q_tile', 'dk_acc')}")


def _worth(
    w: FlexWriter, made: _Functions, all_count: bool, exist: str | None, shape: str, base: str
) -> None:
    """What each pair was worth in the forward, in `p`."""
    factor = scores(w, made.score, None if all_count else made.mask, shape)
    if exist is not None:
        w.add(f"s = tl.where({exist}, s, {MINUS_INFINITY})")
    w.add(f"p = tl.exp2(s * {factor!r} - {base})")


def _through(
    w: FlexWriter, made: _Functions, all_count: bool, exist: str | None, shape: str
) -> str:
    """The name of the gradient of scores before the score function, of those that count."""
    if w.spec.joint is not None:
        w.add(*made.joint.late, f"grad = {w.whole(made.joint, shape)}")
        if not all_count and w.spec.mask is not None:
            w.add(f"grad = tl.where({made.mask.result}, grad, 0.0)")
        if exist is not None:
            w.add(f"grad = tl.where({exist}, grad, 0.0)")
    if _scales_early(w):
        w.add(f"grad = grad * {w.spec.scale!r}")
    return "grad"


def _scales_early(w: FlexWriter) -> bool:
    """Whether gradients are scaled before they are rounded: f16 ends soon, and eager does so."""
    return w.element == "tl.float16"


def _late_scale(w: FlexWriter) -> float:
    return 1.0 if _scales_early(w) else w.spec.scale
