"""What the data layer decides: order, randomness, identity of content, and who is in which split.

`order` and `randomness` are pure arithmetic, `content` hashes one item, `members` writes a split to the
store and reads it back. Nothing here imports torch or ray; a dataset is anything with a length and items.
"""
