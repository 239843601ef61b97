"""Synthetic sets: which rows a unit has, what a contract binds, what came of all units, and when a set is closed. Pure.

units       the division of a set into units, and their identity
spans       runs of unit numbers, as people and records have them
contract    what a contract is made of, and what differs between two
bounds      whether bad rows are more than a plan allows
standing    how far every unit is: what may be taken, what is parked, what everyone has to stop for
closing     the accounts of a set, and its manifest
fan         how many workers there may be, and what the canary has shown
options     ways of decoding, compared on quality and cost
"""
