"""Pictures of plans: every block is there, names are escaped, the same plan looks the same."""

from __future__ import annotations

from xml.etree import ElementTree

from treadle.memory.draw import live_curve, peak_of, peak_rows
from treadle.memory.draw_svg import plan_svg
from treadle.memory.draw_text import curve_text, map_text, peak_text
from treadle.memory.problem import Block, Place, Plan, Pool, Problem

PROBLEM = Problem(
    (
        Block('a<b>&"c"', 0, 4, 8),
        Block("gappy", 0, 8, 8, gaps=((2, 6),)),
        Block("guest", 1, 3, 4),
    ),
    (Pool("out", 4, ((0, 4),)), Pool("unused", 4, ((0, 4),))),
    name="p",
)
PLAN = Plan(
    {'a<b>&"c"': Place("arena", 0), "gappy": Place("arena", 8), "guest": Place("out", 0)}, 16
)


def test_the_svg_has_every_span_and_harmless_names() -> None:
    text = plan_svg(PROBLEM, PLAN, 16)
    assert text == plan_svg(PROBLEM, PLAN, 16)
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    tips = [one.text or "" for one in root.iter(f"{space}title")]
    assert sum(tip.startswith("gappy: 8 bytes") for tip in tips) == 2
    assert 'a<b>&"c": 8 bytes, life [0, 4), arena [0, 8)' in tips
    labels = [one.text for one in root.iter(f"{space}text")]
    assert "arena: 16 bytes" in labels
    assert "out: 4 bytes" in labels
    assert not any("unused" in (label or "") for label in labels)
    assert "<script" not in text


def test_the_text_map_shows_time_to_the_right_and_addresses_upwards() -> None:
    assert map_text(PROBLEM, PLAN, width=8, height=4) == [
        "arena: 16 bytes, time 0 to 8",
        "12 |BB....BB|",
        " 8 |BB....BB|",
        " 4 |AAAA....|",
        " 0 |AAAA....|",
        "out: 4 bytes, time 0 to 8",
        "3 |.CC.....|",
        "2 |.CC.....|",
        "1 |.CC.....|",
        "0 |.CC.....|",
    ]


def test_the_curve_counts_what_lives_in_the_arena() -> None:
    assert live_curve(PROBLEM, PLAN, "arena") == ((0, 2, 4, 6, 8), (16, 8, 0, 8, 0))
    assert peak_of(live_curve(PROBLEM)) == (1, 20)
    lines = curve_text(PROBLEM, PLAN, 16, width=8, height=2)
    assert [line.split("|")[1] for line in lines[:2]] == ["##      ", "####  ##"]
    assert lines[-1] == "arena 16, lower bound 16, time 0 to 8"


def test_a_group_counts_once() -> None:
    problem = Problem((Block("a", 0, 2, 8, group="g"), Block("b", 1, 3, 4, group="g")))
    assert live_curve(problem) == ((0, 3), (8, 0))


def test_the_peak_table_has_the_largest_first() -> None:
    rows = peak_rows(PROBLEM, PLAN, idle={"guest": 1})
    assert [(row.name, row.idle) for row in rows] == [
        ('a<b>&"c"', None), ("gappy", None), ("guest", 1),
    ]  # fmt: skip
    lines = peak_text(rows, shown=2)
    assert lines[1].split() == ["8", "0-4", "arena+0", 'a<b>&"c"']
    assert lines[-1].split() == ["4", "1", "more"]
    assert peak_text(rows)[-1].endswith("guest  idle 1")


def test_nothing_to_draw_is_drawn() -> None:
    empty = Problem(())
    assert map_text(empty, Plan()) == []
    ElementTree.fromstring(plan_svg(empty, Plan(), 0))
    assert peak_of(live_curve(empty)) == (0, 0)
