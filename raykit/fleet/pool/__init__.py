"""Workers of one backlog, as Ray actors: started, watched, replaced, paid for and ended, whatever their units are.

pool        the rounds: look, hear, decide, act
desk        what a pool asks of whoever knows its backlog
crew        who is there, what pays for them, and what becomes of those that end
hired       one worker, seen from its pool
actor       one worker, in its own process
process     what that process does to itself
lease       what one worker is paid from
settings    what holds for all workers of a pool
"""
