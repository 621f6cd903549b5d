"""What lives when, on programs small enough to check by hand."""

from random import Random

import pytest

from treadle.analysis.sequence import NOWHERE, Fringe, WeightedSequence
from treadle.analysis.timeline import Life, LifeError, Peak, Storage, Timeline

# softmax of one row: 0 max, 1 subtract, 2 exp, 3 sum, 4 divide
SOFTMAX = (
    Storage("x", 100, None, (0, 1), freeable=False),
    Storage("max", 1, 0, (1,)),
    Storage("shifted", 100, 1, (2,)),
    Storage("exp", 100, 2, (3, 4)),
    Storage("sum", 1, 3, (4,)),
    Storage("y", 100, 4, (), freeable=False),
)


def softmax(*, drop_internal: bool = False) -> Timeline:
    return Timeline(5, SOFTMAX, drop_internal=drop_internal)


def during(tl: Timeline) -> list[int]:
    return [point.during for point in tl.curve()]


def after(tl: Timeline) -> list[int]:
    return [point.after for point in tl.curve()]


def names(storages: list[Storage]) -> list[str]:
    return [storage.name for storage in storages]


# -- lives -----------------------------------------------------------------------------------


def test_a_step_allocates_before_it_frees() -> None:
    tl = softmax()
    assert during(tl) == [101, 201, 300, 201, 301]
    assert after(tl) == [101, 200, 200, 201, 200]
    assert tl.peak() == Peak(301, 4)


def test_the_peak_is_the_first_step_that_reaches_it() -> None:
    tl = Timeline(3, [Storage("a", 8, 0, (0,)), Storage("b", 8, 1, (1,)), Storage("c", 3, 2, ())])
    assert tl.peak() == Peak(8, 0)


def test_a_storage_without_users_counts_only_where_it_is_produced() -> None:
    tl = Timeline(3, [Storage("waste", 7, 1, ())])
    assert (during(tl), after(tl)) == ([0, 7, 0], [0, 0, 0])
    assert tl.life("waste") == Life(1, 1, 7, True, "waste")


def test_an_output_is_never_freed() -> None:
    tl = Timeline(3, [Storage("y", 7, 0, (1,), freeable=False)])
    assert after(tl) == [7, 7, 7]
    assert tl.life("y") == Life(0, 1, 7, False, "y")


def test_a_donated_input_is_freed_after_its_last_user_and_a_kept_one_is_not() -> None:
    donated = Storage("donated", 5, None, (0,))
    kept = Storage("kept", 3, None, (0,), freeable=False)
    tl = Timeline(2, [donated, kept])
    assert (during(tl), after(tl)) == ([8, 3], [3, 3])
    assert tl.life("donated") == Life(None, 0, 5, True, "donated")
    assert tl.life("kept") == Life(None, 0, 3, False, "kept")


def test_a_donated_input_without_users_never_counts_and_a_kept_one_always_does() -> None:
    tl = Timeline(1, [Storage("donated", 5, None, ()), Storage("kept", 3, None, (), False)])
    assert during(tl) == [3]
    assert tl.life("donated") == Life(None, None, 0, True, None)
    assert tl.life("kept") == Life(None, None, 3, False, "kept")
    assert names(tl.live_during(0)) == ["kept"]


def test_without_steps_the_peak_is_that_of_the_inputs() -> None:
    tl = Timeline(0, [Storage("x", 5, None, (), freeable=False), Storage("unused", 9, None, ())])
    assert tl.peak() == Peak(5, None)
    assert tl.curve() == []


def test_users_may_repeat_and_include_the_producer() -> None:
    tl = Timeline(3, [Storage("a", 4, 0, (0, 2, 0, 2))])
    assert after(tl) == [4, 4, 0]


def test_live_during_names_who_is_counted_in_the_order_of_the_input() -> None:
    tl = softmax()
    assert names(tl.live_during(2)) == ["x", "shifted", "exp"]
    for point in tl.curve():
        assert sum(storage.bytes for storage in tl.live_during(point.step)) == point.during


# -- moves -----------------------------------------------------------------------------------

# Two independent chains; run one after the other they need less than interleaved.
#   a0 -> a1 -> out a     b0 -> b1 -> out b
CHAINS = (
    Storage("a", 10, 0, (2,)),
    Storage("b", 10, 1, (3,)),
    Storage("out a", 1, 2, (), freeable=False),
    Storage("out b", 1, 3, (), freeable=False),
)


def test_moving_a_step_moves_its_allocations_and_frees() -> None:
    tl = Timeline(4, CHAINS)
    assert tl.peak() == Peak(21, 2)
    tl.move_before(2, 1)
    assert tl.order() == [(0,), (2,), (1,), (3,)]
    assert during(tl) == [10, 11, 11, 12]
    assert tl.peak() == Peak(12, 3)


def test_moving_the_last_user_left_hands_the_free_to_the_one_before() -> None:
    tl = Timeline(4, [Storage("a", 5, None, (1, 3))])
    tl.move_before(3, 0)
    assert tl.life("a").last == 1
    tl.move_after(3, 2)
    assert tl.life("a").last == 3


def test_position_and_before_follow_the_moves() -> None:
    tl = Timeline([2, 0, 1], [])
    assert [tl.position(step) for step in range(3)] == [1, 2, 0]
    tl.move_after(2, 1)
    assert tl.before(0, 2)
    assert not tl.before(2, 0)
    assert not tl.before(2, 2)


def test_a_move_to_where_a_step_stands_changes_nothing() -> None:
    tl = softmax()
    tl.move_before(1, 2)
    tl.move_after(1, 0)
    assert tl.order() == [(0,), (1,), (2,), (3,), (4,)]


def test_a_user_cannot_move_before_the_producer() -> None:
    tl = softmax()
    with pytest.raises(LifeError, match="step 3 would use storage 'exp' before step 2") as refusal:
        tl.move_before(3, 2)
    assert (refusal.value.storage, refusal.value.producer, refusal.value.user) == ("exp", 2, 3)
    assert tl.peak() == Peak(301, 4)
    assert tl.order() == softmax().order()


def test_a_producer_cannot_move_behind_a_user() -> None:
    tl = softmax()
    with pytest.raises(LifeError) as refusal:
        tl.move_after(0, 1)
    assert (refusal.value.storage, refusal.value.producer, refusal.value.user) == ("max", 0, 1)


def test_a_refused_trial_leaves_no_trace() -> None:
    tl = softmax()
    mark = tl.checkpoint()
    with pytest.raises(LifeError):
        tl.peak_if_moved_before(4, 0)
    with pytest.raises(LifeError):
        tl.peak_if_merged(0, 2, 2)
    assert tl.checkpoint() == mark


def test_the_first_order_must_be_legal_too() -> None:
    with pytest.raises(LifeError, match="step 1 would use storage 'max' before step 0"):
        Timeline([1, 0], [Storage("max", 1, 0, (1,))])


# -- merges ----------------------------------------------------------------------------------


def test_a_merged_step_stands_at_the_chosen_place_and_answers_to_every_member() -> None:
    tl = Timeline(4, CHAINS)
    assert tl.merge(0, 2, at=0) == 0
    assert tl.order() == [(0, 2), (1,), (3,)]
    assert tl.position(2) == tl.position(0) == 0
    assert tl.merge(3, 2, at=3) == 3
    assert tl.order() == [(1,), (0, 2, 3)]
    assert not tl.before(0, 2)
    assert tl.life("a").first == 3


def test_a_merged_step_allocates_and_frees_its_internals() -> None:
    tl = softmax()
    tl.merge(1, 2, at=1)
    assert during(tl) == [101, 301, 201, 301]
    assert tl.life("shifted") == Life(1, 1, 100, True, "shifted")


def test_a_merged_step_that_drops_its_internals_gives_them_no_memory() -> None:
    tl = softmax(drop_internal=True)
    tl.merge(1, 2, at=1)
    assert during(tl) == [101, 201, 201, 301]
    assert tl.life("shifted") == Life(1, 1, 0, False, None)
    assert names(tl.live_during(2)) == ["x", "max", "exp"]


def test_a_storage_used_outside_or_kept_is_not_dropped() -> None:
    storages = [Storage("used", 4, 0, (1, 2)), Storage("kept", 2, 0, (1,), freeable=False)]
    tl = Timeline(3, storages, drop_internal=True)
    tl.merge(0, 1, at=0)
    assert during(tl) == [6, 6]


def test_one_merge_may_decide_otherwise_about_its_internals() -> None:
    tl = softmax()
    assert tl.peak_if_merged(1, 2, 1, drop_internal=True) == Peak(301, 4)
    tl.merge(1, 2, at=1, drop_internal=True)
    assert tl.life("shifted").host is None
    tl.merge(1, 3, at=1, drop_internal=False)
    assert tl.life("shifted").host == "shifted"


def test_what_only_one_step_touches_is_dropped_once_that_step_is_merged() -> None:
    tl = Timeline(2, [Storage("scratch", 9, 0, (0,)), Storage("waste", 5, 0, ())])
    assert tl.peak() == Peak(14, 0)
    tl.merge(0, 1, at=0, drop_internal=True)
    assert tl.peak() == Peak(0, 0)


def test_a_merge_cannot_carry_a_producer_behind_a_user() -> None:
    tl = softmax()
    with pytest.raises(LifeError):
        tl.merge(0, 2, at=2)
    with pytest.raises(LifeError):
        tl.merge(1, 3, at=1)
    assert tl.order() == softmax().order()


def test_a_move_of_a_merged_step_respects_the_lives_of_all_members() -> None:
    tl = softmax()
    tl.merge(2, 3, at=2)
    with pytest.raises(LifeError):
        tl.move_after(3, 4)
    with pytest.raises(LifeError):
        tl.move_before(3, 1)


# -- hand-overs ------------------------------------------------------------------------------


def test_a_hand_over_saves_the_allocation_and_the_block_lives_on() -> None:
    tl = softmax()
    tl.hand_over("exp", "shifted")
    assert tl.effective_hand_overs() == {"exp": "shifted"}
    assert during(tl) == [101, 201, 200, 201, 301]
    assert tl.life("exp") == Life(2, 4, 0, True, "shifted")
    assert tl.life("shifted") == Life(1, 2, 100, False, "shifted")
    assert names(tl.live_during(3)) == ["x", "shifted", "sum"]


def test_a_chain_of_hand_overs_folds_into_the_first_block() -> None:
    tl = softmax()
    tl.hand_over("y", "exp")
    tl.hand_over("exp", "shifted")
    assert during(tl) == [101, 201, 200, 201, 201]
    assert tl.life("y") == Life(4, 4, 0, False, "shifted")
    assert after(tl)[-1] == 200


def test_a_smaller_taker_frees_the_whole_block_it_took() -> None:
    storages = [Storage("a", 9, 0, (1,)), Storage("b", 4, 1, (2,)), Storage("c", 3, 2, (3,))]
    tl = Timeline(4, storages)
    tl.hand_over("c", "b")
    tl.hand_over("b", "a")
    assert (during(tl), after(tl)) == ([9, 9, 9, 9], [9, 9, 9, 0])


def test_a_hand_over_goes_void_with_a_move_and_comes_back_with_the_next() -> None:
    # b takes the block of a at step 1, unless step 2 reads a after that.
    tl = Timeline(4, [Storage("a", 8, 0, (1, 2)), Storage("b", 8, 1, (3,))])
    tl.hand_over("b", "a")
    assert tl.effective_hand_overs() == {}
    assert tl.peak() == Peak(16, 1)
    tl.move_before(2, 1)
    assert tl.effective_hand_overs() == {"b": "a"}
    assert tl.peak() == Peak(8, 0)
    tl.move_after(2, 1)
    assert tl.effective_hand_overs() == {}
    assert tl.peak() == Peak(16, 1)


def test_a_hand_over_into_a_too_small_block_is_never_effective() -> None:
    tl = Timeline(2, [Storage("a", 3, 0, (1,)), Storage("b", 4, 1, ())])
    tl.hand_over("b", "a")
    assert tl.effective_hand_overs() == {}


def test_a_kept_input_gives_nothing_away_and_a_donated_one_does() -> None:
    storages = [
        Storage("kept", 4, None, (0,), freeable=False),
        Storage("donated", 4, None, (0,)),
        Storage("y", 4, 0, ()),
        Storage("z", 4, 0, ()),
    ]
    tl = Timeline(1, storages)
    tl.hand_over("y", "kept")
    tl.hand_over("z", "donated")
    assert tl.effective_hand_overs() == {"z": "donated"}
    assert (during(tl), after(tl)) == ([12], [4])


def test_a_dropped_storage_takes_no_part_in_a_hand_over() -> None:
    tl = softmax(drop_internal=True)
    tl.hand_over("exp", "shifted")
    tl.merge(1, 2, at=1)
    assert tl.effective_hand_overs() == {}
    assert tl.life("exp") == Life(1, 4, 100, True, "exp")


def test_a_giver_is_freed_where_its_taker_is_dropped() -> None:
    storages = [Storage("a", 8, 0, (1,)), Storage("b", 8, 1, (2,)), Storage("c", 1, 2, (3,))]
    tl = Timeline(4, storages, drop_internal=True)
    tl.hand_over("b", "a")
    tl.merge(1, 2, at=1)
    assert tl.effective_hand_overs() == {}
    assert (during(tl), after(tl)) == ([8, 9, 1], [8, 1, 0])


def test_a_merge_can_make_a_hand_over_effective() -> None:
    tl = Timeline(3, [Storage("a", 8, None, (0, 1)), Storage("b", 8, 0, (2,))])
    tl.hand_over("b", "a")
    assert tl.effective_hand_overs() == {}
    tl.merge(0, 1, at=1)
    assert tl.effective_hand_overs() == {"b": "a"}
    assert during(tl) == [8, 8]


def test_a_storage_gives_once_takes_once_and_never_in_a_circle() -> None:
    tl = Timeline(1, [Storage(name, 1, 0, (0,)) for name in "abcd"])
    tl.hand_over("b", "a")
    with pytest.raises(ValueError, match="'b' already takes over 'a', not also 'c'"):
        tl.hand_over("b", "c")
    with pytest.raises(ValueError, match="'a' is already handed to 'b', not also 'c'"):
        tl.hand_over("c", "a")
    tl.hand_over("c", "b")
    with pytest.raises(ValueError, match="circle"):
        tl.hand_over("a", "c")
    with pytest.raises(ValueError, match="circle"):
        tl.hand_over("d", "d")


# -- trying ----------------------------------------------------------------------------------


def test_a_trial_tells_the_peak_and_leaves_everything_as_it_was() -> None:
    tl = Timeline(4, CHAINS)
    assert tl.peak_if_moved_before(2, 1) == Peak(12, 3)
    assert tl.peak_if_merged(0, 2, 2) == Peak(21, 2)
    assert tl.peak_if_merged(0, 2, 2, drop_internal=True) == Peak(12, 3)
    assert tl.order() == [(0,), (1,), (2,), (3,)]
    assert tl.peak() == Peak(21, 2)


def test_marks_nest_and_undo_moves_merges_and_hand_overs() -> None:
    tl = softmax(drop_internal=True)
    outer, start = tl.checkpoint(), tl.curve()
    tl.hand_over("exp", "shifted")
    inner, middle = tl.checkpoint(), tl.curve()
    tl.merge(1, 2, at=2)
    tl.merge(3, 4, at=3)
    tl.merge(1, 3, at=1)
    tl.rollback(inner)
    assert tl.curve() == middle
    assert tl.effective_hand_overs() == {"exp": "shifted"}
    tl.rollback(outer)
    assert tl.curve() == start
    assert tl.order() == softmax().order()
    tl.hand_over("exp", "shifted")


def test_a_mark_goes_stale_when_what_came_before_it_is_undone() -> None:
    tl = Timeline(4, CHAINS)
    outer = tl.checkpoint()
    tl.move_before(2, 1)
    inner = tl.checkpoint()
    tl.rollback(outer)
    with pytest.raises(ValueError, match="stale"):
        tl.rollback(inner)
    tl.move_before(3, 2)
    with pytest.raises(ValueError, match="stale"):
        tl.rollback(inner)


def test_committed_changes_cannot_be_undone() -> None:
    tl = Timeline(4, CHAINS)
    mark = tl.checkpoint()
    tl.move_before(2, 1)
    tl.commit()
    with pytest.raises(ValueError, match="stale"):
        tl.rollback(mark)
    tl.rollback(tl.checkpoint())
    assert tl.order() == [(0,), (2,), (1,), (3,)]


# -- bad input -------------------------------------------------------------------------------


def test_bad_input_is_refused_with_its_name() -> None:
    with pytest.raises(ValueError, match="'a' has -1 bytes"):
        Storage("a", -1, None, ())
    with pytest.raises(ValueError, match="permutation"):
        Timeline([0, 2], [])
    with pytest.raises(ValueError, match="two storages are named 'a'"):
        Timeline(1, [Storage("a", 1, 0, ()), Storage("a", 2, 0, ())])
    with pytest.raises(ValueError, match="'a' is used by step 1 of 1"):
        Timeline(1, [Storage("a", 1, 0, (1,))])
    with pytest.raises(ValueError, match="'a' is produced by step -1 of 1"):
        Timeline(1, [Storage("a", 1, -1, ())])


def test_bad_questions_are_refused_with_their_name() -> None:
    tl = softmax()
    with pytest.raises(ValueError, match="no step -1; steps are 0 to 4"):
        tl.position(-1)
    with pytest.raises(ValueError, match="same step"):
        tl.move_before(1, 1)
    with pytest.raises(ValueError, match="step 3 is neither"):
        tl.merge(1, 2, at=3)
    with pytest.raises(KeyError, match="no storage is named 'z'"):
        tl.life("z")


# -- large structures ------------------------------------------------------------------------


def test_a_hub_finds_its_first_and_last_user_while_they_move() -> None:
    count = 500
    tl = Timeline(count, [Storage("hub", 6, 0, tuple(range(1, count - 1)))])
    for step in range(count - 2, 1, -1):
        assert tl.life("hub").last == step
        tl.move_before(step, 1)
    assert tl.life("hub").last == 1
    with pytest.raises(LifeError) as refusal:
        tl.move_before(0, count - 1)
    assert refusal.value.user == count - 2
    tl.merge(0, count - 2, at=0)
    with pytest.raises(LifeError) as refusal:
        tl.move_before(0, count - 1)
    assert refusal.value.user == count - 3


def test_a_step_that_swallowed_all_users_of_a_hub_moves_freely() -> None:
    tl = Timeline(102, [Storage("hub", 6, 0, tuple(range(1, 100)))])
    for step in range(1, 100):
        tl.merge(0, step, at=0)
    tl.move_after(0, 101)
    assert tl.order()[-1] == tuple(range(100))
    assert tl.peak() == Peak(6, 0)


def test_a_step_that_swallowed_the_first_users_of_a_hub_stays_before_the_others() -> None:
    tl = Timeline(502, [Storage("hub", 6, 0, tuple(range(1, 500)))])
    for step in range(1, 400):
        tl.merge(0, step, at=0)
    with pytest.raises(LifeError) as refusal:
        tl.move_after(0, 501)
    assert refusal.value.user == 400


@pytest.mark.parametrize("spot", [NOWHERE, 0, 1500, 2999])
def test_one_place_of_an_order_takes_any_number_of_items(spot: int) -> None:
    count = 3000
    sequence = WeightedSequence(range(count), [1] * count, [0] * count)
    expected = list(range(count))
    random = Random(spot)
    for _ in range(2500):
        item = random.choice([item for item in random.sample(range(count), 2) if item != spot])
        sequence.move_after(item, spot)
        expected.remove(item)
        expected.insert(0 if spot == NOWHERE else expected.index(spot) + 1, item)
    assert list(sequence) == expected
    assert sorted(expected, key=sequence.label.__getitem__) == expected
    assert [sequence.rank(item) for item in expected] == list(range(count))
    assert sequence.peak() == (count, expected[-1])


def test_an_order_can_be_emptied_and_filled_again() -> None:
    sequence = WeightedSequence(range(200), range(200), [0] * 200)
    for item in range(200):
        assert sequence.remove(item) == (item, 0)
    assert (len(sequence), list(sequence)) == (0, [])
    for item in range(200):
        sequence.insert_after(item, NOWHERE, 1, 1)
    assert len(sequence) == 200
    assert list(sequence) == list(range(199, -1, -1))
    assert sequence.peak() == (1, 199)


def test_a_fringe_recovers_when_all_it_kept_went_inwards() -> None:
    far = list(range(500))
    fringe = Fringe(range(500), far.__getitem__)
    for item in range(499, 0, -1):
        assert fringe.farthest() == item
        fringe.leave(item)
        far[item] = -item
        fringe.join(item)
    assert fringe.farthest() == 0


def test_a_fringe_keeps_the_farthest_when_many_come_out() -> None:
    far = list(range(500))
    fringe = Fringe(range(500), far.__getitem__)
    assert fringe.farthest() == 499
    for item in range(499):
        fringe.leave(item)
        far[item] = 500 + item
        fringe.join(item)
        assert fringe.farthest() == item


def test_a_fringe_ignores_strangers() -> None:
    far = list(range(10))
    fringe = Fringe(range(0, 10, 2), far.__getitem__)
    assert fringe.farthest() == 8
    fringe.leave(9)
    far[9] = 99
    fringe.join(9)
    assert fringe.farthest() == 8
