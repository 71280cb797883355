"""FlashMLA's sparse prefill without its PyTorch extension.

    python3 bench/peers/flash_mla.py CHECKOUT OUT    # compiles OUT/flash_mla.so; one to two minutes, no GPU

CUTLASS is the checkout's submodule; $NVCC or the nvcc in the PATH compiles, with FlashMLA's own optimisation
flags: without --use_fast_math it is 7 to 10 % slower. The file can be carried to the machine with the GPU.
"""

import concurrent.futures
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

from harness import torch

HEADS_UNIT, TOPK_UNIT = 64, 128  # its kernels need multiples of these
FLAGS = """-O3 -std=c++20 -DNDEBUG -D_USE_MATH_DEFINES --expt-relaxed-constexpr --expt-extended-lambda
--use_fast_math -Xptxas --register-usage-level=10 -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC
-Xcompiler -fvisibility=hidden""".split()
# Links the C++ runtime statically, since the other machine may have another version.
LINK = "-shared -Xcompiler -static-libstdc++,-static-libgcc -Xlinker --exclude-libs,ALL".split()


def build(checkout, out):
    checkout, out, nvcc = pathlib.Path(checkout), pathlib.Path(out), os.environ.get("NVCC", "nvcc")
    kernels, cutlass = checkout / "csrc/sm90/prefill/sparse", checkout / "csrc/cutlass/include"
    for needed in (kernels / "fwd.cu", cutlass / "cute"):
        if not needed.exists():
            sys.exit(f"flash_mla.py: {needed} is missing; clone FlashMLA with --recurse-submodules")
    out.mkdir(parents=True, exist_ok=True)
    folders = [checkout / "csrc", checkout / "csrc/kerutils/include", checkout / "csrc/sm90", cutlass]
    flags = FLAGS + [f"-I{folder}" for folder in folders]
    sources = [pathlib.Path(__file__).with_suffix(".cu"), kernels / "fwd.cu"]
    sources += sorted((kernels / "instantiations").glob("*.cu"))
    with tempfile.TemporaryDirectory() as objects, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_one(source):
            made = f"{objects}/{source.stem}.o"
            subprocess.run([nvcc, *flags, "-c", source, "-o", made], check=True)
            return made

        made = list(pool.map(compile_one, sources))
        subprocess.run([nvcc, *LINK, *made, "-o", out / "flash_mla.so"], check=True)


class Call(ctypes.Structure):
    """flash_mla.cu's struct call."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in "queries rows heads dqk dv topk sms".split()), ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in "q kv indices length sink out lse max_logits".split()),
        *((name, ctypes.c_int32) for name in "q_token q_head kv_row indices_token".split()),
    ]  # fmt: skip


class FlashMla:
    def __init__(self, path):
        self.function = ctypes.CDLL(path).flash_mla_forward
        self.function.restype = ctypes.c_char_p
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def forward(self, q, kv, indices, length, sink, scale, out, lse, max_logits):
        """Writes out, lse (+inf for an empty row) and max_logits."""
        call = Call(*q.shape[:1], *kv.shape[:1], *q.shape[1:], out.shape[2], indices.shape[1], self.sms)
        call.scale = scale
        tensors = (q, kv, indices, length, sink, out, lse, max_logits)
        for (name, _), tensor in zip(Call._fields_[8:], tensors):
            setattr(call, name, None if tensor is None else tensor.data_ptr())
        call.q_token, call.q_head = q.stride()[:2]
        call.kv_row, call.indices_token = kv.stride(0), indices.stride(0)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        message = self.function(ctypes.byref(call), stream)
        if message:
            raise RuntimeError(f"FlashMLA: {message.decode()}")


def peers(options, row, q, sinks, outputs):
    """Of a benchmark's row: {"flash_mla": what makes the contender}, if FlashMLA takes the shape."""
    if not options.flash_mla or q.shape[1] % HEADS_UNIT or row.topk % TOPK_UNIT:
        return {}

    def flash_mla():
        function, results = FlashMla(options.flash_mla).forward, outputs()
        tensors = q, row.kv, row.indices, row.length, sinks, row.scale
        return lambda: function(*tensors, **results), results

    return {"flash_mla": flash_mla}


def add_option(parser):
    parser.add_argument("--flash-mla", metavar="FILE", help="flash_mla.py made it")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build(*sys.argv[1:])
