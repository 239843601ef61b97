"""The same launch as a Ray job: one operation with one id, sent once, followed, and read from the store in the end."""
