# shellcheck shell=bash
# Sourced by the other scripts: finds NVRTC.

# nvrtc_in FOLDER: the library of a wheel unpacked into FOLDER, or status 1. CUDA 13's wheel has
# it in nvidia/cu13/lib, CUDA 12's in nvidia/cuda_nvrtc/lib.
nvrtc_in() {
    local library
    for library in "$1"/nvidia/*/lib/libnvrtc.so.1[0-9]; do
        if [ -f "$library" ]; then
            (cd "$(dirname "$library")" && printf '%s/%s\n' "$PWD" "${library##*/}")
            return
        fi
    done
    return 1
}

# installed_nvrtc: $SMELT_NVRTC, or a libnvrtc of CUDA 12 or 13 that the library finds by itself;
# status 1 if there is none.
installed_nvrtc() {
    local folder library
    if [ -n "${SMELT_NVRTC:-}" ]; then
        echo "$SMELT_NVRTC"
        return
    fi
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
        for library in "$folder"/lib64/libnvrtc.so.1[23] "$folder"/lib/libnvrtc.so.1[23]; do
            if [ -n "$folder" ] && [ -f "$library" ]; then
                echo "$library"
                return
            fi
        done
    done
    local IFS=:
    for folder in ${LD_LIBRARY_PATH:-}; do
        for library in "$folder"/libnvrtc.so.1[23]; do
            if [ -f "$library" ]; then
                echo "$library"
                return
            fi
        done
    done
    unset IFS
    library=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null |
        sed -n 's/.*libnvrtc\.so\.1[23] .* => //p' | head -n 1)
    [ -n "$library" ] && echo "$library"
}

# nvrtc_requirement: the wheel for this machine. CUDA 13's cubins need driver 580 or newer; without a
# driver it is the newest, since no kernel runs here.
nvrtc_requirement() {
    local driver
    driver=$(sed -n 's/^NVRM version:.* \([0-9][0-9]*\)\.[0-9.]* .*/\1/p' \
        /proc/driver/nvidia/version 2>/dev/null | head -n 1)
    if [ -n "$driver" ] && [ "$driver" -lt 580 ]; then
        echo 'nvidia-cuda-nvrtc-cu12>=12.4,<13'
    else
        echo 'nvidia-cuda-nvrtc>=13.0,<14'
    fi
}

# export_nvrtc: exports SMELT_NVRTC if the library would not find NVRTC by itself.
export_nvrtc() {
    local library
    if ! installed_nvrtc >/dev/null && library=$(nvrtc_in build/nvrtc); then
        export SMELT_NVRTC="$library"
    fi
}
