"""Synthetic sets: `raykit generate PLAN`, from approved checkpoints to closed manifests.

run       all sets of a plan, set by set: ask, freeze, canary, fan out, close
sets      what a launch finds: may they be made, from what, under which contract
money     the line that pays for it, whether it would, and what killed workers have cost
launch    one launch on its Ray
probe     the real producer is asked before anything is frozen
options   what it was measured at, way of decoding by way of decoding
freeze    the contract: what it is made of first, the event that makes it count last
pool      the workers of one set
desk      the store side of that pool: how far every unit is
task      what one worker does
close     the manifest from the receipts, and everyone who has to know of it
outcome   how the sets of a plan stand
"""
