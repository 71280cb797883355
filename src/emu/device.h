/*
 * Prepended to a kernel's text so that a C compiler accepts it: CUDA's keywords and built-ins as
 * macros, and the functions behind them. The parts from templates/ptx are replaced by the files of
 * src/emu/ptx. Macros rather than functions, so that debug information names the kernel's own
 * lines.
 */
#include <stdbool.h>

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__ restrict

/* Bytes of a register array from a pointer on, if the compiler can tell; else the maximum. */
#if defined __clang__ || __GNUC__ >= 12
#define EMU_ROOM(registers) __builtin_dynamic_object_size(registers, 0)
#else
#define EMU_ROOM(registers) __builtin_object_size(registers, 0)
#endif

struct emu_index3 {
    unsigned x, y, z;
};

typedef struct uint2 {
    unsigned x, y;
} __attribute__((aligned(8))) uint2;
typedef struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16))) uint4;
typedef struct int2 {
    int x, y;
} __attribute__((aligned(8))) int2;
typedef struct int4 {
    int x, y, z, w;
} __attribute__((aligned(16))) int4;
typedef struct float2 {
    float x, y;
} __attribute__((aligned(8))) float2;
typedef struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16))) float4;

/* Constant within a thread, which is a fibre. */
struct emu_index3 emu_thread_index(void) __attribute__((const));
struct emu_index3 emu_block_index(void) __attribute__((const));
struct emu_index3 emu_block_size(void) __attribute__((const));
struct emu_index3 emu_grid_size(void) __attribute__((const));
unsigned char *emu_arena(void) __attribute__((const));
#define threadIdx (emu_thread_index())
#define blockIdx (emu_block_index())
#define blockDim (emu_block_size())
#define gridDim (emu_grid_size())

/* Fills a local declared without an initialiser (translate.c) with an arbitrary value. */
void emu_leave_unwritten(void *local, unsigned long bytes);
#define EMU_UNWRITTEN(local) emu_leave_unwritten(&(local), sizeof(local))

/* The one `extern __shared__` array; its declaration is dropped. */
#define arena (emu_arena())
unsigned emu_generic_to_shared(const void *pointer);
#define __cvta_generic_to_shared(pointer) emu_generic_to_shared(pointer)

void emu_syncthreads(void);
int emu_syncthreads_or(int predicate);
int emu_syncthreads_and(int predicate);
int emu_syncthreads_count(int predicate);
void emu_syncwarp(unsigned mask);
#define __syncthreads() emu_syncthreads()
#define __syncthreads_or(predicate) emu_syncthreads_or(predicate)
#define __syncthreads_and(predicate) emu_syncthreads_and(predicate)
#define __syncthreads_count(predicate) emu_syncthreads_count(predicate)
#define __syncwarp(mask) emu_syncwarp(mask)

unsigned emu_ballot_sync(unsigned mask, int predicate);
int emu_any_sync(unsigned mask, int predicate);
int emu_all_sync(unsigned mask, int predicate);
#define __ballot_sync(mask, predicate) emu_ballot_sync(mask, predicate)
#define __any_sync(mask, predicate) emu_any_sync(mask, predicate)
#define __all_sync(mask, predicate) emu_all_sync(mask, predicate)

unsigned emu_shfl(int kind, unsigned mask, unsigned value, int operand);
float emu_shfl_float(int kind, unsigned mask, float value, int operand);
#define EMU_SHUFFLE(kind, mask, value, operand)                                                    \
    _Generic((value), float                                                                        \
             : emu_shfl_float, int                                                                 \
             : emu_shfl, unsigned                                                                  \
             : emu_shfl)(kind, mask, value, operand)
/* With a width, the lane within the caller's group of `width` lanes. */
#define EMU_LANE_OF(lane, width, ...)                                                              \
    ((int)(threadIdx.x % 32) / (width) * (width) + (int)((unsigned)(lane) % (width)))
#define __shfl_sync(mask, value, ...) EMU_SHUFFLE(0, mask, value, EMU_LANE_OF(__VA_ARGS__, 32, 0))
#define __shfl_up_sync(mask, value, delta) EMU_SHUFFLE(1, mask, value, delta)
#define __shfl_down_sync(mask, value, delta) EMU_SHUFFLE(2, mask, value, delta)
#define __shfl_xor_sync(mask, value, lanes) EMU_SHUFFLE(3, mask, value, lanes)

void emu_trap(void) __attribute__((noreturn));
#define __trap() emu_trap()
/* Hints and fences without effect on the emulator's order of accesses. */
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __ldg(pointer) (*(pointer))

#define __popc(x) __builtin_popcount((unsigned)(x))
#define __popcll(x) __builtin_popcountll((unsigned long long)(x))
#define __ffs(x) __builtin_ffs((int)(x))
#define __clz(x) ((x) ? __builtin_clz((unsigned)(x)) : 32)
#define __clzll(x) ((x) ? __builtin_clzll((unsigned long long)(x)) : 64)

static inline __attribute__((always_inline, unused)) float __int_as_float(int bits) {
    union {
        int bits;
        float value;
    } both = {bits};
    return both.value;
}

static inline __attribute__((always_inline, unused)) float __uint_as_float(unsigned bits) {
    return __int_as_float((int)bits);
}

static inline __attribute__((always_inline, unused)) int __float_as_int(float value) {
    union {
        float value;
        int bits;
    } both = {value};
    return both.bits;
}

static inline __attribute__((always_inline, unused)) unsigned __float_as_uint(float value) {
    return (unsigned)__float_as_int(value);
}

static inline __attribute__((always_inline, unused)) unsigned __dp4a(unsigned a, unsigned b,
                                                                     unsigned c) {
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 255) * (b >> i & 255);
    return c;
}

/* As on an H200: a NaN, also a signalling one, counts as missing, and -0 is below +0. */
static inline __attribute__((always_inline, unused)) float emu_larger(float a, float b) {
    return a != a   ? b
           : b != b ? a
           : a == b ? __uint_as_float(__float_as_uint(a) & __float_as_uint(b))
                    : (a > b ? a : b);
}

static inline __attribute__((always_inline, unused)) float emu_smaller(float a, float b) {
    return a != a   ? b
           : b != b ? a
           : a == b ? __uint_as_float(__float_as_uint(a) | __float_as_uint(b))
                    : (a < b ? a : b);
}

#define fmaxf(a, b) emu_larger(a, b)
#define fminf(a, b) emu_smaller(a, b)
#define fmaf(a, b, c) __builtin_fmaf(a, b, c)
#define fabsf(a) __builtin_fabsf(a)
#define ceilf(a) __builtin_ceilf(a)
#define floorf(a) __builtin_floorf(a)
#define sqrtf(a) __builtin_sqrtf(a)

/* clang before version 15 does not instrument memcpy and memset, nor copies of structs, which become calls of
 * them. These definitions take the place of the C library's. */
#if defined(__clang__) && __clang_major__ < 15
void emu_access(const void *pointer, unsigned long bytes, int write, const void *from);
#define EMU_FROM __builtin_return_address(0)
#define EMU_PLAIN                                                                                  \
    __attribute__((no_sanitize("thread", "undefined"), visibility("hidden"), noinline, used))

EMU_PLAIN void *memcpy(void *to, const void *from, unsigned long bytes) {
    emu_access(from, bytes, 0, EMU_FROM);
    emu_access(to, bytes, 1, EMU_FROM);
    for (unsigned long i = 0; i < bytes; i++)
        ((volatile char *)to)[i] = ((const volatile char *)from)[i];
    return to;
}

EMU_PLAIN void *memset(void *to, int value, unsigned long bytes) {
    emu_access(to, bytes, 1, EMU_FROM);
    for (unsigned long i = 0; i < bytes; i++)
        ((volatile char *)to)[i] = (char)value;
    return to;
}
#endif
