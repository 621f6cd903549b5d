"""MergeOrder and topological_order against plain searches of the graph, on small random graphs."""

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis import order_positions
from treadle.analysis.order import CycleError, MergeOrder, topological_order


class BruteForce:
    """The same contract by condensing the graph anew for every question."""

    def __init__(self, count, edges):
        self.count = count
        self.edges = list(edges)
        self.group = list(range(count))

    def condensed(self):
        return {
            (self.group[u], self.group[v]) for u, v in self.edges if self.group[u] != self.group[v]
        }

    def path_exists(self, start, goal, edges):
        pending, seen = [start], set()
        while pending:
            node = pending.pop()
            for tail, head in edges:
                if tail == node and head not in seen:
                    seen.add(head)
                    pending.append(head)
        return goal in seen

    def reaches(self, a, b):
        a, b = self.group[a], self.group[b]
        return a == b or self.path_exists(a, b, self.condensed())

    def would_cycle(self, a, b):
        a, b = self.group[a], self.group[b]
        others = self.condensed() - {(a, b), (b, a)}
        return a != b and (self.path_exists(a, b, others) or self.path_exists(b, a, others))

    def shortest_detour(self, a, b):
        """How many edges the shortest path between the two through another group has."""
        a, b = self.group[a], self.group[b]
        edges = self.condensed() - {(a, b), (b, a)}
        for start, goal in ((a, b), (b, a)):
            layer, steps = {start}, 0
            while layer:
                if goal in layer:
                    return steps
                layer, steps = {head for tail, head in edges if tail in layer}, steps + 1
        return None

    def merge(self, a, b):
        a, b = self.group[a], self.group[b]
        self.group = [a if group == b else group for group in self.group]

    def members(self, op):
        return tuple(i for i in range(self.count) if self.group[i] == self.group[op])


def answers(order, count):
    pairs = [(a, b) for a in range(count) for b in range(count)]
    return (
        [(order.reaches(a, b), order.would_cycle(a, b)) for a, b in pairs],
        [order.members(op) for op in range(count)],
    )


def check_witness(order, brute, a, b):
    path = order.witness(a, b)
    if not brute.would_cycle(a, b):
        assert path is None
        return
    groups = [brute.group[op] for op in path]
    assert {groups[0], groups[-1]} == {brute.group[a], brute.group[b]}
    assert len(set(groups)) == len(groups) >= 3
    assert len(path) == brute.shortest_detour(a, b) + 1
    assert (path[0], path[1]) in brute.edges
    for group, op in zip(groups, path[1:]):
        assert any(v == op and brute.group[u] == group for u, v in brute.edges)


def check_everything(order, brute):
    count = brute.count
    assert answers(order, count) == answers(brute, count)
    for a in range(count):
        for b in range(a):
            check_witness(order, brute, a, b)
    condensed = brute.condensed()
    for op in range(count):
        after = {v for u, v in condensed if u == brute.group[op]}
        before = {u for u, v in condensed if v == brute.group[op]}
        assert sorted(brute.group[near] for near in order.successors(op)) == sorted(after)
        assert sorted(brute.group[near] for near in order.predecessors(op)) == sorted(before)
    listed = order.order()
    assert sorted(listed) == sorted({brute.members(op) for op in range(count)})
    place = {op: index for index, group in enumerate(listed) for op in group}
    assert all(place[u] <= place[v] for u, v in brute.edges)


def merge_if_legal(order, brute, a, b):
    if brute.would_cycle(a, b):
        with pytest.raises(CycleError) as refusal:
            order.merge(a, b)
        assert refusal.value.cycle == order.witness(a, b)
        return False
    name = order.merge(a, b)
    brute.merge(a, b)
    assert brute.group[name] == brute.group[a]
    assert order.group_of(a) == order.group_of(b) == name
    return True


def add_edge_if_legal(order, brute, u, v):
    if u == v or (brute.group[u] != brute.group[v] and brute.reaches(v, u)):
        with pytest.raises(CycleError) as refusal:
            order.add_edge(u, v)
        ends = refusal.value.cycle[0], refusal.value.cycle[-1]
        assert [brute.group[op] for op in ends] == [brute.group[v], brute.group[u]]
        return False
    order.add_edge(u, v)
    brute.edges.append((u, v))
    return True


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    names = draw(st.permutations(range(count)))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    drawn = draw(st.lists(pairs, min_size=count // 2, max_size=2 * count))
    return count, [(names[min(pair)], names[max(pair)]) for pair in drawn if pair[0] != pair[1]]


@st.composite
def histories(draw):
    count, edges = draw(graphs())
    op = st.integers(0, count - 1)
    pair = st.tuples(op, op)
    if edges:
        # Neighbours are what a scheduler merges, and what a random pair of operations seldom is.
        pair = st.one_of(st.sampled_from(edges), pair)
    step = st.tuples(st.sampled_from(["merge", "merge", "edge"]), pair)
    return count, edges, draw(st.lists(step, min_size=min(count, 4), max_size=14))


@pytest.mark.parametrize("gap", [1, 1 << 20])
@given(history=histories(), landmarks=st.sampled_from([0, 1, 3, 6, 512]))
@settings(max_examples=examples(80), deadline=None)
def test_every_answer_is_that_of_the_condensed_graph(gap, history, landmarks):
    count, edges, steps = history
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_positions, "_GAP", gap)
        order, brute = MergeOrder(count, edges, landmarks=landmarks), BruteForce(count, edges)
        check_everything(order, brute)
        for kind, (a, b) in steps:
            before = answers(order, count), order.order()
            act = merge_if_legal if kind == "merge" else add_edge_if_legal
            if not act(order, brute, a, b):
                assert (answers(order, count), order.order()) == before
            check_everything(order, brute)


@given(history=histories())
@settings(max_examples=examples(60), deadline=None)
def test_landmarks_change_the_work_but_not_the_result(history):
    count, edges, steps = history
    orders = [MergeOrder(count, edges, landmarks=landmarks) for landmarks in (0, 2, 512)]
    for kind, (a, b) in steps:
        results = []
        for order in orders:
            try:
                results.append(order.merge(a, b) if kind == "merge" else order.add_edge(a, b))
            except CycleError as refusal:
                results.append(refusal.cycle)
        assert results[0] == results[1] == results[2]
    assert orders[0].order() == orders[1].order() == orders[2].order()


@given(graph=graphs(), data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_a_topological_order_always_takes_the_smallest_priority_that_is_ready(graph, data):
    count, edges = graph
    priority = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    for given_priority, rank in ((priority, priority), (None, range(count))):
        listed = topological_order(count, edges, given_priority)
        assert sorted(listed) == list(range(count))
        done = set()
        for op in listed:
            ready = [
                other
                for other in range(count)
                if other not in done and all(u in done for u, v in edges if v == other)
            ]
            assert op == min(ready, key=lambda other: (rank[other], other))
            done.add(op)


@given(graph=graphs(), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_reported_cycle_is_one(graph, data):
    count, edges = graph
    op = st.integers(0, count - 1)
    edges = edges + data.draw(st.lists(st.tuples(op, op), min_size=1, max_size=4))
    brute = BruteForce(count, edges)
    cyclic = any(brute.path_exists(op, op, set(edges)) for op in range(count))
    try:
        topological_order(count, edges)
    except CycleError as refusal:
        assert cyclic
        cycle = refusal.cycle
        assert len(set(cycle)) == len(cycle)
        assert all(step in edges for step in zip(cycle, cycle[1:] + cycle[:1]))
    else:
        assert not cyclic
