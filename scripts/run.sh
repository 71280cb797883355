#!/usr/bin/env bash
# The first minutes with smelt: shows what this machine has, compiles one model's kernels into the cache
# and compares them with the reference. On a GPU it also times them; without one it uses the emulator.
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
show doctor || gpu=no # status 3: something is missing, which doctor has named

if [ $gpu = yes ]; then
    show warm "${model[@]}"
    show check "${model[@]}" --queries 512 --rows 8192
    show bench "${model[@]}" --queries 4096 --rows 8192
    build/examples/embed
else
    cat <<'END'

There is no usable GPU here. The kernels can be compiled for other machines' GPUs, for example an H100 or
H200 (sm_90a) and an A100 (sm_80).
END
    show warm "${model[@]}" --arch sm_90a --arch sm_80
    show show sparse_attn:heads=8,dqk=576,dv=512,topk=2048 --arch sm_90a
    cat <<'END'

They also run on the CPU: the emulator compiles their CUDA source as C, runs it thread by thread under
several schedules, and reports races and invalid accesses. This takes a few minutes.
END
    show check --emulate "${model[@]}"
fi
show cache stat

printf '\nNext:\n'
if [ -n "${SMELT_NVRTC:-}" ]; then
    printf '  export SMELT_NVRTC=%s   # the downloaded compiler\n' "$SMELT_NVRTC"
fi
cat <<'END'
  build/smelt list                                          models (presets), operators, kernels, their keys
  build/smelt list sparse_attn                              one of them
  build/smelt warm --preset deepseek-v3.2 --arch sm_90a     another model, for another GPU
  build/smelt check --emulate --arch sm_80 sparse_attn:heads=64,dqk=576,dv=512,topk=512
                                                            run a kernel without a GPU
  build/smelt emit sparse_attn:heads=8,dqk=576,dv=512,topk=2048 --arch sm_90a   the CUDA source
  make test                                                 the tests
  examples/embed.c, docs/embedding.md                       smelt in your own program
END
