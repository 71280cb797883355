/*
 * Fibres: separate stacks switched by hand. On x86-64 and AArch64 a switch saves the registers the
 * calling convention preserves and nothing else (about 5 ns); swapcontext, which other machines
 * get, makes a system call for the signal mask each time (about 300 ns), and a check switches
 * millions of times.
 */
#ifndef SMELT_EMU_FIBRE_H
#define SMELT_EMU_FIBRE_H

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
    const void *low; /* its stack, for AddressSanitizer, which has to know where it stands */
    size_t bytes;
    void *shelter;
};

/* Prepares a fibre that calls body() on the given stack (`low` is its lowest byte) when it is first
 * switched to. body must not return, and must call fibre_arrived first. */
void fibre_prepare(struct fibre *fibre, void *low, size_t bytes, void (*body)(void));

/* Saves where the caller stands in *from and goes on in *to. */
void fibre_switch(struct fibre *from, struct fibre *to);

/* For memory that becomes stacks: what fibres abandoned there left with AddressSanitizer goes. */
void fibre_forget(void *low, size_t bytes);

/* The first thing a fibre's body does. */
void fibre_arrived(void);

#endif
