"""What NVML's answers mean: pure conversions, and the questions against what pynvml offers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from eagletui.agent import nvml
from eagletui.agent.gpu_trouble import crash_text, failure_text, hang_text
from eagletui.agent.rounding import mebibytes, significant, watts
from eagletui.agent.worker import Cell


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, []),
        (1, []),  # idle is no throttle
        (0x4, ["SW power cap"]),
        (0x8, ["HW slowdown"]),
        (0x88, ["HW power brake"]),
        (0x48, ["HW thermal"]),
        (0x1FF, [name for _, name in nvml.THROTTLE if name != "HW slowdown"]),
        (0x801, ["reason 0x800"]),
    ],
)
def test_throttle_reasons(bits: int, names: list[str]) -> None:
    assert nvml.throttle_names(bits) == names


def test_the_bits_and_numbers_are_those_of_pynvml() -> None:
    named = {
        "application clocks": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "SW power cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "HW thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "HW power brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        "HW slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "SW thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "display clocks": pynvml.nvmlClocksEventReasonDisplayClockSetting,
    }
    assert {name: bit for bit, name in nvml.THROTTLE} == named
    assert nvml.FI_MEMORY_TEMP == pynvml.NVML_FI_DEV_MEMORY_TEMP
    assert nvml.FI_PCIE_TX == pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    assert nvml.FI_PCIE_RX == pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
    assert nvml.FI_RECOVERY == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    assert nvml.RECOVERY.index("none") == pynvml.NVML_GPU_RECOVERY_ACTION_NONE
    assert nvml.RECOVERY.index("reboot the node") == pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
    assert nvml.RECOVERY.index("reboot the system") == pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT
    assert {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND} <= nvml.NOT_SUPPORTED
    assert {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED} <= nvml.LOST
    assert {pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, pynvml.NVML_ERROR_UNINITIALIZED} <= nvml.BROKEN
    assert not nvml.LOST & nvml.NOT_SUPPORTED & nvml.BROKEN
    assert nvml.GROUPS["fast"][1].args == (pynvml.nvmlMemory_v2,)


def test_every_question_is_a_call_of_pynvml() -> None:
    asked = [question for group in nvml.GROUPS.values() for question in group]
    asked += [question.instead for question in asked if question.instead is not None]
    assert len(asked) > 25
    assert [q.call for q in asked if not hasattr(pynvml, q.call)] == []


def test_the_fields_are_those_of_the_record() -> None:
    from eagletui.records import GpuSample

    values: dict[str, Any] = {"nvmlDeviceGetPowerManagementLimitConstraints": [1, 2], "nvmlDeviceGetRemappedRows": (0, 0, 0, 1)}
    anything = SimpleNamespace(busId=b"0", bar1Total=1, gpu=1, memory=1, used=1, total=2, reserved=0)
    field = SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=1))
    values["nvmlDeviceGetFieldValues"] = [field]
    plain = ("Utilization", "MemoryInfo", "BAR1", "PciInfo")
    fields: set[str] = set()
    for group in nvml.GROUPS.values():
        for question in group:
            structure = any(word in question.call for word in plain)
            fields |= set(question.read(values.get(question.call, anything if structure else 1)))
    assert fields < set(GpuSample._fields)
    assert {"util", "power", "rows_failed", "recovery", "temp_mem", "energy", "bar1_total", "mem_reserved"} < fields


def test_rounding() -> None:
    assert (watts(39170), watts(99949), watts(100400), watts(312600)) == (39.2, 99.9, 100.0, 313.0)
    assert (significant(0.0), significant(765432.0), significant(12345678.0, 3)) == (0.0, 770000.0, 12300000.0)
    assert mebibytes(5 * 1024 * 1024 + 7) == 5 * 1024 * 1024


def test_field_values_of_every_type() -> None:
    union = SimpleNamespace(dVal=1.5, uiVal=2, ulVal=3, ullVal=4, sllVal=-5, siVal=-6)
    values = [SimpleNamespace(nvmlReturn=0, valueType=t, value=union) for t in range(6)]
    values += [SimpleNamespace(nvmlReturn=3, valueType=1, value=union), SimpleNamespace(nvmlReturn=0, valueType=9, value=union)]
    assert nvml._field_values(values) == [1.5, 2, 3, 4, -5, -6, None, None]


class Pynvml:
    """Answers two counters as told."""

    NVMLError = pynvml.NVMLError

    def __init__(self) -> None:
        self.counters = (0, 0)

    def nvmlDeviceGetFieldValues(self, handle: Any, ids: Any) -> Any:
        return [SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=n)) for n in self.counters]


def test_traffic_is_a_difference_and_a_wrap_is_no_rate() -> None:
    asker = nvml.Asker(Cell(), b"")
    asker.nvml = Pynvml()
    card = nvml.Card(0, None)
    assert asker.traffic(card) == {}, "one reading is no rate"
    asker.nvml.counters = (10**12, 10**11)
    found = asker.traffic(card)
    assert found["pcie_tx"] > found["pcie_rx"] > 0
    asker.nvml.counters = (5, 2 * 10**11)
    assert asker.traffic(card) == {}, "the counter wrapped"
    assert asker.traffic(card) == {"pcie_tx": 0.0, "pcie_rx": 0.0}


def test_pynvml_that_cannot_be_loaded_is_told() -> None:
    answer = nvml.Asker(Cell(), b"import no_such_module_here").answer({"do": "open"})
    assert answer["failed"]["code"] == 0
    assert "no_such_module_here" in failure_text(0, answer["failed"]["text"], answer["failed"]["call"])
    assert "loading pynvml" in failure_text(0, answer["failed"]["text"], answer["failed"]["call"])


def test_a_python_without_ctypes_is_told_what_to_install() -> None:
    assert "libpython3-stdlib" in failure_text(0, "ModuleNotFoundError: No module named '_ctypes'", "loading pynvml")


def test_texts_of_trouble() -> None:
    assert hang_text(3, "nvmlDeviceGetPowerUsage", 6.4) == "nvmlDeviceGetPowerUsage on card 3 has not answered for 6 s"
    assert hang_text(-1, "", 2.0) == "NVML has not answered for 2 s"
    assert crash_text("it ended", -1) == "NVML: it ended; it is started again"
    assert failure_text(999, "Unknown Error", "nvmlInit") == "nvmlInit failed: Unknown Error"
