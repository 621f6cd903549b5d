"""How a dump spells what it says. A dialect is data, found in the text, not a version number.

    feature                 about torch 2.4    2.5-dev      2.6 to 2.11    2.13
    node names              buf0               op0          op0            op0
    users                   of the node        of buffers   of buffers     of buffers
    mode of a MemoryDep     always / if set    always       if set         if set
    WeakDep                 two fields         two          two, 2.11: 3   with is_fake
    input distances         no                 no           no             yes
    loop variables          z                  z            p              p

Only fields under "printing" change what the printer does; the others describe a file, and tell a
program that writes dumps what readers of that dialect expect to find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to write a dump; the default is that of torch 2.13."""

    # Printing.
    always_shows_mode: bool = False
    keeps_trailing_spaces: bool = True
    splits_long_items: bool = True
    newline: str = "\n"
    # Description.
    users_of_nodes: bool = False
    weak_deps_say_fake: bool = True
    shows_distances: bool = True
    layouts_show_device_index: bool = True
    loop_variable: str = "p"
    keeps_loops_apart: bool = False
    """Accesses of loop nodes are not in normal form (`d0`, not `c0`): GPUs, before fusion."""
    sizes_are_tuples: bool = False
    """`((8,), (64,))` instead of `([8], [64])`: GPUs, after fusion."""
    has_device_code: bool = False
    is_log: bool = False

    @property
    def version(self) -> str:
        """About which torch version writes like this: a key of `DIALECTS`, or `2.4`."""
        if self.users_of_nodes:
            return "2.4"
        if self.shows_distances or self.weak_deps_say_fake:
            return "2.13"
        return "2.5" if self.loop_variable == "z" or self.always_shows_mode else "2.6"


DIALECTS = {
    "2.5": Dialect(
        always_shows_mode=True,
        weak_deps_say_fake=False,
        shows_distances=False,
        layouts_show_device_index=False,
        loop_variable="z",
    ),
    "2.6": Dialect(weak_deps_say_fake=False, shows_distances=False),
    "2.13": Dialect(),
}
"""The dialects a program can be written in, by the torch version that first wrote like this."""


# Where an item of a wrapped list ends up with more than this, the writer's pprint splits it.
ITEM_WIDTH = 75

_ALWAYS_MODE = re.compile(r"MemoryDep\('[^\n]{0,300}?\}, None\)")
_STRIPPED = re.compile(
    r"(?:\.(?:writes|unmet_dependencies|met_dependencies) =|\[__ir_(?:pre|post)_fusion\])\r?$",
    re.MULTILINE,
)
_LONG_ITEM = re.compile(rf"   (?:Star|Weak)Dep\([^()\n]{{{ITEM_WIDTH - 8},}}\)[\],]")
_NODE_USERS = re.compile(r"^(?:[^\n]*\] )?(\w+)\.users = \[", re.MULTILINE)
_LOOP_VARIABLE = re.compile(r"^(?:[^\n]*\])?     *var_ranges = \{([a-z]+)\d", re.MULTILINE)
_BARE_DEVICE = re.compile(r"Layout\('(?!cpu|meta)\w+'")
_LOOPS_APART = re.compile(
    r"^(?:.*\] )?(\w+): SchedulerNode\(ComputedBuffer\)\r?\n.*\.writes =.*\bd0\b", re.MULTILINE
)
_TUPLES = re.compile(r"^(?:.*\] )?\w+\.sizes = \(\(", re.MULTILINE)
_TITLE = re.compile(r"^(?:[^\n]* )?(?:BEFORE|AFTER) FUSION[ \r]*$", re.MULTILINE)


def detect_dialect(text: str) -> Dialect:
    """The dialect that `text` is written in; what it does not show keeps its default."""
    variable = _LOOP_VARIABLE.search(text)
    shows_distances = "_input_distance = " in text
    # Without any WeakDep, the distances tell: they came later than is_fake.
    says_fake = ", is_fake=" in text or (shows_distances and "WeakDep(" not in text)
    return Dialect(
        always_shows_mode=bool(_ALWAYS_MODE.search(text)),
        keeps_trailing_spaces=not _STRIPPED.search(text),
        splits_long_items=not _LONG_ITEM.search(text),
        newline="\r\n" if "\r\n" in text else "\n",
        users_of_nodes=bool(_NODE_USERS.search(text)),
        weak_deps_say_fake=says_fake,
        shows_distances=shows_distances,
        layouts_show_device_index=not _BARE_DEVICE.search(text),
        loop_variable=variable[1] if variable else "p",
        keeps_loops_apart=bool(_LOOPS_APART.search(text)),
        sizes_are_tuples=bool(_TUPLES.search(text)),
        has_device_code=" Triton code:" in text,
        is_log=bool(_TITLE.search(text)),
    )
