"""What runs on the host: standard library (and pynvml in one child process), Python 3.8 syntax, no client import."""
