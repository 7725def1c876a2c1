"""`speculators train ...` on a machine without an accelerator: same arguments, same files, same exit code as on a GPU host.

The trainer of speculators 0.9.0 assumes a torch accelerator in five places; each is answered for the CPU here. Lab only.
"""

import sys

import torch
import torch.utils.data

CPU = torch.device("cpu")
torch.accelerator.current_accelerator = lambda check_available=False: None if check_available else CPU
torch.accelerator.is_available = lambda: False
torch.accelerator.synchronize = lambda *args: None
torch.accelerator.current_device_index = lambda: 0
torch.accelerator.set_device_index = lambda *args: None

import speculators.train.recovery  # noqa: E402 - after torch.accelerator is answered for
import speculators.train.trainer  # noqa: E402

speculators.train.trainer.get_local_rank = lambda: CPU  # model.to(local_rank)
speculators.train.recovery.get_local_rank = lambda: 0

if __name__ == "__main__":  # dataloader workers import this file again
    from speculators.__main__ import app

    sys.argv[0] = "speculators"
    app()
