"""What people look at, made from records alone.

curves     a run as PNG: ratios, the development split, fields
drawing    what its pictures share
qc_series  the receipts of a suite as lines over updates
qc_charts  those lines as PNG: one chart per metric and field
sheet      the contact sheet: the shown units of the roster over updates
qc_files   all pictures of a suite's examinations, put into the store
page       an experiment as one self-contained page of HTML
"""
