"""Stable topological order, and merging without ever closing a cycle."""

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.analysis import order_positions
from treadle.analysis.order import CycleError, MergeOrder, topological_order

DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def chain(count):
    return [(op, op + 1) for op in range(count - 1)]


# --- topological_order ---


def test_an_order_that_is_already_topological_comes_back_unchanged():
    assert topological_order(5, [(0, 3), (1, 2), (2, 4)]) == [0, 1, 2, 3, 4]


def test_only_what_has_to_move_moves():
    assert topological_order(5, [(4, 1)]) == [0, 2, 3, 4, 1]


def test_the_smallest_priority_goes_first_and_ids_break_ties():
    assert topological_order(4, [(0, 3)], priority=["b", "a", "b", "a"]) == [1, 0, 3, 2]


def test_parallel_edges_do_no_harm():
    assert topological_order(2, [(1, 0), (1, 0)]) == [1, 0]


def test_nothing_has_an_order():
    assert topological_order(0, []) == []


def test_refuses_a_cycle_and_names_it():
    edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]
    with pytest.raises(CycleError, match="1 -> 2 -> 3") as refusal:
        topological_order(5, edges)
    assert refusal.value.cycle == [1, 2, 3]


def test_refuses_an_operation_before_itself():
    with pytest.raises(CycleError) as refusal:
        topological_order(3, [(0, 1), (2, 2)])
    assert refusal.value.cycle == [2]


@pytest.mark.parametrize("edge", [(0, 3), (-1, 0), (3, 0)])
def test_refuses_an_edge_to_an_unknown_operation(edge):
    with pytest.raises(ValueError, match=r"the operations are 0\.\.2"):
        topological_order(3, [edge])


def test_a_long_cycle_is_listed_by_its_ends_but_kept_whole():
    with pytest.raises(CycleError) as refusal:
        topological_order(1000, [*chain(1000), (999, 0)])
    assert refusal.value.cycle == list(range(1000))
    assert "11 -> (976 more) -> 988" in str(refusal.value)


def test_a_cycle_error_survives_pickling():
    error = pickle.loads(pickle.dumps(CycleError([3, 1], "no")))
    assert error.cycle == [3, 1]
    assert str(error) == "no: 3 -> 1"


# --- MergeOrder: what it knows ---


def test_each_operation_starts_as_a_group_of_its_own():
    order = MergeOrder(4, DIAMOND)
    assert [order.group_of(op) for op in range(4)] == [0, 1, 2, 3]
    assert order.members(2) == (2,)
    assert order.successors(0) == (1, 2)
    assert order.predecessors(3) == (1, 2)


def test_a_merge_joins_members_and_neighbours():
    order = MergeOrder(4, DIAMOND)
    group = order.merge(2, 1)
    assert order.group_of(1) == order.group_of(2) == group
    assert order.members(1) == (1, 2)
    assert order.successors(0) == (group,)
    assert order.predecessors(3) == (group,)
    assert order.order() == [(0,), (1, 2), (3,)]


def test_merging_a_group_with_itself_is_nothing():
    order = MergeOrder(4, DIAMOND)
    group = order.merge(1, 2)
    assert order.merge(2, 1) == order.merge(1, 1) == group
    assert order.order() == [(0,), (1, 2), (3,)]


def test_reaches_follows_paths_one_way_only():
    order = MergeOrder(4, DIAMOND)
    assert order.reaches(0, 3)
    assert order.reaches(1, 1)
    assert not order.reaches(3, 0)
    assert not order.reaches(1, 2)


def test_a_merge_makes_the_followers_of_either_reachable_from_both():
    order = MergeOrder(4, [(0, 1), (2, 3)])
    assert not order.reaches(0, 3)
    order.merge(1, 2)
    assert order.reaches(0, 3)


def test_an_order_does_not_depend_on_how_its_groups_came_about():
    edges = [(0, 4), (1, 4), (2, 5), (3, 5)]
    one, other = MergeOrder(6, edges), MergeOrder(6, edges)
    for a, b in ((0, 3), (3, 1), (4, 5)):
        one.merge(a, b)
    for a, b in ((5, 4), (1, 0), (1, 3)):
        other.merge(a, b)
    assert one.order() == other.order() == [(0, 1, 3), (2,), (4, 5)]


def test_a_group_that_goes_back_in_the_program_takes_what_it_needs_along():
    order = MergeOrder(5, [(0, 1), (1, 2), (3, 4)])
    order.merge(0, 4)
    assert order.order() == [(3,), (0, 4), (1,), (2,)]


def test_neighbours_on_one_edge_may_merge():
    order = MergeOrder(3, chain(3))
    assert not order.would_cycle(0, 1)
    order.merge(0, 1)
    order.merge(1, 2)
    assert order.order() == [(0, 1, 2)]


def test_a_detour_that_was_swallowed_is_no_obstacle_any_more():
    order = MergeOrder(3, [(0, 1), (1, 2), (0, 2)])
    assert order.would_cycle(0, 2)
    order.merge(0, 1)
    assert not order.would_cycle(0, 2)
    assert order.witness(0, 2) is None


def test_a_landmark_that_was_swallowed_is_not_taken_for_another_group():
    # 2 and 3 are both landmarks; once merged, 3 is no longer something between 2 and 4.
    order = MergeOrder(5, [(0, 2), (1, 2), (2, 3), (3, 4)])
    assert order.merge(2, 3) == 2
    assert not order.would_cycle(2, 4)
    assert order.would_cycle(0, 4)


# --- MergeOrder: what it refuses ---


def test_should_not_merge_around_an_operation_between():
    order = MergeOrder(4, DIAMOND)
    assert order.would_cycle(0, 3)
    assert order.would_cycle(3, 0)
    with pytest.raises(CycleError, match="merging 3 and 0 would close a cycle: 0 -> 1 -> 3"):
        order.merge(3, 0)
    assert order.order() == [(0,), (1,), (2,), (3,)]


def test_should_not_merge_along_an_edge_that_has_a_detour():
    order = MergeOrder(3, [(0, 1), (1, 2), (0, 2)])
    assert order.witness(2, 0) == [0, 1, 2]
    with pytest.raises(CycleError) as refusal:
        order.merge(0, 2)
    assert refusal.value.cycle == [0, 1, 2]


def test_should_not_merge_two_pairs_crosswise():
    # 0 -> 1 and 2 -> 3: once 0 and 3 are one, merging 1 and 2 would run 1 both before and after.
    order = MergeOrder(4, [(0, 1), (2, 3)])
    order.merge(0, 3)
    assert order.would_cycle(1, 2)
    assert order.witness(1, 2) == [2, 3, 1]


def test_a_witness_starts_where_its_edge_leaves_and_goes_on_where_edges_arrive():
    # Groups {0, 1} -> {2, 3} -> {4, 5}: in at 2, but out from 3.
    order = MergeOrder(6, [(1, 2), (3, 4)])
    for a, b in ((0, 1), (2, 3), (4, 5)):
        order.merge(a, b)
    assert order.witness(5, 0) == [1, 2, 4]


def test_a_witness_is_a_shortest_one():
    order = MergeOrder(6, [*chain(6), (0, 4)])
    assert order.witness(0, 5) == [0, 4, 5]


def test_a_group_is_no_witness_against_itself():
    order = MergeOrder(2, [(0, 1)])
    order.merge(0, 1)
    assert not order.would_cycle(0, 1)
    assert order.witness(0, 1) is None


def test_refuses_to_start_from_a_cycle():
    with pytest.raises(CycleError) as refusal:
        MergeOrder(3, [(0, 1), (1, 2), (2, 0)])
    assert refusal.value.cycle == [0, 1, 2]


def test_an_added_edge_orders_what_was_free():
    order = MergeOrder(3, [])
    order.add_edge(2, 0)
    assert order.reaches(2, 0)
    assert order.order() == [(1,), (2,), (0,)]


def test_an_added_edge_can_make_a_merge_illegal():
    order = MergeOrder(3, [(0, 1)])
    assert not order.would_cycle(0, 2)
    order.add_edge(1, 2)
    assert order.would_cycle(0, 2)


def test_an_added_edge_within_a_group_vanishes():
    order = MergeOrder(2, [])
    group = order.merge(0, 1)
    order.add_edge(1, 0)
    assert order.successors(group) == order.predecessors(group) == ()


def test_refuses_an_edge_that_runs_backwards():
    order = MergeOrder(4, DIAMOND)
    with pytest.raises(CycleError, match="an edge from 3 to 0 would close a cycle") as refusal:
        order.add_edge(3, 0)
    assert refusal.value.cycle == [0, 1, 3]
    assert order.order() == [(0,), (1,), (2,), (3,)]


def test_refuses_the_reverse_of_an_edge():
    order = MergeOrder(2, [(1, 0)])
    with pytest.raises(CycleError) as refusal:
        order.add_edge(0, 1)
    assert refusal.value.cycle == [1, 0]


def test_refuses_an_added_edge_from_an_operation_to_itself():
    with pytest.raises(CycleError) as refusal:
        MergeOrder(2, []).add_edge(1, 1)
    assert refusal.value.cycle == [1]


# --- scale: work is counted, not timed ---


def residual_network(count):
    """A long stream of blocks with side branches; all blocks read three shared inputs."""
    edges, stream, op = [], 3, 4
    while op + 6 <= count:
        norm, query, key, scores, out, joined = range(op, op + 6)
        edges += [(stream, norm), (norm, query), (norm, key), (query, scores), (key, scores)]
        edges += [(0, query), (1, key), (2, scores), (scores, out), (stream, joined), (out, joined)]
        stream, op = joined, op + 6
    return edges


def unrolled_grid(count, width=8):
    across = [(op - 1, op) for op in range(count) if op % width]
    return across + [(op - width, op) for op in range(width, count)]


def wide_hub(count):
    """0 -> 1 -> many users, each followed by one more -> one gathering operation."""
    users = range(2, count - 2, 2)
    fan = [edge for user in users for edge in ((1, user), (user, user + 1), (user + 1, count - 1))]
    return [(0, 1), *fan]


def random_layers(count, width=50):
    dice = random.Random(5)
    edges = []
    for op in range(width, count):
        layer = op // width * width
        edges += [(source, op) for source in dice.sample(range(layer - width, layer), 2)]
    return edges


FAMILIES = [chain, residual_network, unrolled_grid, wide_hub, random_layers]


def near_and_far_pairs(count, dice, many):
    for _ in range(many):
        a = dice.randrange(count)
        yield a, dice.randrange(count)
        yield a, min(count - 1, a + dice.randrange(1, 200))


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_about_20_000_operations_visit_a_handful_of_them(family):
    count, dice = 20_000, random.Random(1)
    edges = family(count)
    order = MergeOrder(count, edges)
    for a, b in near_and_far_pairs(count, dice, 2000):
        order.would_cycle(a, b)
    assert order.stats.visited / 4000 < 20

    merged = 0
    for u, v in dice.sample(edges, 12_000):
        if not order.would_cycle(u, v):
            merged += order.group_of(u) != order.group_of(v)
            order.merge(u, v)
    assert merged > 2000
    before = order.stats.visited
    for a, b in near_and_far_pairs(count, dice, 2000):
        order.would_cycle(a, b)
    assert (order.stats.visited - before) / 4000 < 20


def test_the_ends_of_a_chain_of_100_000_are_told_apart_without_a_search():
    order = MergeOrder(100_000, chain(100_000))
    assert order.would_cycle(0, 99_999)
    assert order.reaches(0, 99_999)
    assert not order.reaches(99_999, 0)
    assert order.stats.searches == 0
    assert order.witness(0, 99_999) == list(range(100_000))


def test_two_on_one_path_are_told_apart_without_landmarks_or_a_search():
    order = MergeOrder(1000, chain(1000), landmarks=0)
    assert order.would_cycle(3, 900)
    assert order.stats.searches == 0


def test_a_hub_can_swallow_its_users_one_by_one():
    order = MergeOrder(20_000, wide_hub(20_000))
    for user in range(2, 19_998, 2):
        order.merge(user, 1)
    assert len(order.members(1)) == 9999
    assert order.stats.visited < 20_000


def test_tags_are_renumbered_when_a_gap_is_used_up(monkeypatch):
    monkeypatch.setattr(order_positions, "_GAP", 1)
    order = MergeOrder(200, [])
    for op in range(199, 0, -1):
        order.add_edge(op, op - 1)
    assert order.order() == [(op,) for op in range(199, -1, -1)]
    assert order.reaches(199, 0)


# --- the same on every run ---

SCRIPT = """
import random
from treadle.analysis.order import MergeOrder
dice = random.Random(2)
edges = [(a, b) for b in range(300) for a in dice.sample(range(300), 3) if a < b]
order = MergeOrder(300, edges, landmarks=20)
shown = []
for _ in range(400):
    a, b = dice.randrange(300), dice.randrange(300)
    path = order.witness(a, b)
    shown.append(path or order.merge(a, b))
print(shown, order.order(), order.stats)
"""


def test_results_do_not_depend_on_the_hash_seed():
    source = str(Path(order_positions.__file__).parents[2])
    shown = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
