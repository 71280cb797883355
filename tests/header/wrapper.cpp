/* smelt.hpp on the emulator: ownership, spans, statuses and, where the compiler has them, exceptions. */
#include <smelt/smelt.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void require(bool holds, const char *what) {
    if (holds)
        return;
    std::fprintf(stderr, "FAILED: %s: %s\n", what, smelt_last_error());
    std::exit(1);
}
#define REQUIRE(condition) require(condition, #condition)

static_assert(!std::is_copy_constructible_v<smelt::context>);
static_assert(!std::is_copy_assignable_v<smelt::buffer<int>>);
static_assert(std::is_nothrow_move_constructible_v<smelt::operation>);

static void test_spans() {
    int array[3] = {1, 2, 3};
    const std::vector<int> vector = {4, 5};
    const smelt::span<const int> of_array = array, of_vector = vector;
    const smelt::span<const int> of_temporary = std::array<int, 4>{};
    REQUIRE(of_array.data() == array && of_array.size() == 3);
    REQUIRE(of_vector.data() == vector.data() && of_vector.size() == 2);
    REQUIRE(of_temporary.size() == 4);
    const smelt_const_tensor tensor = smelt::input(array, {8, 4});
    REQUIRE(tensor.data == array && tensor.strides[1] == 4 && tensor.strides[2] == 0);
}

static void test_handles() {
    smelt::context context, other;
    REQUIRE(context.create(smelt::compile_only("sm_91")) == SMELT_ERROR_INVALID_SPEC && !context);
    REQUIRE(context.create(smelt::compile_only("h100")) == SMELT_OK);
    REQUIRE(!std::strcmp(smelt_context_arch(context), "sm_90a"));
    other = std::move(context);
    REQUIRE(!context.get() && other.get());
    smelt::operation operation;
    REQUIRE(operation.create(other, "sparse_attn:heads=8,dqk=64,dv=64,topk=32") ==
            SMELT_ERROR_NO_DEVICE);
}

/* Windows of one sequence of four: query t sees keys up to t. */
static void test_call(smelt_context *context) {
    const std::int32_t lengths[] = {0, 4};
    std::vector<std::int32_t> found(4, -1);
    smelt::buffer<std::int32_t> bounds, begin, end;
    smelt::operation operation;
    REQUIRE(operation.create(context, "indexer_windows") == SMELT_OK);
    REQUIRE(bounds.create(context, 2) == SMELT_OK && bounds.upload(lengths) == SMELT_OK);
    REQUIRE(begin.create(context, 4) == SMELT_OK && end.create(context, 4) == SMELT_OK);
    REQUIRE(bounds.upload(found) == SMELT_ERROR_INVALID_ARGUMENT);
    smelt_indexer_windows_args args = SMELT_INDEXER_WINDOWS_ARGS_INIT;
    args.tokens = args.rows = 4;
    args.documents = 1;
    args.cu_seqlens = smelt::input(bounds.data());
    args.window_begin = smelt::output(begin.data());
    args.window_end = smelt::output(end.data());
    REQUIRE(smelt_indexer_windows_forward(operation, &args, nullptr) == SMELT_OK);
    REQUIRE(end.download(found) == SMELT_OK);
    for (int t = 0; t < 4; t++)
        REQUIRE(found[static_cast<std::size_t>(t)] == t + 1);
}

#ifdef SMELT_EXCEPTIONS
static void test_exceptions() {
    try {
        smelt::context context(smelt::compile_only("h300"));
        REQUIRE(!"thrown");
    } catch (const smelt::error &error) {
        REQUIRE(error.status() == SMELT_ERROR_INVALID_SPEC);
        REQUIRE(std::strstr(error.what(), "no architecture or GPU 'h300'"));
    }
    smelt::context context(smelt::device(0));
    smelt::buffer<float> memory(context, 3);
    smelt::check(memory.upload(std::array<float, 3>{1, 2, 3}));
}
#endif

int main() {
    smelt::context context;
    test_spans();
    test_handles();
    REQUIRE(context.create(smelt::device(0)) == SMELT_OK);
    test_call(context);
#ifdef SMELT_EXCEPTIONS
    test_exceptions();
#endif
    return 0;
}
