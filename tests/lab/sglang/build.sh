#!/usr/bin/env bash
# A real SGLang 0.5.23 that serves on a CPU, for the tests: no GPU, no AMX; Linux on x86_64 with Python 3.11.
# usage: build.sh FOLDER    makes FOLDER/venv (2.6 GB); a second run does nothing
# No supported way to install it: its kernels exist for CUDA alone, so sgl_kernel/ beside this file stands in for them in plain torch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
venv=$folder/venv
done=$folder/built
want=$(cat "$here/build.sh" "$here/constraints.txt" "$here/sgl_kernel/__init__.py" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$done" 2>/dev/null)" = "$want" ]; then
    echo "SGLang in $folder is ready"
    exit 0
fi
mkdir -p "$folder"
rm -rf "$venv" "$done"
base=
for candidate in ${PYTHON:-} python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
        base=$candidate
        break
    fi
done
[ -n "$base" ] || { echo "SGLang's CPU path is tried with Python 3.11 only, and none is found (PYTHON=/path/to/python3.11)" >&2; exit 1; }
"$base" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
# The CPU build of torch: from pip's own sources, else from PyTorch's index. SGLang asks for a newer one; this one works.
pip install -q torch==2.13.0+cpu || pip install -q --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
# SGLang without its (CUDA) dependencies; triton has to be importable only, torchvision must fit torch.
pip install -q --no-deps sglang==0.5.23 triton==3.9.0 torchvision==0.28.0
# What it imports on this path, its benchmark tool too (datasets). pip complains that SGLang's own requirements are not met, which is
# meant: only that is left out.
pip install -q -c "$here/constraints.txt" transformers tokenizers numpy orjson psutil pybase64 requests packaging pillow fastapi \
    uvicorn uvloop python-multipart prometheus-client msgspec pyzmq tqdm IPython aiohttp huggingface_hub regex dill \
    apache-tvm-ffi sentencepiece compressed-tensors gguf openai openai-harmony partial_json_parser setproctitle einops \
    jsonschema xgrammar soundfile datasets 2> >(grep -v 'sglang 0.5.23 requires\|dependency resolver' >&2)
# torchvision's operators are built for CUDA and do not load here, and then its import fails for want of their declarations.
"$venv/bin/python" - <<'P'
import importlib.util
import os

place = importlib.util.find_spec("torchvision").submodule_search_locations[0]
path = os.path.join(place, "_meta_registrations.py")
with open(path) as file:
    text = file.read()
declared = '''_declared = torch.library.Library("torchvision", "FRAGMENT")
_declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import torchvision.extension'''
assert "import torchvision.extension" in text
with open(path, "w") as file:
    file.write(text.replace("import torchvision.extension", declared, 1))
P
cp -r "$here/sgl_kernel" "$venv/lib/python3.11/site-packages/"
"$venv/bin/python" -c "import sglang, sgl_kernel; print('SGLang', sglang.__version__)"
echo "$want" >"$done"
