//@use common/base.cuh
//@use common/work.cuh
/* Parts of what common/few_ring.cuh asks of an operator. */

/* The batch and the token of an item's query. */
struct few_position {
    int batch, token;
};

DEVICE struct few_position position_of(const struct work_params *work, int query) {
    const int batch = query_batch(work, query);
    const struct few_position position = {batch, query - batch * work->tokens};
    return position;
}

/* An item's slots. */
struct item_slots {
    const int *row;
    int count;
    int rows; /* the KV rows below it are valid */
};

/* The rows of an item's output, head by head. */
struct output_rows {
    char *first;
    i64 head_bytes;
};
