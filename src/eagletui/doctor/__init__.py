"""Checks of everything between this terminal and a host's cards: what works, what does not, and the fix.

`facts` gathers over the session, the modules of checks judge: pure functions from facts to findings.
"""

from __future__ import annotations

from eagletui.doctor.findings import Finding, verdict
from eagletui.doctor.run import examine, examine_client, examine_host

__all__ = ["Finding", "examine", "examine_client", "examine_host", "verdict"]
