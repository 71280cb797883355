/*
 * Fibres: separate stacks, switched explicitly. On x86-64 and AArch64 a switch saves only the
 * registers that the calling convention preserves (about 5 ns). Other machines use swapcontext,
 * which makes a system call for the signal mask (about 300 ns); a check switches millions of times.
 */
#pragma once

#include <stddef.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#define FIBRE_UCONTEXT 1
#endif

struct fibre {
#ifdef FIBRE_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    const void *low; /* its stack, for AddressSanitizer */
    size_t bytes;
    void *shelter;
};

/* Prepares a fibre that calls body() on the given stack, whose lowest byte is `low`, at the first
 * switch to it. body must call fibre_arrived first and must not return. */
void fibre_prepare(struct fibre *fibre, void *low, size_t bytes, void (*body)(void));

/* Saves the caller's state in *from and continues *to. */
void fibre_switch(struct fibre *from, struct fibre *to);

/* Clears AddressSanitizer's state of memory that becomes stacks. */
void fibre_forget(void *low, size_t bytes);

/* The first call of a fibre's body. */
void fibre_arrived(void);
