"""A bounded search on Ray Tune: Tune starts trials and ends their processes; the table, the money and the truth are
raykit's own, in the store.

`driver` is the one loop. `tuning` is what Tune is given: a searcher that hands out nothing but rows of the registered
table, and a scheduler that asks Tune's own rule but never stops a trial itself. `trial` is what runs in a trial's
process, `job` what it does there.
"""
