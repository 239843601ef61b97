"""What people look at, made from records alone.

curves    a run as PNG: ratios, the development split, fields
drawing   what its pictures share
"""
