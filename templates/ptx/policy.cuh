//@use common/base.cuh

/* An L2 cache policy for copies: evict first (PTX ISA, "createpolicy"). */
DEVICE u64 policy_evict_first(void) {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
