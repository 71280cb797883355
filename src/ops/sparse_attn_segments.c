/* See sparse_attn_segments.h. */
#include "ops/sparse_attn_segments.h"

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/call.h"
#include "ops/cuts.h"
#include "ops/divide.h"

enum { RANGE = SMELT__BWD_TRANSPOSE_RANGE };

int64_t smelt__segments_round(int64_t chunk, int64_t key_stride, int64_t key_count) {
    const int64_t by_entries = SMELT__CUT_ROUND_ENTRIES / (chunk * key_stride);
    const int64_t by_starts = SMELT__CUT_ROUND_STARTS / (key_count ? key_count : 1);
    const int64_t chunks = by_entries < by_starts ? by_entries : by_starts;
    return chunks > 1 ? chunks : 1;
}

int64_t smelt__segments_starts(int64_t chunk, int64_t key_count) {
    return chunk * (key_count + 1);
}

struct smelt__segments_layout smelt__segments_layout(int64_t groups, int64_t chunk,
                                                     int64_t key_stride, int64_t key_count) {
    return (struct smelt__segments_layout){
        .starts = smelt__segments_starts(smelt__divide_up(groups, chunk), key_count),
        .entries = groups * key_stride};
}

smelt_status smelt__segments_launch(const smelt_context *context,
                                    const struct smelt__kernel *transpose,
                                    const struct sparse_attn_bwd_segments_params *given,
                                    struct CUstream_st *stream) {
    struct sparse_attn_bwd_segments_params params = *given;
    params.chunks = (int)smelt__divide_up(params.groups, params.chunk);
    const int64_t ranges = params.chunks * smelt__divide_up(params.key_count, RANGE);
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(transpose, ranges, transpose->most_blocks)},
        .params = &params};
    return smelt__kernel_launch(context, transpose, &launch, stream);
}
