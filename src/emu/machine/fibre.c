/* See fibre.h. */
#include "emu/machine/fibre.h"

#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBRE_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FIBRE_ASAN 1
#endif

#ifdef FIBRE_ASAN

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

static struct fibre *left; /* by the current switch */

static void leave(struct fibre *from, struct fibre *to) {
    left = from;
    __sanitizer_start_switch_fiber(&from->shelter, to->low, to->bytes);
}

static void arrive(struct fibre *at) {
    __sanitizer_finish_switch_fiber(at ? at->shelter : NULL, &left->low, &left->bytes);
}

/* Unpoisons an abandoned fibre's stack. */
void fibre_forget(void *low, size_t bytes) {
    ASAN_UNPOISON_MEMORY_REGION(low, bytes);
}

#else

static void leave(struct fibre *from, struct fibre *to) {
    (void)from;
    (void)to;
}

static void arrive(struct fibre *at) {
    (void)at;
}

void fibre_forget(void *low, size_t bytes) {
    (void)low;
    (void)bytes;
}

#endif

void fibre_arrived(void) {
    arrive(NULL);
}

static void note_stack(struct fibre *fibre, void *low, size_t bytes) {
    fibre->low = low;
    fibre->bytes = bytes;
    fibre->shelter = NULL;
    fibre_forget(low, bytes);
}

#ifdef FIBRE_UCONTEXT

void fibre_prepare(struct fibre *fibre, void *low, size_t bytes, void (*body)(void)) {
    note_stack(fibre, low, bytes);
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = low;
    fibre->context.uc_stack.ss_size = bytes;
    fibre->context.uc_link = NULL;
    makecontext(&fibre->context, body, 0);
}

void fibre_switch(struct fibre *from, struct fibre *to) {
    leave(from, to);
    swapcontext(&from->context, &to->context);
    arrive(from);
}

#else

/* void switch_stacks(void **from, void *to): pushes the preserved registers, stores the stack
 * pointer in *from, takes `to`, pops and returns there. */
void smelt__emu_switch_stacks(void **from, void *to);

#if defined(__x86_64__)

__asm__(".text\n"
        ".type smelt__emu_switch_stacks, @function\n"
        "smelt__emu_switch_stacks:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size smelt__emu_switch_stacks, . - smelt__emu_switch_stacks\n");

enum { SAVED_WORDS = 6, RETURN_WORD = 6 };

#else /* AArch64 */

__asm__(".text\n"
        ".type smelt__emu_switch_stacks, %function\n"
        "smelt__emu_switch_stacks:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size smelt__emu_switch_stacks, . - smelt__emu_switch_stacks\n");

enum { SAVED_WORDS = 20, RETURN_WORD = 11 };

#endif

void fibre_prepare(struct fibre *fibre, void *low, size_t bytes, void (*body)(void)) {
    /* The frame that the switch pops. On entry to body the stack pointer must be, on x86-64, 8 off
     * a multiple of 16 (as after a call); on AArch64 a multiple of 16. */
    note_stack(fibre, low, bytes);
    uintptr_t top = ((uintptr_t)low + bytes) & ~(uintptr_t)63;
    uintptr_t *frame = (uintptr_t *)top - SAVED_WORDS - 2;
    for (int i = 0; i < SAVED_WORDS + 2; i++)
        frame[i] = 0;
    frame[RETURN_WORD] = (uintptr_t)body;
    fibre->stack_pointer = frame;
}

void fibre_switch(struct fibre *from, struct fibre *to) {
    leave(from, to);
    smelt__emu_switch_stacks(&from->stack_pointer, to->stack_pointer);
    arrive(from);
}

#endif
