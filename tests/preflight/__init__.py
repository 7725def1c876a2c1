"""Preflight and patches: judgements on gathered facts, on synthetic trees of files and on real engines."""
