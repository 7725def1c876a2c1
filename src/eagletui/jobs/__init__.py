"""Each kind of job, one file: its command line, the progress in its output, the check of its result. Python 3.8 syntax."""
