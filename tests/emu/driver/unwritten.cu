#define KERNEL_NAME unwritten
enum { TURNS = 8, KINDS = 9 };
struct __align__(8) pair { /* of numbers */
    int first;
    int second;
};

struct arrays {
    int first[4], second[4];
};

/* Stores the contents of unwritten locals, in each iteration, of lanes 0 and 31. */
__global__ void KERNEL_NAME(int *data) {
    if (threadIdx.x % 31 == 0) {
        for (int turn = 0; turn < TURNS; ++turn) {
            int alone; /* a comment; and int more; */
            struct pair pair;
            struct arrays arrays;
            float value;
            const int *first, *second;
            int rows[2][3], last[KINDS / 4];
            int *const to = data + (turn * 2 + (int)threadIdx.x / 31) * KINDS;
            to[0] = alone;
            to[1] = pair.second;
            to[2] = __float_as_int(value);
            to[3] = (int)(unsigned long long)second;
            to[4] = rows[1][2];
            to[5] = last[0];
            to[6] = pair.first;
            to[7] = arrays.first[2];
            to[8] = arrays.second[2];
            alone = pair.second = rows[1][2] = last[0] = arrays.first[2] = arrays.second[2] = 0;
            value = 0.0f;
            first = second = data;
        }
    }
}
