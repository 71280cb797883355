"""DeepGEMM's fp8_mqa_logits and its clean pass without its PyTorch extension: nvcc compiles the kernels' headers
in a checkout that the user names, and the driver launches them as csrc/jit_kernels/impls/sm90_fp8_mqa_logits.hpp and
smxx_clean_logits.hpp of 54e2261 do.

    python3 bench/peers/deep_gemm.py CHECKOUT OUT    # compiles OUT/*.cubin with nvcc; half a minute, no GPU

The cubins can be carried to the machine with the GPU. CUTLASS is the checkout's submodule.
"""

import ctypes
import functools
import pathlib
import subprocess
import sys

from harness import torch

DIM, BLOCK_ROWS, BLOCK_KEYS, STAGES = 128, 128, 256, 3  # rows: queries times heads
LOADING_THREADS, MATH_THREADS, CLEAN_KEYS, CLEAN_WARPS = 128, 512, 8192, 8
HEADS = (32, 64)
MULTIPROCESSORS = 132  # an H100's and an H200's: a template argument
DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
BYTES, FLOATS = 0, 7  # CU_TENSOR_MAP_DATA_TYPE_UINT8, _FLOAT32
PROMOTE_256 = 3
SWIZZLES = {0: 0, 128: 3}

KERNEL = """#include <cuda_runtime.h>
#include <deep_gemm/impls/{header}.cuh>
using namespace deep_gemm;
static void __instantiate_kernel() {{
    auto ptr = reinterpret_cast<void *>(&{name}<{arguments}>);
}}
"""


def compile_kernels(checkout, out):
    """out/dg32.cubin, dg64.cubin and dgclean.cubin."""
    checkout, out = pathlib.Path(checkout), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    score, clean = "sm90_fp8_mqa_logits", "smxx_clean_logits"
    sources = {"clean": (clean, f"1, {CLEAN_KEYS}, {CLEAN_WARPS}, float")}
    for heads in HEADS:
        sources[heads] = (
            score,
            f"{heads}, {DIM}, false, {BLOCK_ROWS // heads}, {BLOCK_KEYS}, {STAGES}, {STAGES}, "
            f"{MULTIPROCESSORS}, {LOADING_THREADS}, {MATH_THREADS}, float",
        )
    for name, (header, arguments) in sources.items():
        source = out / f"dg{name}.cu"
        source.write_text(KERNEL.format(header=header, name=header, arguments=arguments))
        subprocess.run(
            ["nvcc", "-std=c++20", "-O3", "-w", "--expt-relaxed-constexpr", "-cubin"]
            + ["-gencode=arch=compute_90a,code=sm_90a", f"-I{checkout}/deep_gemm/include"]
            + [f"-I{checkout}/third-party/cutlass/include", "-o", str(out / f"dg{name}.cubin")]
            + [str(source)],
            check=True,
        )


class Map(ctypes.Structure):
    _fields_ = [("opaque", ctypes.c_uint64 * 16)]


class Kernels:
    """The compiled kernels, in the current CUDA context."""

    def __init__(self, folder):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.folder, self.functions = pathlib.Path(folder), {}

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def function(self, name, shared):
        if name not in self.functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            image = (self.folder / f"dg{name}.cubin").read_bytes()
            self.call("cuModuleLoadData", ctypes.byref(module), image)
            self.call("cuModuleEnumerateFunctions", ctypes.byref(function), 1, module)
            self.call("cuFuncSetAttribute", function, DYNAMIC_SHARED, shared)
            self.functions[name] = function
        return self.functions[name]

    def map(self, tensor, kind, size, extents, box, swizzle):
        """A tensor map of two dimensions, rows packed; aligned as the driver wants it."""
        memory = (ctypes.c_uint8 * 256)()
        start = (ctypes.addressof(memory) + 63) // 64 * 64
        made = Map.from_address(start)
        made.memory = memory
        strides, box = (ctypes.c_uint64 * 1)(extents[0] * size), (ctypes.c_uint32 * 2)(*box)
        extents, steps = (ctypes.c_uint64 * 2)(*extents), (ctypes.c_uint32 * 2)(1, 1)
        where = ctypes.byref(made), kind, 2, ctypes.c_void_p(tensor.data_ptr()), extents, strides
        modes = 0, SWIZZLES[swizzle], PROMOTE_256, 0
        self.call("cuTensorMapEncodeTiled", *where, box, steps, *modes)
        return made

    def launch(self, function, threads, shared, arguments, stream):
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        grid = MULTIPROCESSORS, 1, 1, threads, 1, 1, shared
        self.call("cuLaunchKernel", function, *grid, ctypes.c_void_p(stream), pointers, None)


@functools.cache
def kernels(folder):
    return Kernels(folder)


class Logits:
    """A call's arguments. q [T,H,128] and k [S,128] e4m3, k_scale [S], weights [T,H], windows."""

    def __init__(self, kernels, q, k, k_scale, weights, begins, ends, clean):
        self.kernels, self.clean = kernels, clean
        tokens, heads, _ = q.shape
        rows, queries = k.shape[0], BLOCK_ROWS // heads
        stride = (rows + BLOCK_KEYS + 255) // 256 * 256
        self.memory = torch.empty(((tokens + queries - 1) // queries * queries, stride), device=q.device)
        self.logits, self.keep = self.memory[:tokens, :rows], (q, k, k_scale, weights, begins, ends)
        pointers = [ctypes.c_uint64(t.data_ptr()) for t in (begins, ends, self.memory)]
        maps = [
            kernels.map(q, BYTES, 1, (DIM, tokens * heads), (DIM, BLOCK_ROWS), 128),
            kernels.map(k, BYTES, 1, (DIM, rows), (DIM, BLOCK_KEYS), 128),
            kernels.map(k_scale, FLOATS, 4, ((rows + 3) // 4 * 4, 1), (BLOCK_KEYS, 1), 0),
            kernels.map(weights, FLOATS, 4, (heads, tokens), (heads, queries), 0),
        ]
        self.score = [ctypes.c_uint32(n) for n in (tokens, rows, 0, stride)] + pointers + maps
        self.cleaning = [ctypes.c_uint32(tokens), ctypes.c_uint32(rows), ctypes.c_uint64(stride)]
        self.cleaning += pointers
        self.shared = STAGES * (BLOCK_ROWS * (DIM + 4) + BLOCK_KEYS * (DIM + 4))
        self.shared += (4 * STAGES + MATH_THREADS // 128 * 2) * 8 + 4
        self.name = heads

    def run(self):
        stream = torch.cuda.current_stream().cuda_stream
        threads = LOADING_THREADS + MATH_THREADS
        function = self.kernels.function(self.name, self.shared)
        self.kernels.launch(function, threads, self.shared, self.score, stream)
        if self.clean:
            function = self.kernels.function("clean", CLEAN_KEYS * 4)
            self.kernels.launch(function, CLEAN_WARPS * 32, CLEAN_KEYS * 4, self.cleaning, stream)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    compile_kernels(sys.argv[1], sys.argv[2])
