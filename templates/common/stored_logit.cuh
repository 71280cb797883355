//@use common/base.cuh
//@use ptx/math.cuh
/*
 * The type in which a kernel writes the indexer's logits: fp32 or, with LOGITS_BF16, bf16, rounded to
 * nearest, ties to even.
 */

//@if LOGITS_BF16
typedef unsigned short stored_logit;
//@else
typedef float stored_logit;
//@end

DEVICE void store_logit(stored_logit *to, float logit) {
    //@if LOGITS_BF16
    *to = (stored_logit)pack_bf16x2(logit, 0.0f);
    //@else
    *to = logit;
    //@end
}

DEVICE float load_stored_logit(const stored_logit *from) {
    //@if LOGITS_BF16
    return __uint_as_float((u32)*from << 16);
    //@else
    return *from;
    //@end
}

/* Whether four logits can be stored at once. */
DEVICE bool is_aligned_for_four(u64 address) {
    return address % (4 * sizeof(stored_logit)) == 0;
}

/* Stores four adjacent logits, aligned. */
DEVICE void store_four_logits(stored_logit *to, float4 four) {
    //@if LOGITS_BF16
    const uint2 pairs = {pack_bf16x2(four.x, four.y), pack_bf16x2(four.z, four.w)};
    *(uint2 *)to = pairs;
    //@else
    *(float4 *)to = four;
    //@end
}
