/*
 * The GPU side of bench/peers, compiled by NVRTC when the program starts: tensors filled at random,
 * the forward pass in double precision, and a comparison with what a contender wrote. Plain rather
 * than fast; what it takes is not measured.
 */
typedef unsigned long long u64;
typedef unsigned short bf16;

enum {
    THREADS = 256,
    HEADS = 64,
    KEYS = 64,
    COLUMNS = 32,
    PITCH = COLUMNS + 1,
    LANES = 16,
    EACH = 4
};

/* ---- numbers --------------------------------------------------------------------------------- */

/* Splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014) of two numbers. */
static __device__ u64 mix(u64 seed, u64 index) {
    u64 z = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Box and Muller. */
static __device__ float normal(u64 seed, u64 index) {
    const u64 bits = mix(seed, index);
    const float radius = sqrtf(-2.0f * logf(((unsigned)(bits >> 40) + 1) * (1.0f / 16777217.0f)));
    return radius * cospif((unsigned)(bits & 0xffffff) * (2.0f / 16777216.0f));
}

static __device__ bf16 to_bf16(float value) {
    const unsigned bits = __float_as_uint(value);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static __device__ float from_bf16(bf16 value) {
    return __uint_as_float((unsigned)value << 16);
}

static __device__ double negative_infinity(void) {
    return -__longlong_as_double(0x7ff0000000000000LL);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* data[row * row_stride + head * head_stride + column]: normal / divisor + shift, rounded to bf16
 * after each step. */
extern "C" __global__ void __launch_bounds__(THREADS)
    peers_fill(bf16 *data, long long rows, int heads, int columns, long long row_stride,
               long long head_stride, u64 seed, float divisor, float shift) {
    const long long count = rows * heads * columns, stride = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) {
        const int column = (int)(i % columns), head = (int)(i / columns % heads);
        const long long row = i / columns / heads;
        const float value = from_bf16(to_bf16(normal(seed, (u64)i)));
        data[row * row_stride + head * head_stride + column] =
            to_bf16(from_bf16(to_bf16(value / divisor)) + shift);
    }
}

/* A random permutation of 0..count-1 at one place: a Feistel network on the next even number of
 * bits, walked until it falls into the range (Black and Rogaway, CT-RSA 2002). */
static __device__ int permuted(unsigned place, unsigned count, u64 key) {
    int half = 1;
    while (half < 16 && 1ULL << (2 * half) < count)
        half++;
    const unsigned mask = (1u << half) - 1;
    do {
        unsigned left = place >> half, right = place & mask;
        for (int round = 0; round < 6; round++) {
            const unsigned next = left ^ ((unsigned)mix(key + round, right) & mask);
            left = right;
            right = next;
        }
        place = left << half | right;
    } while (place >= count);
    return (int)place;
}

enum { LISTS_RANDOM, LISTS_CAUSAL, LISTS_HALF };

/* A block a query: distinct rows in random order, of all (or, causal, of those up to the query's
 * own), then fillers, drawn from `fillers` slot by slot. `half`: each slot is -1 as likely as not.
 * A query out of `empty_in` (0: none) has the first filler in all its slots. */
extern "C" __global__ void __launch_bounds__(THREADS)
    peers_lists(int *indices, int width, long long stride, long long rows, int kind, u64 seed,
                const int *fillers, int filler_count, int empty_in) {
    const long long query = blockIdx.x;
    const u64 key = mix(seed, (u64)query);
    const long long reach = kind == LISTS_CAUSAL && query + 1 < rows ? query + 1 : rows;
    const bool empty = empty_in > 0 && mix(seed ^ 0x5eed, (u64)query) % empty_in == 0;
    for (int slot = threadIdx.x; slot < width; slot += THREADS) {
        const u64 chance = mix(key ^ 0xf111, (u64)slot);
        int row = slot < reach ? permuted((unsigned)slot, (unsigned)reach, key)
                               : fillers[chance % filler_count];
        if (kind == LISTS_HALF && (chance >> 32 & 1))
            row = -1;
        indices[query * stride + slot] = empty ? fillers[0] : row;
    }
}

/* ---- the reference --------------------------------------------------------------------------- */

struct reference {
    const bf16 *q, *kv;
    const int *indices, *topk_length;
    const float *sink;
    long long q_token_stride, q_head_stride, kv_row_stride, indices_token_stride, rows;
    int heads, dqk, dv, width;
    float scale;
    int first, step, count;         /* queries first, first + step, ...: `count` of them */
    double *out, *lse, *max_logits; /* [count,heads,dv], [count,heads]; lse -inf for none */
    double *scores;                 /* [blocks,HEADS,width] */
    int *slots;                     /* [blocks,width]: rows of the valid slots */
};

/* The valid slots' rows, in their order; returns their number. */
static __device__ int list_slots(const struct reference &ref, long long query, int *slots) {
    __shared__ int warps[THREADS / 32], total;
    const int *list = ref.indices + query * ref.indices_token_stride;
    int limit = ref.width, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (ref.topk_length && ref.topk_length[query] < limit)
        limit = ref.topk_length[query];
    if (threadIdx.x == 0)
        total = 0;
    for (int begin = 0; begin < limit; begin += THREADS) {
        const int slot = begin + threadIdx.x;
        const int row = slot < limit ? list[slot] : -1;
        const unsigned votes = __ballot_sync(~0u, row >= 0 && row < ref.rows);
        if (lane == 0)
            warps[warp] = __popc(votes);
        __syncthreads();
        int at = total + __popc(votes & ((1u << lane) - 1));
        for (int i = 0; i < warp; i++)
            at += warps[i];
        if (row >= 0 && row < ref.rows)
            slots[at] = row;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 0; i < THREADS / 32; i++)
                total += warps[i];
        __syncthreads();
    }
    __syncthreads();
    return total;
}

/* scores[head][key] = scale * <q[head], kv[key]>, by tiles of 64 heads x 64 keys. */
static __device__ void score(const struct reference &ref, long long query, int first_head,
                             const int *slots, int valid, double *scores, double *left,
                             double *right) {
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
    for (int key = 0; key < valid; key += KEYS) {
        double sum[EACH][EACH] = {};
        for (int column = 0; column < ref.dqk; column += COLUMNS) {
            for (int i = threadIdx.x; i < HEADS * COLUMNS; i += THREADS) {
                const int row = i / COLUMNS, at = i % COLUMNS, head = first_head + row;
                left[row * PITCH + at] =
                    head < ref.heads ? from_bf16(ref.q[query * ref.q_token_stride +
                                                       head * ref.q_head_stride + column + at])
                                     : 0;
                right[row * PITCH + at] =
                    key + row < valid
                        ? from_bf16(ref.kv[slots[key + row] * ref.kv_row_stride + column + at])
                        : 0;
            }
            __syncthreads();
            for (int k = 0; k < COLUMNS; k++)
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] +=
                            left[(y + i * LANES) * PITCH + k] * right[(x + j * LANES) * PITCH + k];
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                if (key + x + j * LANES < valid)
                    scores[(long long)(y + i * LANES) * ref.width + key + x + j * LANES] =
                        sum[i][j] * (double)ref.scale;
    }
    __syncthreads();
}

static __device__ double warp_max(double value) {
    for (int lane = 16; lane > 0; lane /= 2)
        value = fmax(value, __shfl_xor_sync(~0u, value, lane));
    return value;
}

static __device__ double warp_sum(double value) {
    for (int lane = 16; lane > 0; lane /= 2)
        value += __shfl_xor_sync(~0u, value, lane);
    return value;
}

/* Scores become probabilities, a warp a head. */
static __device__ void soften(const struct reference &ref, int item, int first_head, int valid,
                              double *scores) {
    const int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < HEADS; row += THREADS / 32) {
        const int head = first_head + row;
        double *mine = scores + (long long)row * ref.width;
        double most = negative_infinity(), sum = 0;
        for (int i = lane; i < valid; i += 32)
            most = fmax(most, mine[i]);
        most = warp_max(most);
        for (int i = lane; i < valid; i += 32)
            sum += exp(mine[i] - most);
        sum = warp_sum(sum);
        if (head >= ref.heads)
            continue;
        const double denominator = ref.sink ? sum + exp((double)ref.sink[head] - most) : sum;
        for (int i = lane; i < valid; i += 32)
            mine[i] = exp(mine[i] - most) / denominator;
        if (lane == 0) {
            const long long at = (long long)item * ref.heads + head;
            ref.max_logits[at] = most;
            ref.lse[at] = valid ? most + log(sum) : negative_infinity();
        }
    }
    __syncthreads();
}

/* out = P V by tiles of 64 heads x 64 columns, 32 keys at a time. */
static __device__ void combine(const struct reference &ref, int item, int first_head,
                               const int *slots, int valid, const double *scores, double *left,
                               double *right) {
    const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;
    for (int column = 0; column < ref.dv; column += KEYS) {
        double sum[EACH][EACH] = {};
        for (int key = 0; key < valid; key += COLUMNS) {
            for (int i = threadIdx.x; i < HEADS * COLUMNS; i += THREADS) {
                const int row = i / COLUMNS, at = i % COLUMNS;
                left[row * PITCH + at] =
                    key + at < valid ? scores[(long long)row * ref.width + key + at] : 0;
                const int from = i / KEYS, to = i % KEYS;
                right[i] =
                    key + from < valid
                        ? from_bf16(ref.kv[slots[key + from] * ref.kv_row_stride + column + to])
                        : 0;
            }
            __syncthreads();
            for (int k = 0; k < COLUMNS; k++)
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] +=
                            left[(y + i * LANES) * PITCH + k] * right[k * KEYS + x + j * LANES];
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                const int head = first_head + y + i * LANES;
                if (head < ref.heads)
                    ref.out[((long long)item * ref.heads + head) * ref.dv + column + x +
                            j * LANES] = sum[i][j];
            }
    }
}

/* A block takes (query, 64 heads) after (query, 64 heads). */
extern "C" __global__ void __launch_bounds__(THREADS) peers_reference(const struct reference ref) {
    __shared__ double left[HEADS * PITCH], right[KEYS * PITCH];
    const int groups = (ref.heads + HEADS - 1) / HEADS;
    double *scores = ref.scores + (long long)blockIdx.x * HEADS * ref.width;
    int *slots = ref.slots + (long long)blockIdx.x * ref.width;
    for (int work = blockIdx.x; work < ref.count * groups; work += gridDim.x) {
        const int item = work / groups, first_head = work % groups * HEADS;
        const long long query = ref.first + (long long)item * ref.step;
        const int valid = list_slots(ref, query, slots);
        score(ref, query, first_head, slots, valid, scores, left, right);
        soften(ref, item, first_head, valid, scores);
        combine(ref, item, first_head, slots, valid, scores, left, right);
        __syncthreads();
    }
}

/* ---- the comparison -------------------------------------------------------------------------- */

struct comparison {
    u64 elements, misses, strange; /* strange: of the misses, those with an infinity or a NaN */
    double error2, reference2, answer2, product; /* sums of squares and products */
    u64 worst; /* share of the tolerance as float bits << 32 | element */
};

static __device__ void add_sums(struct comparison *result, double *sums) {
    __shared__ double all[4];
    if (threadIdx.x < 4)
        all[threadIdx.x] = 0;
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        const double sum = warp_sum(sums[i]);
        if (threadIdx.x % 32 == 0)
            atomicAdd(&all[i], sum);
    }
    __syncthreads();
    if (threadIdx.x < 4)
        atomicAdd(&result->error2 + threadIdx.x, all[threadIdx.x]);
}

/* Element i of the reference is (item, rest); the answer's is (first + item * step, rest). An
 * element misses when its error is at least absolute and at least relative * |reference|, the rule
 * of FlashMLA's own tests. `empty`: what stands for the reference's -inf. */
extern "C" __global__ void __launch_bounds__(THREADS)
    peers_compare(const void *answer, const double *reference, int is_bf16, long long per_query,
                  int first, int step, int count, double absolute, double relative, double empty,
                  struct comparison *result) {
    const long long total = per_query * count, stride = (long long)gridDim.x * THREADS;
    double sums[4] = {};
    u64 misses = 0, strange = 0, worst = 0;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < total; i += stride) {
        const long long at = (first + i / per_query * step) * per_query + i % per_query;
        const double got = is_bf16 ? (double)from_bf16(((const bf16 *)answer)[at])
                                   : (double)((const float *)answer)[at];
        const double want = reference[i] == negative_infinity() ? empty : reference[i];
        if (!isfinite(got) || !isfinite(want)) {
            const bool same = got == want || (isnan(got) && isnan(want));
            misses += !same;
            strange += !same;
            if (!same)
                worst = (u64)0x7f800000 << 32 | (unsigned)i;
            continue;
        }
        const double error = fabs(got - want);
        const double share = fmin(error / absolute, error / (fabs(want) + 1e-6) / relative);
        misses += !(share < 1);
        sums[0] += error * error;
        sums[1] += want * want;
        sums[2] += got * got;
        sums[3] += got * want;
        const u64 mark = (u64)__float_as_uint((float)share) << 32 | (unsigned)i;
        worst = mark > worst ? mark : worst;
    }
    add_sums(result, sums);
    if (misses)
        atomicAdd(&result->misses, misses);
    if (strange)
        atomicAdd(&result->strange, strange);
    if (worst)
        atomicMax(&result->worst, worst);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        result->elements = (u64)total;
}
