"""Lists wrap as Python's pprint wraps them, because that is who wrote them."""

from __future__ import annotations

import pprint
import textwrap
from dataclasses import dataclass

from dump_texts import LOOP
from hypothesis import given
from hypothesis import strategies as st

from treadle.frontends.inductor_dump import model, parse_dump, print_dump


@dataclass
class StarDep:
    name: str
    mode: str | None


@dataclass
class WeakDep:
    name: str
    mutating_buf: str
    is_fake: bool


class MemoryDep:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def written_by_pprint(items: list[object]) -> str:
    text = pprint.pformat(items, indent=4)
    return f"\n{textwrap.indent(text, '    ')}" if "\n" in text else text


def names() -> st.SearchStrategy[str]:
    return st.integers(1, 90).map(lambda length: ("buf" * 30)[:length])


def deps() -> st.SearchStrategy[object]:
    memory = st.builds(
        lambda name, size: MemoryDep(f"MemoryDep('{name}', c0, {{c0: {size}}})"),
        names(),
        st.integers(0, 10**6),
    )
    modes = st.sampled_from([None, "atomic_add"])
    star, weak = st.builds(StarDep, names(), modes), st.builds(
        WeakDep, names(), names(), st.booleans()
    )  # fmt: skip
    return st.one_of(memory, star, weak)


@given(st.lists(deps(), max_size=6))
def test_dependences_wrap_like_pprint(items: list[object]) -> None:
    shown = written_by_pprint(items)
    text = LOOP.replace("op0.unmet_dependencies = []", f"op0.unmet_dependencies = {shown}")
    dump = parse_dump(text)
    assert len(dump.nodes[0].unmet) == len(items)
    assert print_dump(dump) == text


@given(st.lists(names(), min_size=1, max_size=8))
def test_aliases_wrap_like_pprint_and_are_indented(aliases: list[str]) -> None:
    block = textwrap.indent(f"buf0.aliases = {written_by_pprint(list(aliases))}", "    ")
    text = LOOP.replace("    buf0.users", f"{block}\n    buf0.users")
    dump = parse_dump(text)
    assert dump.nodes[0].outputs[0].aliases == tuple(aliases)
    assert print_dump(dump) == text


def test_eighty_characters_fit_and_eighty_one_do_not() -> None:
    def line(length: int) -> str:
        name = "b" * (length - len("[StarDep(name='', mode=None)]"))
        dump = parse_dump(LOOP)
        node = model.DumpNode("op0", "N", (), (model.StarDep(name),), (), ())
        section = model.DumpSection((node,))
        printed = print_dump(model.InductorDump(dump.dialect, (section,)))
        return printed.split("\n")[1]

    assert line(80).endswith(", mode=None)]")
    assert line(81) == "op0.writes = "
