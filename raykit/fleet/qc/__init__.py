"""QC: every checkpoint examined by a pool of workers, beside training or without it.

beside     the QC of one launch or search, on what training does not hold
room       what it runs on: CPUs, workers, price
heed       what a failed check means for the run whose checkpoint it is
run        `raykit qc run`: what is open is examined without training
relock     a run that was trained is asked again, with the QC and code of today
pool       the workers
desk       the store side of that pool: what is required, open, measured, lost
task       what one worker does
pictures   charts and contact sheets
"""
