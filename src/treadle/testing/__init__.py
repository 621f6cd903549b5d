"""Help for tests of Treadle and of code that uses it: Hypothesis strategies. Public.

    from hypothesis import given
    from treadle.testing.strategies import programs

    @given(programs())
    def test_my_pass_keeps_the_meaning(program): ...

Nothing in Treadle imports this package, so Hypothesis is needed only by those who do.
"""
