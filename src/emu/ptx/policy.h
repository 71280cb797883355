/* templates/ptx/policy.cuh, emulated. */
#ifndef EMU_PTX_POLICY
#define EMU_PTX_POLICY

/* first: gone first; else kept longest. Never 0, which stands for no policy. */
unsigned long long emu_policy(int first);

#define policy_evict_first() emu_policy(1)
#define policy_evict_last() emu_policy(0)

#endif
