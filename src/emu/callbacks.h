/*
 * Appended to a kernel's text: the functions that the compiler's instrumentation calls, under the
 * names and with the data of the sanitizers' run-time libraries. They call the emulator. Hidden, so
 * that the object calls its own functions even if the program is linked with a sanitizer.
 */
void emu_access(const void *pointer, unsigned bytes, int write, int aligned, const void *from);
void emu_misuse(int kind, const char *what, const void *from);
void emu_mismatch(unsigned long long pointer, unsigned log_alignment, const void *from);

#define EMU_CALLBACK                                                                               \
    __attribute__((no_sanitize("thread", "undefined"), visibility("hidden"), noinline, used))
#define EMU_FROM __builtin_return_address(0)

#define EMU_ACCESS(name, bytes, write, aligned)                                                    \
    EMU_CALLBACK void __tsan_##name##bytes(void *pointer) {                                        \
        emu_access(pointer, bytes, write, aligned, EMU_FROM);                                      \
    }
#define EMU_ACCESSES(bytes)                                                                        \
    EMU_ACCESS(read, bytes, 0, 1)                                                                  \
    EMU_ACCESS(write, bytes, 1, 1)                                                                 \
    EMU_ACCESS(unaligned_read, bytes, 0, 0)                                                        \
    EMU_ACCESS(unaligned_write, bytes, 1, 0)                                                       \
    EMU_ACCESS(volatile_read, bytes, 0, 1)                                                         \
    EMU_ACCESS(volatile_write, bytes, 1, 1)                                                        \
    EMU_ACCESS(unaligned_volatile_read, bytes, 0, 0)                                               \
    EMU_ACCESS(unaligned_volatile_write, bytes, 1, 0)
EMU_ACCESSES(1)
EMU_ACCESSES(2)
EMU_ACCESSES(4)
EMU_ACCESSES(8)
EMU_ACCESSES(16)

EMU_CALLBACK void __tsan_read_range(void *pointer, unsigned long bytes) {
    emu_access(pointer, (unsigned)bytes, 0, 0, EMU_FROM);
}

EMU_CALLBACK void __tsan_write_range(void *pointer, unsigned long bytes) {
    emu_access(pointer, (unsigned)bytes, 1, 0, EMU_FROM);
}

EMU_CALLBACK void *__tsan_memcpy(void *to, const void *from, unsigned long bytes) {
    emu_access(from, (unsigned)bytes, 0, 0, EMU_FROM);
    emu_access(to, (unsigned)bytes, 1, 0, EMU_FROM);
    return __builtin_memcpy(to, from, bytes);
}

EMU_CALLBACK void *__tsan_memset(void *to, int value, unsigned long bytes) {
    emu_access(to, (unsigned)bytes, 1, 0, EMU_FROM);
    return __builtin_memset(to, value, bytes);
}

/* Before version 15 clang calls the C library's functions instead, also for copies of structs. */
#if defined(__clang__) && __clang_major__ < 15
EMU_CALLBACK void *memcpy(void *to, const void *from, unsigned long bytes) {
    emu_access(from, (unsigned)bytes, 0, 0, EMU_FROM);
    emu_access(to, (unsigned)bytes, 1, 0, EMU_FROM);
    for (unsigned long i = 0; i < bytes; i++)
        ((volatile char *)to)[i] = ((const volatile char *)from)[i];
    return to;
}

EMU_CALLBACK void *memset(void *to, int value, unsigned long bytes) {
    emu_access(to, (unsigned)bytes, 1, 0, EMU_FROM);
    for (unsigned long i = 0; i < bytes; i++)
        ((volatile char *)to)[i] = (char)value;
    return to;
}
#endif

EMU_CALLBACK void __tsan_init(void) {}

EMU_CALLBACK void __tsan_func_entry(void *caller) {
    (void)caller;
}

EMU_CALLBACK void __tsan_func_exit(void *caller) {
    (void)caller;
}

#define EMU_HANDLER(name, kind, what)                                                              \
    EMU_CALLBACK void __ubsan_handle_##name(void *data) {                                          \
        (void)data;                                                                                \
        emu_misuse(kind, what, EMU_FROM);                                                          \
    }
EMU_HANDLER(add_overflow, 0, "an addition overflows its signed type")
EMU_HANDLER(sub_overflow, 0, "a subtraction overflows its signed type")
EMU_HANDLER(mul_overflow, 0, "a multiplication overflows its signed type")
EMU_HANDLER(negate_overflow, 0, "a negation overflows its signed type")
EMU_HANDLER(divrem_overflow, 0, "a division by zero, or one that overflows")
EMU_HANDLER(shift_out_of_bounds, 0,
            "a shift by more bits than its type has, or out of a signed type")
EMU_HANDLER(out_of_bounds, 1, "an index outside its array (registers, in CUDA terms)")

struct emu_mismatch_data {
    const char *file;
    unsigned line, column;
    const void *type;
    unsigned char log_alignment, kind_of_access;
};

EMU_CALLBACK void __ubsan_handle_type_mismatch_v1(struct emu_mismatch_data *data,
                                                  unsigned long pointer) {
    emu_mismatch(pointer, data->log_alignment, EMU_FROM);
}
