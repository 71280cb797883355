/*
 * smelt for C++17: handles that destroy what they own, spans, tensors, and errors as exceptions. Thin
 * and header only: the C headers document every call, and a handle converts to the C pointer:
 *
 *   smelt::context context(smelt::device(0));
 *   smelt::operation attention(context, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048");
 *   smelt::buffer<std::uint16_t> q(context, tokens * 64 * 576);
 *   q.upload(host_q);
 *   smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
 *   args.q = smelt::input(q.data());
 *   ...
 *   smelt::check(smelt_sparse_attn_forward(attention, &args, stream));
 *
 * Every function but `check` and the constructors that take arguments is noexcept and returns a
 * status; those throw smelt::error. Without exceptions (-fno-exceptions, or SMELT_NO_EXCEPTIONS
 * defined) they are not declared: make an empty handle and call `create`.
 *
 * A handle is moved, not copied, and its context must outlive it.
 */
#ifndef SMELT_SMELT_HPP
#define SMELT_SMELT_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "smelt/smelt.h"

#if defined(__cpp_exceptions) && !defined(SMELT_NO_EXCEPTIONS)
#define SMELT_EXCEPTIONS 1
#include <stdexcept>
#endif

namespace smelt {

/* ---- errors ---------------------------------------------------------------------------------- */

#ifdef SMELT_EXCEPTIONS
class error : public std::runtime_error {
  public:
    error(smelt_status status, const char *message)
        : std::runtime_error(message), status_(status) {}
    smelt_status status() const noexcept {
        return status_;
    }

  private:
    smelt_status status_;
};

/* Throws the thread's last message, unless `status` is OK. */
inline void check(smelt_status status) {
    if (status != SMELT_OK)
        throw error(status, *smelt_last_error() ? smelt_last_error() : smelt_status_name(status));
}
#endif

/* ---- spans and tensors ----------------------------------------------------------------------- */

/* Contiguous elements in host memory: an array, or whatever has data() and size(). */
template <class T> class span {
  public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}
    template <class Container, class = std::enable_if_t<std::is_convertible_v<
                                   decltype(std::declval<Container &>().data()), T *>>>
    constexpr span(Container &&container) noexcept
        : data_(container.data()), size_(container.size()) {}
    constexpr T *data() const noexcept {
        return data_;
    }
    constexpr std::size_t size() const noexcept {
        return size_;
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail {
template <class Tensor, class Pointer>
Tensor tensor(Pointer data, std::initializer_list<std::int64_t> strides) noexcept {
    Tensor made = {};
    int at = 0;
    made.data = data;
    for (std::int64_t stride : strides)
        if (at < SMELT_TENSOR_STRIDES)
            made.strides[at++] = stride;
    return made;
}
} // namespace detail

/* Tensors of args structs; without strides they are packed (smelt/tensor.h). */
inline smelt_const_tensor input(const void *data,
                                std::initializer_list<std::int64_t> strides = {}) noexcept {
    return detail::tensor<smelt_const_tensor>(data, strides);
}
inline smelt_tensor output(void *data, std::initializer_list<std::int64_t> strides = {}) noexcept {
    return detail::tensor<smelt_tensor>(data, strides);
}

/* ---- handles --------------------------------------------------------------------------------- */

/* Owns one T. */
template <class T, void (*Destroy)(T **)> class handle {
  public:
    handle() noexcept = default;
    handle(handle &&from) noexcept : owned_(std::exchange(from.owned_, nullptr)) {}
    handle &operator=(handle &&from) noexcept {
        std::swap(owned_, from.owned_);
        return *this;
    }
    ~handle() {
        Destroy(&owned_);
    }
    T *get() const noexcept {
        return owned_;
    }
    operator T *() const noexcept {
        return owned_;
    }

  protected:
    T **renew() noexcept {
        Destroy(&owned_);
        return &owned_;
    }

  private:
    T *owned_ = nullptr;
};

/* Options of a context on a device's primary CUDA context, or of one that only compiles. */
inline smelt_context_options device(int number) noexcept {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.device = number;
    return options;
}
inline smelt_context_options compile_only(const char *arch) noexcept {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = arch;
    return options;
}

class context : public handle<smelt_context, smelt_context_destroy> {
  public:
    context() noexcept = default;
#ifdef SMELT_EXCEPTIONS
    explicit context(const smelt_context_options &options) {
        check(create(options));
    }
#endif
    [[nodiscard]] smelt_status create(const smelt_context_options &options) noexcept {
        return smelt_context_create(renew(), &options);
    }
};

class operation : public handle<smelt_operator, smelt_operator_destroy> {
  public:
    operation() noexcept = default;
#ifdef SMELT_EXCEPTIONS
    operation(smelt_context *context, const char *spec) {
        check(create(context, spec));
    }
#endif
    [[nodiscard]] smelt_status create(smelt_context *context, const char *spec) noexcept {
        return smelt_operator_create(renew(), context, spec);
    }
};

/* Device memory of `size` elements, uninitialised. */
template <class T> class buffer {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain values");

  public:
    buffer() noexcept = default;
    buffer(buffer &&from) noexcept {
        *this = std::move(from);
    }
    buffer &operator=(buffer &&from) noexcept {
        std::swap(context_, from.context_);
        std::swap(data_, from.data_);
        std::swap(size_, from.size_);
        return *this;
    }
    ~buffer() {
        release();
    }
#ifdef SMELT_EXCEPTIONS
    buffer(const smelt_context *context, std::size_t size) {
        check(create(context, size));
    }
#endif
    [[nodiscard]] smelt_status create(const smelt_context *context, std::size_t size) noexcept {
        void *memory = nullptr;
        release();
        const smelt_status status = smelt_device_alloc(context, size * sizeof(T), &memory);
        context_ = context;
        data_ = static_cast<T *>(memory);
        size_ = status == SMELT_OK ? size : 0;
        return status;
    }
    /* Of `host`'s size, which must not exceed the buffer's: INVALID_ARGUMENT. */
    [[nodiscard]] smelt_status upload(span<const T> host) noexcept {
        return host.size() > size_
                   ? SMELT_ERROR_INVALID_ARGUMENT
                   : smelt_device_upload(context_, data_, host.data(), host.size() * sizeof(T));
    }
    [[nodiscard]] smelt_status download(span<T> host) const noexcept {
        return host.size() > size_
                   ? SMELT_ERROR_INVALID_ARGUMENT
                   : smelt_device_download(context_, host.data(), data_, host.size() * sizeof(T));
    }
    T *data() const noexcept {
        return data_;
    }
    std::size_t size() const noexcept {
        return size_;
    }

  private:
    void release() noexcept {
        if (data_)
            smelt_device_free(context_, data_);
        data_ = nullptr;
        size_ = 0;
    }
    const smelt_context *context_ = nullptr;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace smelt

#endif
