"""An order of small ints under rises and falls: edit it anywhere, know its highest point at once.

Each item lifts a level by its rise and then lowers it by its fall. The peak is the highest level::

             b
           +---+
       a   |   |          c        a: rise 2, fall 0
     +-----+   |        +---+      b: rise 2, fall 3
     |         +--------+   |      c: rise 1, fall 2     peak 4, first reached at b
    -+                      +---

Items stand in leaves of at most 32, leaves in blocks of at most 32, and so on: a B+ tree without
keys. A block is to its parent what an item is to its leaf: one rise (to its highest level) and one
fall (from there to its last level). Kept as ``[rise, -fall, rise, -fall, ...]`` one rule folds
every layer, and it runs at the speed of ``itertools.accumulate``::

    rise = max(prefix sums)        -fall = last prefix sum - rise

Order is asked far more often than it is changed, so each item also carries a label that grows
along the order. A new item gets the middle of its neighbours' labels; when that gap is used up,
the smallest surrounding block that has room is labelled afresh. Fresh labels keep the order: who
sorted items by label still has them sorted.

Costs for n items: ``add``, ``remove``, ``insert_after`` a scan of one leaf (amortised over splits
and relabelling), ``peak`` and ``rank`` one scan per layer (4 layers for 100,000 items), comparing
two labels O(1). Leaves are dropped when empty but never rebalanced: the depth then depends on the
logarithm of the number of insertions, which is enough (Sen and Tarjan, "Deletion without
rebalancing in multiway search trees").
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from math import isqrt

NOWHERE = -1
"""The place before the first item, where an item to stand behind is asked for."""

_CAPACITY = 32
_FILL = 24  # of a fresh block: leaves room for some insertions before the first split
_GAP = 1 << 32  # between fresh labels where nothing confines them
_NARROW = 1 << 8  # a labelling with less room than this between items is not worth its scan


class _Block:
    """A run of the order: items if it is a leaf, else smaller blocks; two deltas for each."""

    __slots__ = (
        "blocks",
        "count",
        "deltas",
        "height",
        "items",
        "left",
        "parent",
        "right",
        "slot",
        "top",
    )

    def __init__(self) -> None:
        self.items: list[int] = []
        self.blocks: list[_Block] = []
        self.deltas: list[int] = []
        self.count = 0
        self.height = 0  # the highest level inside, when last folded
        self.top = 0  # the first item or block that reaches it
        self.parent: _Block | None = None
        self.slot = 0  # its place in the parent
        # Neighbouring leaves; branches do not use them.
        self.left: _Block | None = None
        self.right: _Block | None = None

    def adopt(self, blocks: list["_Block"]) -> None:
        """Make these the children, in this order; deltas stay the caller's business."""
        self.blocks = blocks
        for slot, block in enumerate(blocks):
            block.parent = self
            block.slot = slot

    def fold(self) -> tuple[int, int]:
        """Find the peak of the block; return the deltas that stand for it in its parent."""
        levels = list(accumulate(self.deltas))
        self.height = height = max(levels, default=0)
        # No fall is negative, so a level is first reached by a rise, at an even place.
        self.top = levels.index(height) // 2 if levels else 0
        return height, levels[-1] - height if levels else 0


class WeightedSequence:
    """Small ints in an order that is cheap to change, with the peak of their rises and falls."""

    __slots__ = ("_dirty", "_first", "_home", "_root", "label")

    def __init__(self, items: Sequence[int], rises: Sequence[int], falls: Sequence[int]) -> None:
        """Take ints below n, each at most once; ``rises`` and ``falls`` are n by item."""
        self.label: list[int] = [0] * len(rises)
        self._home: list[_Block] = []
        self._dirty: dict[_Block, None] = {}
        leaves = self._build_leaves(items, rises, falls)
        self._first = leaves[0]
        self._root = _stack(leaves)

    def _build_leaves(
        self, items: Sequence[int], rises: Sequence[int], falls: Sequence[int]
    ) -> list[_Block]:
        leaves = [_Block()]
        self._home = [leaves[0]] * len(rises)
        for start in range(0, len(items), _FILL):
            leaf = leaves[0] if start == 0 else _Block()
            leaf.items = list(items[start : start + _FILL])
            leaf.count = len(leaf.items)
            for place, item in enumerate(leaf.items, start):
                self.label[item] = place * _GAP
                self._home[item] = leaf
                leaf.deltas += (rises[item], -falls[item])
            if start:
                leaf.left = leaves[-1]
                leaves[-1].right = leaf
                leaves.append(leaf)
        return leaves

    # -- asking ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._root.count

    def __iter__(self) -> Iterator[int]:
        for leaf in self._leaves(self._root):
            yield from leaf.items

    def weighted(self) -> Iterator[tuple[int, int, int]]:
        """Yield every item with its rise and fall, in order."""
        for leaf in self._leaves(self._root):
            deltas = leaf.deltas
            for item, rise, minus_fall in zip(leaf.items, deltas[::2], deltas[1::2]):
                yield item, rise, -minus_fall

    def previous(self, item: int) -> int:
        """Return the item right before this one, or NOWHERE."""
        leaf = self._home[item]
        place = leaf.items.index(item)
        if place:
            return leaf.items[place - 1]
        return leaf.left.items[-1] if leaf.left else NOWHERE

    def rank(self, item: int) -> int:
        """Return how many items stand before this one."""
        block = self._home[item]
        rank = block.items.index(item)
        while (parent := block.parent) is not None:
            rank += sum(sibling.count for sibling in parent.blocks[: block.slot])
            block = parent
        return rank

    def level(self, item: int) -> int:
        """Return the level that an item's rise reaches."""
        self._fold_dirty_blocks()
        block = self._home[item]
        level = sum(block.deltas[: 2 * block.items.index(item) + 1])
        while (parent := block.parent) is not None:
            level += sum(parent.deltas[: 2 * block.slot])
            block = parent
        return level

    def peak(self) -> tuple[int, int]:
        """Return the highest level and the first item that reaches it; there must be an item."""
        self._fold_dirty_blocks()
        block = self._root
        while block.blocks:
            block = block.blocks[block.top]
        return self._root.height, block.items[block.top]

    # -- changing ----------------------------------------------------------------------------

    def add(self, item: int, rise: int, fall: int) -> None:
        """Change the rise and the fall of an item by these amounts."""
        leaf = self._home[item]
        place = 2 * leaf.items.index(item)
        leaf.deltas[place] += rise
        leaf.deltas[place + 1] -= fall
        self._dirty[leaf] = None

    def remove(self, item: int) -> tuple[int, int]:
        """Take an item out and return its rise and fall."""
        leaf = self._home[item]
        place = leaf.items.index(item)
        rise, minus_fall = leaf.deltas[2 * place : 2 * place + 2]
        del leaf.items[place]
        del leaf.deltas[2 * place : 2 * place + 2]
        self._dirty[leaf] = None
        block: _Block | None = leaf
        while block is not None:
            block.count -= 1
            block = block.parent
        if not leaf.items:
            self._drop_leaf(leaf)
        return rise, -minus_fall

    def insert_after(self, item: int, anchor: int, rise: int, fall: int) -> None:
        """Put an item that is not in the order right behind ``anchor`` (NOWHERE: in front)."""
        if anchor == NOWHERE:
            leaf, place = self._first, 0
        else:
            leaf = self._home[anchor]
            place = leaf.items.index(anchor) + 1
        self.label[item] = self._free_label(leaf, place, anchor)
        leaf.items.insert(place, item)
        leaf.deltas[2 * place : 2 * place] = (rise, -fall)
        self._home[item] = leaf
        self._dirty[leaf] = None
        block: _Block | None = leaf
        while block is not None:
            block.count += 1
            block = block.parent
        if len(leaf.items) > _CAPACITY:
            self._split_full_blocks(leaf)

    def move_after(self, item: int, anchor: int) -> None:
        """Take an item with its rise and fall to the place right behind ``anchor``."""
        rise, fall = self.remove(item)
        self.insert_after(item, anchor, rise, fall)

    # -- the tree ----------------------------------------------------------------------------

    def _fold_dirty_blocks(self) -> None:
        """Carry changed deltas up, layer by layer, as far as they change anything."""
        layer = self._dirty
        self._dirty = {}
        while layer:
            above: dict[_Block, None] = {}
            for block in layer:
                rise, minus_fall = block.fold()
                parent = block.parent
                if parent is None:  # the root, or a block dropped since it was touched
                    continue
                deltas, place = parent.deltas, 2 * block.slot
                if deltas[place] != rise or deltas[place + 1] != minus_fall:
                    deltas[place] = rise
                    deltas[place + 1] = minus_fall
                    above[parent] = None
            layer = above

    def _split_full_blocks(self, block: _Block) -> None:
        """Halve a block that has grown too large, and its parents where that fills them."""
        while max(len(block.items), len(block.blocks)) > _CAPACITY:
            twin = self._halve(block)
            parent = block.parent
            if parent is None:
                parent = self._root = _branch([block])
                parent.count += twin.count
            parent.adopt([*parent.blocks[: block.slot + 1], twin, *parent.blocks[block.slot + 1 :]])
            place = 2 * block.slot
            parent.deltas[place : place + 2] = (*block.fold(), *twin.fold())
            self._dirty[parent] = None
            block = parent

    def _halve(self, block: _Block) -> _Block:
        """Move the right half of a block into a new one, not yet hung into the tree."""
        twin = _Block()
        half = _CAPACITY // 2
        twin.deltas = block.deltas[2 * half :]
        del block.deltas[2 * half :]
        if block.blocks:
            twin.adopt(block.blocks[half:])
            del block.blocks[half:]
            twin.count = sum(child.count for child in twin.blocks)
        else:
            twin.items = block.items[half:]
            del block.items[half:]
            twin.count = len(twin.items)
            for item in twin.items:
                self._home[item] = twin
            twin.left, twin.right = block, block.right
            if block.right is not None:
                block.right.left = twin
            block.right = twin
        block.count -= twin.count
        return twin

    def _drop_leaf(self, leaf: _Block) -> None:
        """Unhang an empty leaf, and its parents where that empties them; the last leaf stays."""
        if leaf.left is None and leaf.right is None:
            return
        if leaf.right is not None:
            leaf.right.left = leaf.left
        if leaf.left is not None:
            leaf.left.right = leaf.right
        else:
            assert leaf.right is not None, "a leaf without neighbours is never dropped"
            self._first = leaf.right
        block = leaf
        while (parent := block.parent) is not None:
            block.parent = None
            del parent.deltas[2 * block.slot : 2 * block.slot + 2]
            parent.adopt([child for child in parent.blocks if child is not block])
            self._dirty[parent] = None
            if parent.blocks:
                break
            block = parent
        while len(self._root.blocks) == 1:
            self._root = self._root.blocks[0]
            self._root.parent = None

    def _leaves(self, block: _Block) -> Iterator[_Block]:
        """Yield the leaves under a block, from left to right."""
        first = last = block
        while first.blocks:
            first = first.blocks[0]
        while last.blocks:
            last = last.blocks[-1]
        leaf: _Block | None = first
        while leaf is not None:
            yield leaf
            leaf = leaf.right if leaf is not last else None

    # -- the labels --------------------------------------------------------------------------

    def _free_label(self, leaf: _Block, place: int, anchor: int) -> int:
        """Return a label between ``anchor`` and the item now at this place of the leaf."""
        if place < len(leaf.items):
            after = leaf.items[place]
        elif leaf.right is not None:
            after = leaf.right.items[0]
        else:
            return self.label[anchor] + _GAP if anchor != NOWHERE else 0
        if anchor == NOWHERE:
            return self.label[after] - _GAP
        if self.label[after] - self.label[anchor] < 2:
            self._label_afresh(leaf)
        return (self.label[anchor] + self.label[after]) // 2

    def _label_afresh(self, leaf: _Block) -> None:
        """Spread the labels of the smallest block around a leaf in which there is room."""
        block: _Block = leaf
        while True:
            leaves = list(self._leaves(block))
            start, gap = self._room(leaves[0].left, leaves[-1].right, block.count)
            if gap >= _NARROW:
                break
            assert block.parent is not None, "nothing confines the labels of the whole order"
            block = block.parent
        for item in chain.from_iterable(each.items for each in leaves):
            start += gap
            self.label[item] = start

    def _room(self, left: _Block | None, right: _Block | None, count: int) -> tuple[int, int]:
        """Return the label and the gap that spread so many items between two leaves."""
        if left is None:
            end = self.label[right.items[0]] if right is not None else 0
            return end - _GAP * (count + 1), _GAP
        start = self.label[left.items[-1]]
        if right is None:
            return start, _GAP
        return start, (self.label[right.items[0]] - start) // (count + 1)


def _branch(blocks: list[_Block]) -> _Block:
    """Return a new block over these."""
    branch = _Block()
    branch.adopt(blocks)
    branch.deltas = list(chain.from_iterable(block.fold() for block in blocks))
    branch.count = sum(block.count for block in blocks)
    return branch


def _stack(layer: list[_Block]) -> _Block:
    """Return the root of a tree over these leaves."""
    while len(layer) > 1:
        layer = [_branch(layer[at : at + _FILL]) for at in range(0, len(layer), _FILL)]
    layer[0].fold()
    return layer[0]


_ROOTS = 8  # how many square roots of a set its fringe keeps


class Fringe:
    """The far end of a large set of items, so that the farthest is known without a scan.

    ``far`` says how far out an item is. Some square roots of the set, the farthest, are kept
    sorted; every other item is at most as far as the nearest of them. An item whose distance is
    about to change must ``leave`` before and ``join`` after. Only when all kept items have left and
    gone inwards is the whole set looked at again, so at worst a change costs the square root of the
    set, amortised; a change deep inside costs one comparison, another one a binary search.
    """

    __slots__ = ("_all", "_far", "_kept", "_room")

    def __init__(self, items: Iterable[int], far: Callable[[int], int]) -> None:
        self._all = dict.fromkeys(items)
        self._far = far
        self._room = _ROOTS * isqrt(len(self._all))
        self._kept: list[int] = []  # nearest first; empty: to be looked up when asked for

    def leave(self, item: int) -> None:
        """Forget an item of which the distance will change; a stranger is ignored."""
        kept, far = self._kept, self._far
        distance = far(item)
        if kept and distance >= far(kept[0]):
            start = bisect_left(kept, distance, key=far)
            end = bisect_right(kept, distance, start, key=far)
            if item in kept[start:end]:
                del kept[kept.index(item, start, end)]

    def join(self, item: int) -> None:
        """Place an item that left by its new distance; a stranger is ignored."""
        kept = self._kept
        if kept and item in self._all and self._far(item) >= self._far(kept[0]):
            insort(kept, item, key=self._far)
            if len(kept) > 2 * self._room:
                del kept[: self._room]

    def farthest(self) -> int:
        """Return the farthest item (one of them, if several are)."""
        return self._looked_up()[-1]

    def inwards(self) -> Iterator[int]:
        """Yield the kept items, the farthest first; those not kept are no farther than these."""
        return reversed(self._looked_up())

    def _looked_up(self) -> list[int]:
        if not self._kept:
            self._kept = sorted(self._all, key=self._far)[-self._room :]
        return self._kept
