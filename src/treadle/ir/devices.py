"""Which devices there are: a kind, and a number where a machine can have several.

A text of another form, or of a kind that no machine has, is a mistake of whoever wrote it.
"""

from __future__ import annotations

import re

_KINDS = "cpu cuda xpu mps meta mtia hpu xla hip npu ipu privateuseone maia vulkan tpu"
DEVICE_KINDS = frozenset(_KINDS.split())
LAST_DEVICE = 127
"""Programs that come from torch cannot have more: it keeps device numbers in eight bits."""
_DEVICE = re.compile(r"([a-z]+)(?::([0-9]{1,3}))?", re.ASCII)


CPU_ALIGNMENT = 64
GPU_ALIGNMENT = 256


def alignment_for(device: str) -> int:
    """What offsets are multiples of on a device, where nothing else is asked for."""
    return CPU_ALIGNMENT if device.partition(":")[0] == "cpu" else GPU_ALIGNMENT


def is_device(text: str) -> bool:
    """Whether `text` is a device such as `cpu` or `cuda:1`."""
    found = _DEVICE.fullmatch(text)
    return found is not None and found[1] in DEVICE_KINDS and int(found[2] or 0) <= LAST_DEVICE
