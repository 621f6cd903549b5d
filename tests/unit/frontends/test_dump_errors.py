"""Damaged dumps: one message with the line and what was expected there."""

from __future__ import annotations

import pytest
from dump_texts import EXTERN, GRAPH, LOOP, as_log, as_member_of_group

from treadle.core.errors import InputError
from treadle.frontends.inductor_dump import parse_dump, read_dump

CASES = [
    ("", "f:1: expected a node such as 'op0: SchedulerNode(ComputedBuffer)', found an empty file"),
    (
        "hello\n",
        "f:1: expected a node such as 'op0: SchedulerNode(ComputedBuffer)', found 'hello'",
    ),
    (
        GRAPH.replace("op1.met", "op7.met"),
        "f:40: expected 'op1.met_dependencies = ' and a list of dependences, "
        "found 'op7.met_dependencies = [StarDep(name='arg2_1', mode=None)]'",
    ),
    (
        GRAPH.replace("{c0: 128})]", "{c0: 128)]"),
        "f:2: expected 'op0.writes = ' and a list of dependences, "
        "found '[MemoryDep('buf0', c0, {c0: 128)]'",
    ),
    (
        GRAPH.replace("index1 = p1", "index1 = (p1"),
        "f:22: expected an index expression with balanced brackets, found '    index1 = (p1'",
    ),
    (
        GRAPH.replace("        add = ops", "    stray\n        add = ops"),
        "f:29: expected a statement of the loop body, up to its 'return', found '    stray'",
    ),
    (
        GRAPH.replace("op0.sizes", "stray\nop0.sizes"),
        "f:15: expected 'op0.sizes = ' and sizes in brackets, found 'stray'",
    ),
    (
        LOOP.replace("return store\n\n", "return store\n") + EXTERN,
        "f:34: expected a line of op0, or exactly two blank lines and the next node, "
        "found 'op1: ExternKernelSchedulerNode(FallbackKernel)'",
    ),
    (
        GRAPH[: GRAPH.index("        store = ops")],
        "f:31: expected a statement of the loop body, up to its 'return', "
        "found the end of the dump",
    ),
    (
        GRAPH[: GRAPH.index("aten.sort")],
        "f:53: expected the rest of the node: the file is cut, "
        "found 'op1.node.kernel = torch.ops.'",
    ),
    (
        LOOP.rstrip("\n") + "\nop0 Triton code:\n    import triton\n",
        "f:34: expected two blank lines after the generated code: the file is cut, "
        "found '    import triton'",
    ),
    (
        LOOP.replace("met_dependencies = [MemoryDep", "met_dependencies = [  MemoryDep"),
        "f:4: expected 'op0.met_dependencies = [MemoryDep('arg0_1', c0, {c0: 128}), ",
    ),
    (as_log("hello\n\n\n"), "f:2: expected a node such as 'op0: SchedulerNode(ComputedBuffer)'"),
]  # fmt: skip


@pytest.mark.parametrize("text, message", CASES)
def test_damage_gives_one_line_that_names_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_dump(text, "f")
    rendered = caught.value.render()
    assert "\n" not in rendered
    assert rendered.startswith(message)
    assert caught.value.code == "IND001"


def test_a_cut_at_every_line_is_refused_or_noted() -> None:
    lines = GRAPH.split("\n")
    end_of_first = LOOP.rstrip("\n").count("\n") + 1
    after_first = {end_of_first, end_of_first + 1, end_of_first + 2}
    for count in range(1, GRAPH.rstrip("\n").count("\n") + 2):
        try:
            dump = parse_dump("\n".join(lines[:count]))
        except InputError:
            continue
        assert count in after_first
        assert dump.findings


def test_endless_nesting_is_refused() -> None:
    text = LOOP
    for depth in range(60):
        text = as_member_of_group(text, name=f"g{depth}")
    with pytest.raises(InputError, match="at most 40 groups inside each other"):
        parse_dump(text)
    with pytest.raises(InputError):
        parse_dump(LOOP.replace("([8, 16], [])", "(" * 5000 + ")" * 5000))


def test_unreadable_files_are_input_errors(tmp_path) -> None:
    with pytest.raises(InputError, match="a readable file"):
        read_dump(str(tmp_path / "absent.txt"))
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"op0: \xff")
    with pytest.raises(InputError, match="UTF-8 text"):
        read_dump(str(bad))
