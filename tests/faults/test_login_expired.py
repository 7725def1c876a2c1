"""A login that the host itself no longer allows: an expired password, an expired account. Told as such, and not tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagletui.hosts.base import HostError
from tests.machine.nspawn import Machine
from tests.machine.seat import Seat

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]


@pytest.mark.fault(37, how="chage -d 0: the password must be changed at the next login; and an account that has expired")
async def test_an_expired_password_is_told_and_no_reason_to_try_again(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = Seat(machine, tmp_path / "home", "ann")
    for name, value in seat.env.items():
        monkeypatch.setenv(name, value)
    await seat.sit()
    await seat.leave()

    machine.run("chage", "-d", "0", "ann")
    with pytest.raises(HostError) as caught:
        await seat.sit()
    assert not caught.value.retry, caught.value
    assert "password" in str(caught.value).lower()

    machine.run("chage", "-d", "-1", "ann")
    await seat.sit()
    await seat.leave()

    machine.run("chage", "-E", "1", "ann")
    with pytest.raises(HostError) as caught:
        await seat.sit()
    assert not caught.value.retry, caught.value
    machine.run("chage", "-E", "-1", "ann")
    await seat.sit()
    await seat.leave()
