/* POST /v1/sessions/{session}/batch. Operations run in waves. In one wave no operation needs the result of another; all
 * are queued one after the other, and their changes are committed at once. */
#ifndef GB_API_TRANSFER_BATCH_H
#define GB_API_TRANSFER_BATCH_H

#include <jansson.h>
#include <stdatomic.h>

#include "api/context.h"

enum gb_batch_what { GB_BATCH_CREATE, GB_BATCH_DELETE, GB_BATCH_COPY, GB_BATCH_FILL, GB_BATCH_SYNC, GB_BATCH_RELEASE };
const char *gb_batch_word(enum gb_batch_what what);

struct gb_batch_item {
    enum gb_batch_what what;
    struct gb_name name;
    const json_t *body; /* borrowed */
    size_t wave;
    struct gb_buffer_call *call;  /* a reference once the call has begun */
    struct gb_error error;        /* why it could not begin */
    struct gb_copy_source source; /* of a copy, as of the beginning of its wave */
};

/* One reference is the request's; each call under way has another. */
struct gb_batch {
    atomic_size_t refs;
    struct gb_core *core;
    struct gb_http_request *request; /* a reference */
    json_t *root;
    struct gb_name session;
    struct gb_name stream; /* "" when the batch names none */
    bool atomic;
    unsigned wait_ms;
    size_t count;
    struct gb_batch_item *items;

    size_t begun;          /* of all items, in order */
    size_t wave_end;       /* of the present wave */
    atomic_size_t pending; /* of the present wave, and one while it is being begun */
    struct gb_transaction_batch *transactions;
};

/* Reads and checks the whole batch. Returns NULL with *err, which names the wrong operation. */
struct gb_batch *gb_batch_read(struct gb_http_request *request, struct gb_error *err);
void gb_batch_unref(struct gb_batch *batch);
/* Looks for the sources of the copies of a wave, the items from `from` to `end`: what they copy is of one moment, so
 * that buffers that were written as one are copied as one. Returns 0, or -1 with SATURATED. */
int gb_batch_look(struct gb_batch *batch, size_t from, size_t end, struct gb_error *err);
/* Starts the item's call, or sets its error. */
void gb_batch_begin(struct gb_batch *batch, struct gb_batch_item *item);

#endif
