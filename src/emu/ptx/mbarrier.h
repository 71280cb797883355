/* templates/ptx/mbarrier.cuh, emulated. */

void emu_mbarrier_init(unsigned barrier, int count);
void emu_mbarrier_fence_init(void);
void emu_mbarrier_arrive(unsigned barrier, int count);
/* `barrier`: an address of the cluster. */
void emu_mbarrier_arrive_remote(unsigned barrier);
void emu_mbarrier_arrive_expect(unsigned barrier, unsigned bytes);
void emu_mbarrier_expect(unsigned barrier, unsigned bytes);
int emu_mbarrier_test(unsigned barrier, int parity);
void emu_mbarrier_wait(unsigned barrier, int parity);
/* Also acquires what other blocks released. */
void emu_mbarrier_wait_cluster(unsigned barrier, int parity);

#define mbarrier_init(barrier, count) emu_mbarrier_init(barrier, count)
#define mbarrier_fence_init() emu_mbarrier_fence_init()
#define mbarrier_arrive(barrier) emu_mbarrier_arrive(barrier, 1)
#define mbarrier_arrive_count(barrier, count) emu_mbarrier_arrive(barrier, count)
#define mbarrier_arrive_expect(barrier, bytes) emu_mbarrier_arrive_expect(barrier, bytes)
#define mbarrier_expect(barrier, bytes) emu_mbarrier_expect(barrier, bytes)
#define mbarrier_give_back_remote(barrier) emu_mbarrier_arrive_remote(barrier)
#define mbarrier_test(barrier, parity) (emu_mbarrier_test(barrier, parity) != 0)
#define mbarrier_wait(barrier, parity) emu_mbarrier_wait(barrier, parity)
#define mbarrier_wait_given_back(barrier, parity) emu_mbarrier_wait_cluster(barrier, parity)
