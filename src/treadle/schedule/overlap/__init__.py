"""Orders in which communication hides behind compute: found by a model, judged by simulation.

roles.py           which tasks only feed collectives, which only follow waits, and the rest
list_schedule.py   an order made task by task along simulated time, within memory
local_search.py    small changes to an order as long as they pay
anneal.py          a longer search for small programs
exact.py           the best order of a small program, proved by a solver
search.py          the best of several, with the bound that says how much better any could be
by_model.py        what the pass `order-collectives` does with it, with verdicts
bucketing.py       which small collectives are worth sending as one
splitting.py       which large collectives are worth sending in parts
agreement.py       the order of collectives as data that ranks can compare
dead.py            collectives that nobody needs
"""
