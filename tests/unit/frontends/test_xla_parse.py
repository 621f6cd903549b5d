"""The forms of XLA dumps, told apart and kept; figures that are derived when printing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.frontends.xla_dump import (
    kind_of_text,
    parse_dump,
    print_dump,
    print_file,
    read_dump,
    siblings,
)
from treadle.frontends.xla_dump.model import HloPosition, human_size

CORPUS = Path(__file__).parents[2] / "corpus" / "xla"


def text_of(name: str) -> str:
    return (CORPUS / name).read_bytes().decode("utf-8")


SMALL = text_of("small.2024-11-buffer-assignment.txt")


@pytest.mark.parametrize(
    "name, kind",
    [
        ("small.2024-11-buffer-assignment.txt", "xla_buffer_assignment"),
        ("small.2026-04-buffer-assignment.txt", "xla_buffer_assignment"),
        ("small.2026-04-buffer-assignment-values.txt", "xla_values"),
        ("small.2026-04-live-range.txt", "xla_live_range"),
        ("small.2024-11-memory-usage-report.txt", "xla_memory_report"),
        ("small.2026-04-memory-usage-report.txt", "xla_memory_report"),
        ("small.2026-04.txt", "hlo"),
    ],
)
def test_the_kind_of_a_file_is_found_from_its_first_lines(name: str, kind: str) -> None:
    assert kind_of_text(text_of(name)) == kind


def test_other_texts_are_no_xla_files() -> None:
    for text in ("", "\n", "treadle 1\n", "op0: SchedulerNode(ComputedBuffer)\n", "Total bytes\n"):
        assert kind_of_text(text) is None


def test_values_know_their_index_phi_and_colour() -> None:
    dump = parse_dump(text_of("loop.2024-11-buffer-assignment.txt"))
    by_id = {used.value.id: used.value for used in dump.used}
    assert (by_id[3].name, by_id[3].index, by_id[3].is_phi) == ("x", None, False)
    assert (by_id[6].index, by_id[17].index) == ((), (1,))
    assert by_id[17].is_phi
    assert str(by_id[17]) == "<17 b_state{1} (phi) @0>"
    assert by_id[3].place == HloPosition("x", ())


def test_headers_are_taken_apart() -> None:
    dump = parse_dump(SMALL)
    kinds = [allocation.kind for allocation in dump.allocations]
    assert kinds == ["parameter", "donated", "output", "output", "constant",
                     "thread-local", "thread-local", "thread-local", "temp"]  # fmt: skip
    parameter = dump.allocations[1].parameter
    assert parameter is not None
    assert (parameter.number, parameter.shape, parameter.index) == (1, "f32[64]", ())
    assert dump.allocations[2].output_shape == "(f32[64], f32[])"


def test_pages_and_buffers_of_another_colour_are_read() -> None:
    paged = read_dump(str(CORPUS / "small.2026-08-buffer-assignment.txt"))
    assert [a.page for a in paged.allocations] == list(range(9))
    shared = read_dump(str(CORPUS / "small.2026-06-buffer-assignment.txt"))
    (other,) = shared.allocations[1].recoloured or ()
    assert (other.value.name, other.color) == ("a", 1)
    assert shared.allocations[0].recoloured is None


def test_colours_of_allocations_come_back() -> None:
    text = SMALL.replace("allocation 8: size 784", "allocation 8: size 784, color 1, page 2")
    dump = parse_dump(text)
    assert (dump.allocations[8].color, dump.allocations[8].page) == (1, 2)
    assert print_dump(dump) == text


@pytest.mark.parametrize(
    "form, with_index, with_sum, with_tree",
    [
        ("2024-11", False, False, False),
        ("2025-04", True, False, False),
        ("2025-05", True, True, False),
        ("2025-07", True, True, True),
    ],
)
def test_the_forms_of_peak_lines(
    form: str, with_index: bool, with_sum: bool, with_tree: bool
) -> None:
    dump = parse_dump(text_of(f"small.{form}-buffer-assignment.txt"))
    assert dump.live is not None
    peak = dump.live.peak
    assert peak is not None
    assert all((row.index is not None) == with_index for row in peak.lines)
    assert all((row.cumulative is not None) == with_sum for row in peak.lines)
    assert (peak.tree is not None) == with_tree


def test_a_tree_is_rows_with_depths() -> None:
    dump = parse_dump(text_of("small.2025-07-buffer-assignment.txt"))
    assert dump.live is not None
    assert dump.live.peak is not None
    tree = dump.live.peak.tree
    assert tree is not None
    assert [row.depth for row in tree.rows] == [0, 1, 2, 2, 2, 1, 1, 1]
    assert (tree.rows[0].label, tree.rows[0].percent) == ("main", "100.0")


def test_an_unbounded_peak_is_a_line_of_its_own() -> None:
    dump = parse_dump(text_of("small.2026-08-live-range.txt"))
    assert dump.live is not None
    assert dump.live.peak is None
    assert dump.live.no_peak is not None


def test_joined_values_are_taken_apart() -> None:
    joined = parse_dump(text_of("small.2024-10-buffer-assignment.txt"))
    plain = parse_dump(SMALL)
    assert joined.values is not None
    assert joined.values.joined
    assert joined.used == plain.used
    assert joined.live is not None
    assert plain.live is not None
    assert joined.live.ranges == plain.live.ranges


def test_windows_newlines_come_back() -> None:
    text = SMALL.replace("\n", "\r\n")
    assert print_dump(parse_dump(text)) == text


def test_derived_figures_follow_the_model() -> None:
    dump = parse_dump(SMALL)
    assert dump.values is not None
    assert dump.values.stated_total is None
    assert dump.assignment is not None
    larger = replace(dump.allocations[8], size=784 + 1024 * 1024)
    rows = (*dump.allocations[:8], larger)
    changed = replace(dump, assignment=replace(dump.assignment, allocations=rows))
    assert "Total bytes used: 1049908 (1.00MiB)\n" in print_dump(changed)


@pytest.mark.parametrize(
    "size, text",
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KiB"),
        (1332, "1.3KiB"),
        (5_245_512, "5.00MiB"),
        (1_093_622_736, "1.02GiB"),
        (1 << 45, "32.00TiB"),
        (1 << 62, "4.00EiB"),
        (1 << 70, "1024.00EiB"),
    ],
)
def test_sizes_for_people_are_those_of_xla(size: int, text: str) -> None:
    assert human_size(size) == text


def test_files_of_one_dump_are_found_from_each_of_them(tmp_path: Path) -> None:
    names = [path.name for path in CORPUS.glob("small.2026-04*")]
    assert len(names) == 5
    for name in names:
        shutil.copy(CORPUS / name, tmp_path / name)
    for name in names:
        dump = read_dump(str(tmp_path / name))
        assert dump.assignment
        assert dump.values
        assert dump.live
        assert dump.module
        assert dump.report
        for file in dump.files:
            assert print_file(dump, file) == Path(file.name).read_bytes().decode("utf-8")


def test_each_file_can_be_read_by_itself(tmp_path: Path) -> None:
    for path in CORPUS.glob("small.2026-04*"):
        alone = tmp_path / path.stem / path.name
        alone.parent.mkdir()
        shutil.copy(path, alone)
        dump = read_dump(str(alone))
        parts = (dump.assignment, dump.values, dump.live, dump.module, dump.report)
        assert sum(part is not None for part in parts) == 1


def test_a_damaged_file_next_to_a_good_one_is_named(tmp_path: Path) -> None:
    for path in CORPUS.glob("small.2026-04*"):
        shutil.copy(path, tmp_path / path.name)
    bad = tmp_path / "small.2026-04-live-range.txt"
    bad.write_text("HloLiveRange (max 3):\n", "utf-8")
    with pytest.raises(InputError, match=r"small\.2026-04-live-range\.txt:1: expected"):
        read_dump(str(tmp_path / "small.2026-04-buffer-assignment.txt"))


def test_a_file_of_another_name_has_no_family(tmp_path: Path) -> None:
    path = tmp_path / "copied.log"
    path.write_text(SMALL, "utf-8")
    assert siblings(str(path), "xla_buffer_assignment") == {}
    assert read_dump(str(path)).module is None


def test_unknown_lines_stand_where_they_stood() -> None:
    text = SMALL.replace(" uses:\n  mul, operand 1\n", " uses:\n  mul, operand 1\n  how: twice\n")
    text = text.replace("  BufferLiveRange:\n", "    remark\n  BufferLiveRange:\n")
    dump = parse_dump(text)
    assert [line.text for _, line in dump.unknown_lines()] == ["  how: twice", "    remark"]
    assert print_dump(dump) == text


def test_unreadable_files_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a readable file"):
        read_dump(str(tmp_path / "absent.txt"))
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"BufferAssignment:\n\xff")
    with pytest.raises(InputError, match="UTF-8 text"):
        read_dump(str(bad))
