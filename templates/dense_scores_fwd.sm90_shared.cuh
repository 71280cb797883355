//@use common/base.cuh
//@use common/streamed_wgmma.cuh
/* Shared memory of dense_scores_fwd.sm90.cu beside the product's. */

/* What follows a part. */
enum { LAST_TILE = 1 /* of these keys */, ADDS = 2 /* to an earlier round's sums */, NO_MORE = 4 };

struct step {
    int flags;
    int first_query, queries; /* of the tile; those that exist */
    int first_key, keys;
    int unused[3];
};

DEVICE struct step *step_at(int stage) {
    return (struct step *)(arena + STEPS_OFFSET) + stage;
}

DEVICE float *offsets_at(int stage) {
    return (float *)(arena + OFFSETS_OFFSET) + stage * COLUMNS;
}
