"""The page on scheduling lists what there is."""

from __future__ import annotations

import re
from pathlib import Path

from treadle.core.codes import load_codes
from treadle.schedule.passes import PIPELINE
from treadle.schedule.policy import POLICIES

PAGE = (Path(__file__).parents[3] / "docs" / "scheduling.md").read_text(encoding="utf-8")


def test_every_pass_is_on_the_page_in_its_order() -> None:
    table = PAGE.split("| pass | does |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `([\w-]+)` \|", table, re.M)
    assert listed == list(dict.fromkeys(p.name for p in PIPELINE))


def test_every_policy_is_on_the_page() -> None:
    table = PAGE.split("| policy | peak | else |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(POLICIES)


def test_codes_that_the_page_names_exist() -> None:
    known = load_codes()
    named = set(re.findall(r"\b[A-Z]{3,4}[0-9]{3}\b", PAGE))
    assert named
    assert named <= set(known)
