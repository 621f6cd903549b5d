"""Tensors are handed to kernels of attention as these take them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from treadle.runtime.hosts.torch_flex import (  # noqa: E402
    captured,
    check_lists,
    list_widths,
    listed,
    ready,
)

pytestmark = pytest.mark.torch


def test_what_lies_well_is_handed_over_as_it_is() -> None:
    x = torch.randn(2, 3, 8, 16).transpose(1, 2)
    assert ready(x) is x
    assert captured(x, x.stride()) is x


def test_odd_addresses_and_gaps_along_heads_are_copied() -> None:
    memory = torch.randn(2 * 3 * 16 + 1)
    for x in (memory[1:].view(2, 3, 16), memory[:-1].view(2, 16, 3).transpose(1, 2)):
        made = ready(x)
        assert made is not x
        assert made.data_ptr() % 16 == 0
        assert made.stride(-1) == 1
        torch.testing.assert_close(made, x)


def test_captured_tensors_keep_their_strides_even_where_elements_share_places() -> None:
    memory = torch.randn(40)
    repeated = memory[1:6].expand(4, 5)
    overlapping = memory.as_strided((4, 5), (2, 1), 3)
    for x in (repeated, overlapping):
        made = captured(x, x.stride())
        assert made.data_ptr() % 16 == 0
        assert made.stride() == x.stride()
        torch.testing.assert_close(made, x)
    turned = captured(memory[:20].view(4, 5), (1, 4))
    assert turned.stride() == (1, 4)
    torch.testing.assert_close(turned, memory[:20].view(4, 5))


def test_lists_that_contradict_each_other_or_are_too_short_are_refused() -> None:
    counts, blocks = torch.ones(1, 1, 4).int(), torch.zeros(1, 1, 4, 6).int()
    assert list_widths([counts, blocks]) == (6, 4)
    with pytest.raises(ValueError, match="differ in their rows"):
        list_widths([counts, blocks, counts[..., :3], blocks])
    check_lists(4, 128, 512)
    with pytest.raises(ValueError, match="a mask of 4 blocks of 128 is too short for 513 places"):
        check_lists(4, 128, 513)
    assert listed(blocks.transpose(2, 3)).is_contiguous()
