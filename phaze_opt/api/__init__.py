"""The commands as functions: their options as keywords, results to look at, to tabulate and to plot.

Nothing here prints. Functions are reached as ``phaze_opt.search`` and so on; `keywords` makes them of the declarations
that the command line has.
"""
