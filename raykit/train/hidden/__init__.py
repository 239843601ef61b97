"""Hidden state: what training changes and no checkpoint holds.

walk      everything that hangs on a run, by name
prints    what a value comes to: a digest, and words
reads     whether the recipe's own code reads it for anything but itself and what is printed
judge     what a resume loses: three runs of the resume gate, held against each other
watch     what a run changes later on: looked for at its saves
names     how a finding is called
undo      what of this process a recipe can leave changed behind it: put back after what was only tried
"""
