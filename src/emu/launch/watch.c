/* See watch.h. */
#include "emu/launch/watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "emu/machine/report.h"

enum { ALTERNATE_STACK = 256 * 1024, FAULTS = 4 };

static const int fault_signals[FAULTS] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction old_actions[FAULTS], old_timer_action;
static stack_t old_stack;
static void *alternate;
static pthread_t launching; /* the thread that launches */

static const u8 *program_counter(const void *context) {
    const ucontext_t *u = context;
#if defined(__x86_64__)
    return (const u8 *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const u8 *)(uintptr_t)u->uc_mcontext.pc;
#else
    (void)u;
    return NULL;
#endif
}

static site site_of(const u8 *pc) {
    return pc && emu_kernel_holds(pc) ? (site)(pc - emu.kernel->image) + 1 : 0;
}

/* A fault in the kernel's code, or in the emulator on an address from the kernel. It does not
 * interrupt libc, so the report may allocate. The handler never returns, which Linux allows: the
 * alternate stack counts as used only while the stack pointer is in it. */
static void on_fault(int signal, siginfo_t *info, void *context) {
    if (!emu.inside || !emu.self || !pthread_equal(pthread_self(), launching)) {
        /* Not the kernel's fault: returning repeats it under the host program's own handler. */
        for (int i = 0; i < FAULTS; i++)
            if (fault_signals[i] == signal)
                sigaction(signal, &old_actions[i], NULL);
        if (info->si_code <= 0) /* sent by kill or raise */
            raise(signal);
        return;
    }
    emu_fatal(EMU_CRASH, site_of(program_counter(context)), 0, "%s: %s at address %p {1}",
              emu_thread_name(emu.self),
              signal == SIGFPE ? "arithmetic fault"
                               : "the kernel faulted (a wild address, or its stack overflowed)",
              info->si_addr);
}

/* Repeats every 10 ms after the limit until it interrupts the kernel's own code. */
static void on_timer(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    emu.late = 1;
    const u8 *pc = program_counter(context);
    if (emu.inside && emu.self && pthread_equal(pthread_self(), launching) && pc &&
        emu_kernel_holds(pc))
        emu_fatal(EMU_TIME, site_of(pc), 0,
                  "%s: the launch took more than %g s of processor time {1}",
                  emu_thread_name(emu.self), emu.settings.seconds);
}

static void catch_signal(int signal, void (*handler)(int, siginfo_t *, void *),
                         struct sigaction *old) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(signal, &action, old);
}

void emu_watch_begin(double seconds) {
    if (!alternate)
        alternate = malloc(ALTERNATE_STACK);
    stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE_STACK};
    emu.late = 0;
    launching = pthread_self();
    if (!alternate || sigaltstack(&stack, &old_stack))
        return;
    for (int i = 0; i < FAULTS; i++)
        catch_signal(fault_signals[i], on_fault, &old_actions[i]);
    catch_signal(SIGVTALRM, on_timer, &old_timer_action);
    struct itimerval timer = {{0, 10000},
                              {(time_t)seconds, (suseconds_t)(seconds * 1e6) % 1000000}};
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

void emu_watch_end(void) {
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_VIRTUAL, &none, NULL);
    for (int i = 0; i < FAULTS; i++)
        sigaction(fault_signals[i], &old_actions[i], NULL);
    sigaction(SIGVTALRM, &old_timer_action, NULL);
    sigaltstack(&old_stack, NULL);
}
