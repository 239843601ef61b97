"""Money: arithmetic only.

`amounts` are whole micro-units; `worst` is what a run may cost at most; `lines` sets a plan's ceiling aside; a
`book` is what a ledger comes to; `admit` is the door that everything that starts goes through; `acts` are what
people do; `audit` holds a ledger against all of it once more. Pure: events in, events out. The ledger that keeps them
is `raykit.store.ledger`.
"""
