"""What a job's server tells by itself - ready, its model, its speed, its metrics - as its supervisor notes it."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional

from eagletui.agent.ending import merge_result
from eagletui.agent.job_lines import SAMPLES_CAP, Lines
from eagletui.agent.job_log import JobLog
from eagletui.agent.loop import boot_now
from eagletui.agent.server_probe import Owner, ServerProbe
from eagletui.agent.shim_files import Kept
from eagletui.records import to_doc


class Served(Kept, Owner):
    """The part of a supervisor that its `ServerProbe` speaks to."""

    _spec: Mapping[str, Any]
    _log: JobLog
    _probe: Optional[ServerProbe]
    _samples: Optional[Lines]
    _files_looked: float

    def _log_fields(self) -> None:
        raise NotImplementedError

    def _trouble(self, text: str) -> None:
        raise NotImplementedError

    def _log_ready(self) -> None:
        if self._probe is not None:
            self._probe.log_says_ready()

    def server_ready(self) -> None:
        self._f["health"] = "ready"
        self._f["ready_seconds"] = round(boot_now() - self._f["started_boot"], 2)
        self._log.note({"kind": "ready", "text": "answers on port %d" % self._f["port"]})
        self._samples = Lines(os.path.join(self._directory, "samples.jsonl"), SAMPLES_CAP)
        self._log_fields()
        self._write_state(sync=True)

    def server_model(self, name: str, max_model_len: Optional[int]) -> None:
        self._f["served_model"] = name
        if max_model_len is not None:
            self._f["max_model_len"] = max_model_len

    def server_version(self, version: str) -> None:
        self._f["engine_version"] = self._f.get("engine_version") or version

    def server_smoke(self, result: Dict[str, Any]) -> None:
        self._f["smoke_tokens_per_s"] = result.get("tokens_per_s")
        self._f["smoke_seconds"] = result.get("seconds")
        fields: Dict[str, Any] = {"smoke_tokens_per_s": result.get("tokens_per_s"), "smoke_seconds": result.get("seconds")}
        if result.get("problem"):
            fields["smoke_problem"] = self._f["smoke_problem"] = result["problem"]
        self._files_looked = 0.0  # the first prompt makes an engine open its last files: they are noted with the next tick
        merge_result(self._directory, {key: value for key, value in fields.items() if value is not None})
        self._log.note(dict({"kind": "smoke"}, **result))

    def server_metrics(self, text: bytes, boot: float, wall: float) -> None:
        from eagletui.engines.metrics import MetricsError, server_sample

        try:
            sample = server_sample(text, boot, wall, self._f.get("k"), self._spec.get("engine"))
            if sample is None or (sample.running is None and sample.generated_tokens is None):
                self.server_no_metrics("no numbers: its metrics page has none of vLLM or SGLang")
                return
            self._f["metrics_problem"] = None
            if self._samples is not None:
                self._samples.append(to_doc(sample))
        except MetricsError as error:
            self.server_no_metrics("no numbers: %s" % error)
        except OSError as error:
            self._trouble("samples.jsonl: %s" % (error.strerror or error))

    def server_no_metrics(self, why: str) -> None:
        self._f["metrics_problem"] = why

    def server_silent(self, why: Optional[str]) -> None:
        self._f["detail"] = None if why is None else "does not answer: %s" % why
