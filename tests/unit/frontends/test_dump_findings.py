"""Odd things in a dump are reported with their place; the rest of the dump stays usable."""

from __future__ import annotations

from dump_texts import EXTERN, GRAPH, LOOP, as_member_of_group

from treadle.frontends.inductor_dump import parse_dump, print_dump


def findings(text: str) -> list[str]:
    dump = parse_dump(text)
    assert print_dump(dump) == text
    return [str(finding) for finding in dump.findings]


def test_a_sound_dump_has_no_findings() -> None:
    assert findings(GRAPH) == []


def test_a_buffer_without_writer_is_reported_and_an_input_is_not() -> None:
    text = GRAPH.replace("StarDep(name='buf0', mode=None)", "StarDep(name='buf7', mode=None)")
    assert findings(text) == [
        "line 35: op1 depends on buf7, which no node of this dump writes [IND002]"
    ]
    assert findings(GRAPH.replace("'arg2_1'", "'primals_9'")) == []


def test_a_user_that_is_not_there_is_reported() -> None:
    assert findings(LOOP) == ["line 1: buf0 is used by op1, which is not in this dump [IND003]"]


def test_missing_members_are_reported() -> None:
    text = as_member_of_group(LOOP, EXTERN)
    cut = text[: text.index("op0_op1.snodes[1]")] + "\n\n"
    assert findings(text) == []
    assert findings(cut)[0] == (
        "line 1: op0_op1 names 2 members, of which 1 stand in this dump [IND003]"
    )


def test_a_missing_end_is_noted() -> None:
    noted = "line 35: no blank line after the last node op1: the end may be missing [IND003]"
    assert findings(GRAPH.rstrip("\n") + "\n") == [noted]
    assert parse_dump(GRAPH.rstrip("\n") + "\n").findings[0].is_note


def test_unknown_lines_are_kept_counted_and_noted_with_their_place() -> None:
    text = (
        GRAPH.replace("op1.outputs", "op1.stream = 3\nop1.outputs")
        .replace("op1.node", "op1.notes = \n    [   'a',\n        'b']\nop1.node")
        .replace("    buf1.aliases", "    buf1.pool = 'x'\n    buf1.aliases")
        .replace("    index1", "    symbols = {}\n    index1")
        .replace("op0.sizes", "op0.tiling = (4, 4)\nop0.sizes")
        .replace("add = ops.add(load, to_dtype)", "add = load @ to_dtype")
    )  # fmt: skip
    dump = parse_dump(text)
    assert dump.unknown_count == 8
    assert (
        findings(text)[0] == "line 15: not understood, kept as it is: op0.tiling = (4, 4) [IND004]"
    )


def test_expressions_beyond_the_algebra_are_noted_once() -> None:
    text = GRAPH.replace("[16, 1]", "[TruncToInt(1.7*ToFloat(s0)), 1]")
    assert findings(text) == [
        "line 6: an expression the index algebra cannot say: TruncToInt(1.7*ToFloat(s0)) [IND005]"
    ]


def test_hostile_expressions_are_not_multiplied_out() -> None:
    big = "*".join(["(p0 + p1 + p2 + p3)"] * 30)
    assert [line[-8:] for line in findings(GRAPH.replace("16*p0 + p1", big))] == ["[IND005]"]
    long = " + ".join(f"p{i}" for i in range(5000))
    assert [line[-8:] for line in findings(GRAPH.replace("16*p0 + p1", long))] == ["[IND005]"]


def test_broken_references_in_a_body_are_reported() -> None:
    text = GRAPH.replace("ops.add(load, to", "ops.add(load_9, to").replace("index1'", "index7'")
    assert findings(text) == [
        "line 23: op0, body: index index7 is used but never defined [IND006]",
        "line 23: op0, body: value load_9 is used but never defined [IND006]",
    ]
    masked = GRAPH.replace("ops.add(load, to_dtype)", "self.masked_subblock3(load, 0.0)")
    assert findings(masked) == [
        "line 23: op0, body: block masked_subblock3 is used but never defined [IND006]"
    ]


def test_skipped_numbers_are_noted() -> None:
    text = GRAPH + EXTERN.replace("op1", "op4").replace("'buf1'", "'buf3'").replace(
        "    buf1", "    buf3"
    )
    text = text.replace("buf2", "buf4", text.count("buf2") // 2)
    assert findings(text) == [
        "line 1: op2, op3 skipped: removed before the dump was written [IND007]"
    ]
