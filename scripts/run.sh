#!/usr/bin/env bash
# The first minute with smelt: what is on this machine, one model's kernels compiled into the cache
# and checked against the reference: on a GPU, where they are timed too, else on the emulator.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh
export_nvrtc

smelt=build/smelt
model=(--preset glm-5.2 --tp 8) # GLM-5.2 on one of eight tensor-parallel ranks: 8 heads

show() {
    printf '\n$ smelt %s\n' "$*"
    "$smelt" "$@"
}

gpu=yes
show doctor || gpu=no # status 3: something is missing, and doctor said what

if [ $gpu = yes ]; then
    show warm "${model[@]}"
    show check "${model[@]}" --queries 512 --rows 8192
    show bench "${model[@]}" --queries 4096 --rows 8192
    build/examples/embed
else
    cat <<'END'

No GPU that can be used here. The same kernels can be compiled for GPUs that are elsewhere: here for
an H100 or H200 (sm_90a) and an A100 (sm_80).
END
    show warm "${model[@]}" --arch sm_90a --arch sm_80
    show show sparse_attn:heads=8,dqk=576,dv=512,topk=2048 --arch sm_90a
    cat <<'END'

And they can be run on the CPU: the emulator compiles their CUDA text as C, runs it thread by thread
under several schedules, and looks for races and for reads of what must not be read besides.
END
    show check --emulate "${model[@]}"
fi
show cache stat

printf '\nNext:\n'
if [ -n "${SMELT_NVRTC:-}" ]; then
    printf '  export SMELT_NVRTC=%s   # the compiler that was fetched\n' "$SMELT_NVRTC"
fi
cat <<'END'
  build/smelt list                                          models, kernels, their keys, GPUs
  build/smelt warm --preset deepseek-v3.2 --arch sm_90a     another model, for a GPU elsewhere
  build/smelt check --emulate --arch sm_80 sparse_attn:heads=64,dqk=576,dv=512,topk=512
                                                            a kernel run without a GPU
  build/smelt emit sparse_attn:heads=8,dqk=576,dv=512,topk=2048 --arch sm_90a   the CUDA text
  make test                                                 the tests
  examples/embed.c, docs/embedding.md                       smelt in a program of your own
END
