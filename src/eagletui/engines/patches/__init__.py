"""Named, reversible changes to an installed engine's source.

A set is a few hunks, each with the exact lines it replaces: text that is not there exactly once is not touched. ``sets`` lists
them, ``core`` says what state a file is in and what it becomes. Pure functions on texts; files are read and written elsewhere.
"""
