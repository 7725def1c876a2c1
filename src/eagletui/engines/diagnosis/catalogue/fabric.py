"""NCCL, PCIe peer to peer, shared memory, and ranks that do not meet."""

from __future__ import annotations

from eagletui.engines.diagnosis.entry import HEARSAY, LOAD, SEEN, SERVING, VLLM, WORKERS, Signature

ENTRIES = (
    Signature(
        id="shm-full",
        title="/dev/shm is full or too small",
        keys=("No space left on device", "shared memory segment", "posix_fallocate", "psm_"),
        pattern=r"(?:shared memory segment|posix_fallocate|failed to extend|/dev/shm|psm_\w+|nccl-\w+)[\s\S]{0,200}No space left|"
        r"No space left on device[^\n]{0,80}/dev/shm|unable to (?:open|allocate) shared memory|"
        r"Error while creating shared memory segment",
        cause="NCCL and the engines' message queues lie in /dev/shm: a container has 64 MB of it unless told otherwise, or"
        " leftovers of dead"
        " servers fill it",
        remedy="start the container with --shm-size=16g or --ipc=host; remove leftovers: ls -la /dev/shm (nccl-*, psm_*)",
        stage=WORKERS,
        source="vllm-project/vllm#1710; nccl#290; llama.cpp#23523",
        hit="gpu1:423:1200 [3] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-Xy1 to 9637892 bytes,"
        " error: No space"
        " left on device (28)\nRuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        miss="OSError: [Errno 28] No space left on device: '/root/.cache/vllm/torch_compile_cache'",
        provenance=SEEN,
        confidence=0.98,
    ),
    Signature(
        id="bus-error",
        title="a process died of a bus error: /dev/shm is full",
        keys=("Bus error", "SIGBUS"),
        pattern=r"Bus error|SIGBUS|signal 7\b",
        cause="memory mapped from /dev/shm could not be backed (or a file that was mapped has been cut)",
        remedy="make room in /dev/shm: --shm-size=16g or --ipc=host for a container, remove leftovers; then check the model's"
        " disk",
        stage=LOAD,
        source="torch, NCCL",
        hit="Fatal Python error: Bus error",
        miss="WARNING 11-29 10:00:00 [x.py:1] PCIe Bus errors are reported by dmesg",
        confidence=0.9,
    ),
    Signature(
        id="nccl-watchdog",
        title="a rank did not come to a collective operation in time ({op}, {ms} ms)",
        keys=("atchdog caught collective operation timeout",),
        pattern=r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+),"
        r" OpType=(?P<op>\w+).*?Timeout\(ms\)=(?P<ms>\d+)|"
        r"[Ww]atchdog caught collective operation timeout",
        cause="one rank hung, died or was still reading while the others waited for it",
        remedy="find the rank whose last line is oldest; NCCL_P2P_DISABLE=1 proves a broken peer-to-peer path (then IOMMU off,"
        " ACS off);"
        " --disable-custom-all-reduce; a slow load needs a longer --dist-timeout",
        stage=WORKERS,
        source="sgl-project/sglang#3783; vllm-project/vllm#2734",
        hit="[rank3]:[E1129 12:00:00.123 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before"
        " timing out.",
        miss="[rank3]:[W1129 12:00:00.123 ProcessGroupNCCL.cpp:632] Using default timeout",
        provenance=SEEN,
        confidence=0.9,
    ),
    Signature(
        id="nccl-graph-file",
        title="NCCL's graph file does not fit the group of cards",
        keys=("NCCL_GRAPH_FILE", "graph XML", "Could not find NET", "XML"),
        pattern=r"NCCL WARN.*(?:NCCL_GRAPH_FILE|[Gg]raph (?:XML|file)|XML).*(?:[Ee]rror|fail|mismatch|not find|[Ii]nvalid)",
        cause="a graph file written for eight ranks breaks smaller groups (context parallel groups, TP below 8)",
        remedy="unset NCCL_GRAPH_FILE",
        stage=WORKERS,
        source="local-inference-lab/rtx6kpro nccl tuning",
        hit="gpu1:423:1200 [3] graph/xml.cc:12 NCCL WARN XML Error: could not find gpu 7 in graph\n"
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        miss="gpu1:423:1200 [3] NCCL INFO NCCL_GRAPH_FILE set by environment to /opt/graph.xml",
        provenance=HEARSAY,
        confidence=0.7,
    ),
    Signature(
        id="nccl-illegal-access",
        title="an illegal memory access within a collective operation",
        keys=("illegal memory access",),
        pattern=r"illegal memory access",
        trace=(r"all_?reduce|all_?gather|pynccl|ncclAll|collective",),
        cause="NCCL 2.26.2 has such an error on RTX PRO 6000 from 512 KiB on; or the peer-to-peer path of these cards is broken",
        remedy="another NCCL (2.28.9 or 2.31.2: pip install nvidia-nccl-cu13==...); NCCL_P2P_DISABLE=1 to prove the path",
        stage=WORKERS,
        source="nccl#2418",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/vllm/distributed/device_communicators/pynccl.py", line 9, in <module>\n'
        "    self.nccl.ncclAllReduce(\n"
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/vllm/model_executor/models/llama.py", line 9, in <module>\n'
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        provenance=SEEN,
        confidence=0.93,
    ),
    Signature(
        id="nccl-error",
        title="NCCL failed: {what}",
        keys=(
            "NCCL error",
            "ncclSystemError",
            "ncclUnhandledCudaError",
            "ncclInternalError",
            "ncclInvalidUsage",
            "ncclRemoteError",
        ),
        pattern=r"NCCL error(?: in)?:? ?(?:\S+:\d+, )?(?P<what>(?:unhandled|internal|invalid|remote)[\w ]*"
        r" (?:error|usage)|[^\n(]{0,80})|"
        r"(?P<name>nccl(?:System|UnhandledCuda|Internal|Remote)Error|ncclInvalid\w+)",
        cause="the cause stands in the lines `NCCL WARN` above it, when there are any",
        remedy="run again with NCCL_DEBUG=INFO and read the first NCCL WARN; /dev/shm, free memory of the cards and IOMMU/ACS"
        " are the usual"
        " ones",
        stage=WORKERS,
        source="vllm-project/vllm#6574, #4383",
        hit="torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:3356, unhandled system error"
        " (run with"
        " NCCL_DEBUG=INFO for details), NCCL version 2.27.3",
        miss="gpu1:423:1200 [3] NCCL INFO comm 0x55 rank 3 nranks 8",
        provenance=SEEN,
        confidence=0.8,
        weak=True,
    ),
    Signature(
        id="p2p-no-access",
        title="peer access between cards could not be set up",
        keys=("peer access", "cudaDeviceEnablePeerAccess", "cudaIpcOpenMemHandle", "invalid device ordinal (peer)"),
        pattern=r"peer access (?:is not supported|not supported|is already enabled|could not)|cudaErrorPeerAccessUnsupported|"
        r"(?:cudaIpcOpenMemHandle|cudaDeviceEnablePeerAccess).*(?:fail|error|invalid)",
        cause="the driver advertises a path between two cards that does not work, or does not offer one",
        remedy="--disable-custom-all-reduce and NCCL_P2P_DISABLE=1; then IOMMU off, ACS off, and the driver's peer-to-peer"
        " settings;"
        " remove ~/.cache/vllm/gpu_p2p_access_cache_*.json after changing them",
        stage=WORKERS,
        source="vllm/distributed/device_communicators/custom_all_reduce.py",
        hit="RuntimeError: CUDA error: peer access is not supported between these two devices",
        miss="INFO 11-29 10:00:00 [x.py:1] generating GPU P2P access cache in /root/.cache/vllm",
        confidence=0.9,
    ),
    Signature(
        id="rendezvous",
        title="the ranks could not meet at {where}",
        keys=("DistNetworkError", "DistStoreError", "EADDRINUSE", "client socket has", "init_process_group"),
        pattern=r"Dist(?:Network|Store)Error: (?P<why>[^\n]{0,160})|The client socket has (?:timed out|failed to"
        r" connect)[^\n]*?\(?(?P<where>[\w.:\[\]-]*:?\d*)\)?",
        cause="torch's store at the master address was not reached, or its port is taken: a wrong interface, a firewall,"
        " another job",
        remedy="set VLLM_HOST_IP (or --dist-init-addr) to an address of this host, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME"
        " to its interface;"
        " end leftovers that hold the port",
        stage=WORKERS,
        source="torch/distributed",
        hit="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
        " 29500, useIpv6:"
        " false, code: -98, name: EADDRINUSE, message: address already in use",
        miss="INFO 11-29 10:00:00 [x.py:1] world_size=8 rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:29500"
        " backend=nccl",
        confidence=0.88,
    ),
    Signature(
        id="gloo-interface",
        title="Gloo found no network interface for this host's name",
        keys=("Gloo", "gloo"),
        pattern=r"[Gg]loo\b[\s\S]{0,120}(?:Unable to resolve hostname|Unable to find address|connectFullMesh failed|No such"
        r" device)",
        cause="the host's own name does not resolve to an address of one of its interfaces",
        remedy="add the host's name to /etc/hosts, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME",
        stage=WORKERS,
        source="torch/distributed (gloo)",
        hit="RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] Gloo: Unable to find address for: gpu1",
        miss="[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7",
        confidence=0.85,
    ),
    Signature(
        id="cuda-fork",
        title="CUDA was used before the workers were forked",
        keys=("re-initialize CUDA in forked subprocess",),
        pattern=r"Cannot re-initialize CUDA in forked subprocess",
        cause="something touched CUDA in the parent (a plugin, a profiler), and its children were forked",
        remedy="set VLLM_WORKER_MULTIPROC_METHOD=spawn",
        stage=WORKERS,
        source="torch/cuda",
        hit="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the"
        " 'spawn' start method",
        miss="WARNING 11-29 10:00:00 [x.py:1] We must use the `spawn` multiprocessing start method. Reason: CUDA is initialized",
        confidence=0.96,
    ),
    Signature(
        id="device-ordinal",
        title="more cards were asked for than this process sees",
        keys=("invalid device ordinal", "Not enough", "not enough", "larger than the number of available", "visible device"),
        pattern=r"CUDA error: invalid device ordinal|"
        r"(?:[Ww]orld size|tensor parallel size) \(?(?P<want>\d+)\)? (?:is larger|cannot be larger|exceeds)"
        r" than?.{0,40}(?:available|number of) (?:GPUs|devices)|"
        r"Local world size \(\d+\) must be less than or equal to the number of visible devices",
        cause="--tensor-parallel-size is more than CUDA_VISIBLE_DEVICES (or the container) shows",
        remedy="lower --tensor-parallel-size, or give all cards: CUDA_VISIBLE_DEVICES, --gpus all; nvidia-smi shows what is"
        " there",
        stage=WORKERS,
        source="vllm/v1/worker/gpu_worker.py; torch",
        hit="torch.AcceleratorError: CUDA error: invalid device ordinal",
        miss="INFO 11-29 10:00:00 [x.py:1] using device ordinal 3",
        confidence=0.92,
    ),
    Signature(
        id="mp-queue-timeout",
        title="a worker did not answer within the time given ({method})",
        keys=("RPC call to",),
        pattern=r"RPC call to (?P<method>\w+) timed out",
        cause="a step took longer than VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS (300): ranks wait for each other, or a kernel is"
        " compiled",
        remedy="if the cards were busy at low power all that time: NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce prove a"
        " broken path;"
        " else raise VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        stage=SERVING,
        source="vllm/v1/executor/multiproc_executor.py",
        hit="TimeoutError: RPC call to execute_model timed out.",
        miss="TimeoutError: request timed out",
        confidence=0.88,
        engine=VLLM,
    ),
    Signature(
        id="cuda-intercepted",
        title="a library between the engine and CUDA interferes (libvgpu.so)",
        keys=("libvgpu",),
        pattern=r"libvgpu\.so.*(?:[Ee]rror|fail|cannot)",
        cause="a vGPU shim of the cluster intercepts CUDA calls; NCCL hangs or fails behind it",
        remedy="set CUDA_DISABLE_CONTROL=true, or run without the shim",
        stage=WORKERS,
        source="HAMi#2641",
        hit="[HAMI-core ERROR (pid:11 thread=1 libvgpu.so)]: failed\nRuntimeError: CUDA driver error: unknown",
        miss="[HAMI-core Msg(11:1:libvgpu.c:855)]: Initialized",
        provenance=HEARSAY,
        confidence=0.6,
    ),
)
