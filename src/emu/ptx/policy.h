/* templates/ptx/policy.cuh, emulated. */

/* Never 0, which means no policy. */
unsigned long long emu_policy_evict_first(void);

#define policy_evict_first() emu_policy_evict_first()
