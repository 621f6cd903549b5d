"""Attention forward: rows of scores are walked once, their maximum and sum kept along the way."""

from __future__ import annotations

from treadle.codegen.triton.flex.points import PointLines
from treadle.codegen.triton.flex.spec import FlexKernel, FlexSpec, Tile
from treadle.codegen.triton.flex.writer import LOG2_E, MINUS_INFINITY, FlexWriter

ROW = frozenset({"b", "h", "m"})
"""What does not change while keys are walked."""


def write_forward(spec: FlexSpec, tile: Tile, is_even: bool, wants_top: bool) -> FlexKernel:
    """The kernel for out and the logarithm of sums, of base 2; with `wants_top` also maxima.

    A program has a tile of queries of one head. The last ones come first: where a mask lets
    queries look at what was before them, theirs is the longest way.
    """
    w = FlexWriter(spec, tile, is_even)
    w.tensors("q", "k", "v", "out")
    w.rows("lse", *(["top_out"] if wants_top else []))
    w.list_pointers("kv")
    w.captured()
    w.numbers += ["q_len", "kv_len"]
    begin_rows(w)
    w.load_tile("q_tile", w.tile_at(w.base("q", "h", "begin"), "q_s", "rows", w.qk_width),
                w.qk_side, "at", "q_len")  # fmt: skip
    w.add(
        f"k_at = {w.tile_at(w.base('k', 'hk', '', w.kv_batch()), 'k_s', 'cols', w.qk_width, True)}",
        f"v_at = {w.tile_at(w.base('v', 'hk', '', w.kv_batch()), 'v_s', 'cols', w.v_width)}",
        f"top = tl.full([{tile.m}], {MINUS_INFINITY}, tl.float32)",
        f"total = tl.zeros([{tile.m}], tl.float32)",
        f"acc = tl.zeros([{tile.m}, {w.v_width}], tl.float32)",
    )
    score = w.function(spec.score, "sc", ROW)
    mask = w.function(spec.mask, "mk", ROW)
    w.walk("kv", tile.n, "kv_len", lambda all_count: _step(w, score, None if all_count else mask))
    _end(w, wants_top)
    return w.finish("flex_forward", "Attention of a tile of queries to all keys.")


def begin_rows(w: FlexWriter, of_lists: bool = True) -> None:
    """Which queries a program has, and the row of the lists that speaks of them."""
    spec, tile = w.spec, w.tile
    w.add(
        f"blocks = tl.cdiv(q_len, {tile.m})",
        "pid = tl.program_id(0)",
        f"begin = (blocks - 1 - pid % blocks) * {tile.m}",
        "head = pid // blocks",
        f"b = head // {spec.heads}",
        f"h = head % {spec.heads}",
        f"hk = h // {spec.group}",
        f"rows = tl.arange(0, {tile.m})",
        "at = begin + rows",
        f"cols = tl.arange(0, {tile.n})",
        f"m = {'at' if w.is_even else 'tl.minimum(at, q_len - 1)'}[:, None]",
    )
    if of_lists and spec.lists is not None:
        w.add(f"listed = {w.list_row(f'begin // {spec.lists.block_q}')}")


def scores(w: FlexWriter, score: PointLines, mask: PointLines | None, shape: str) -> float:
    """Scores as functions leave them in `s`; gives by what they are multiplied for base 2.

    `s` holds the products. Keys that do not exist count nothing.
    """
    spec, factor = w.spec, LOG2_E
    if spec.score is not None:
        w.add(f"score = s * {spec.scale!r}", *score.late, f"s = {w.whole(score, shape)}")
    elif spec.scale > 0:
        factor = spec.scale * LOG2_E
    else:
        w.add(f"s = s * {spec.scale!r}")
    if mask is not None and spec.mask is not None:
        w.add(*mask.late, f"s = tl.where({mask.result}, s, {MINUS_INFINITY})")
    return factor


def next_keys(w: FlexWriter) -> None:
    """The keys of a step, as functions see them."""
    w.add("places = start + cols")
    w.add(f"n = {'places' if w.is_even else 'tl.minimum(places, kv_len - 1)'}[None, :]")


def _step(w: FlexWriter, score: PointLines, mask: PointLines | None) -> None:
    """One tile of keys."""
    next_keys(w)
    w.load_tile("k_tile", "k_at + start.to(tl.int64) * k_s", w.qk_side, "places", "kv_len", True)
    w.add(f"s = {w.dot('q_tile', 'k_tile')}")
    factor = scores(w, score, mask, f"[{w.tile.m}, {w.tile.n}]")
    if not w.is_even:
        w.add(f"s = tl.where((places < kv_len)[None, :], s, {MINUS_INFINITY})")
    w.add(
        f"higher = tl.maximum(top, tl.max(s, 1) * {factor!r})",
        'base = tl.where(tl.abs(higher) == float("inf"), 0.0, higher)',
        f"p = tl.exp2(s * {factor!r} - base[:, None])",
        "less = tl.exp2(top - base)",
        "total = total * less + tl.sum(p, 1)",
        "acc = acc * less[:, None]",
        "top = higher",
    )
    w.load_tile("v_tile", "v_at + start.to(tl.int64) * v_s", w.v_side, "places", "kv_len")
    w.add(f"acc = {w.dot(w.narrow('p'), 'v_tile', 'acc')}")


def _end(w: FlexWriter, wants_top: bool) -> None:
    """What is left of a tile of queries; a row that looks at nothing is zero."""
    w.add(
        'base = tl.where(tl.abs(top) == float("inf"), 0.0, top)',
        "acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]",
    )
    where = w.tile_at(w.base("out", "h", "begin"), "out_s", "rows", w.v_width)
    w.store_tile(where, "acc", w.v_side, "at", "q_len")
    mask = "None" if w.is_even else "at < q_len"
    w.add(f"tl.store(lse + head.to(tl.int64) * q_len + at, tl.log2(total) + base, {mask})")
    if wants_top:
        w.add("top = tl.where(total == total, top, total)")
        w.add(f"tl.store(top_out + head.to(tl.int64) * q_len + at, top, {mask})")
