"""A plugin of the engine that makes every weight shard take LAB_SHARD_DELAY seconds longer, so that a load can be watched.

The engine finds it because this folder is on PYTHONPATH, and loads it in each of its processes, spawned ones too. The
progress bar, its lines and their timing stay the engine's own: only the file iterator under it waits.
"""

import os
import time


def register() -> None:
    delay = float(os.environ.get("LAB_SHARD_DELAY") or 0)
    if delay <= 0:
        return
    from vllm.model_executor.model_loader import weight_utils

    engine_bar = weight_utils.tqdm
    if getattr(engine_bar, "lab_slow", False):
        return  # registered before in this process

    class SlowBar(engine_bar):
        lab_slow = True

        def __iter__(self):
            for item in super().__iter__():
                if isinstance(item, str) and item.endswith(".safetensors"):
                    time.sleep(delay)
                yield item

    weight_utils.tqdm = SlowBar
