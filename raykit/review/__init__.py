"""The review before a launch: evidence in, findings out. Pure.

evidence   what is judged, gathered by others
restart    beginning anew beside weights for the same decision: what a person is asked
"""
