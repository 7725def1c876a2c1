"""Failures that are provoked on purpose on the real engines, and what preflight and diagnose say of each: ``make provoke``.

``cases_vllm`` and ``cases_sglang`` are the tables, ``models`` builds the broken models, ``run`` runs one case, ``__main__`` all
of them and writes docs/provoked.md.
"""
