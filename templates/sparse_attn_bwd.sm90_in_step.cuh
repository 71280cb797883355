//@use common/base.cuh
//@use ptx/hint.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_shared.cuh
/*
 * Keeping CTAs in step, of sparse_attn_bwd.sm90.cu. CTAs that process ascending key lists at the
 * same pace read the same rows of kv and add to the same rows of dkv, which then come from memory
 * once for all of them. So every few key blocks a CTA increments a global counter and waits until
 * all CTAs have come as far. This is a hint: the wait has a spin limit, which halves each time it
 * is reached, and CTAs that have finished count as far ahead, so that they do not hold up the
 * others.
 *
 * STEP_LOOSE waits before a block is announced, which costs least. STEP_CLOSE waits just before the
 * copies of a block, so that all CTAs start them at the same moment: better where the rows in use
 * at one time hardly fit into the L2 cache (sparse_attn_bwd.lost.md), unless neighbouring groups
 * share most of their keys.
 *
 * Successive items of a CTA are processed in ascending and descending key order alternately: the
 * rows where one sweep over the table ends are in the L2 cache when the next sweep begins there.
 */

enum {
    LOOSE_STEP = 2, /* key blocks between two waits */
    CLOSE_STEP = 4,
    ENDED = 1 << 24, /* a finished CTA adds this to the counter */
    PROBES = 4       /* keys of a group that are looked up in the group before it */
};

/* Whether a list contains a key. The list ascends, except for repeated keys at its end. */
DEVICE bool has_key(const int *keys, int count, int key) {
    int first = 0;
    while (count > 0) {
        const int half = count / 2;
        const bool less = keys[first + half] < key;
        first += less ? half + 1 : 0;
        count = less ? count - half - 1 : half;
    }
    return keys[first] == key; /* past the list: the next list's key, or -1 */
}

/* Chooses the launch's mode, the same in all CTAs. One warp calls it. */
DEVICE int find_step_mode(const struct sparse_attn_bwd_params *params) {
    const int lane = (int)(threadIdx.x % 32);
    if (params->step != STEP_CLOSE || params->groups < 2) {
        return params->step;
    }
    const int group =
        params->first_group + 1 + (int)((i64)(params->groups - 2) * (lane / PROBES) * PROBES / 31);
    const int *const own = params->keys + (i64)group * params->key_stride;
    const int count = params->counts[group], before = params->counts[group - 1];
    const int key = own[(i64)count * (2 * (lane % PROBES) + 1) / (2 * PROBES)];
    const bool shared =
        count > 0 && before > 0 && has_key(own - params->key_stride, before - 1, key);
    return __popc(__ballot_sync((u32)ALL_LANES, shared)) > 16 ? STEP_LOOSE : STEP_CLOSE;
}

/* Waits for the other CTAs before key block number `block`. One thread of the gather calls it. */
DEVICE void keep_in_step(const struct sparse_attn_bwd_params *params, u32 block, u32 step) {
    if (block % step == 0) {
        const int polls = *spin_limit();
        hint_add(params->progress, 1);
        if (hint_wait(params->progress, block / step * gridDim.x, polls) < 0) {
            *spin_limit() = polls / 2;
        }
    }
}
