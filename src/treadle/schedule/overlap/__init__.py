"""Orders in which communication hides behind compute: found by a model, judged by simulation.

    roles.py           which tasks only feed collectives, which only follow waits, which are the rest
    list_schedule.py   an order made task by task along simulated time, within memory
    local_search.py    small changes to an order as long as they pay
    search.py          the best of several, with the bound that says how much better any could be
    agreement.py       the order of collectives as data that ranks can compare
    bucketing.py       which small collectives are worth sending as one
"""
