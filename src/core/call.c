#include <stdlib.h>

#include "core/core_internal.h"

struct gb_call *gb_call_new(void (*done)(void *arg), void *arg) {
    struct gb_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    atomic_init(&call->refs, 2);
    call->done = done;
    call->arg = arg;
    return call;
}

void gb_call_unref(struct gb_call *call) {
    if (call && atomic_fetch_sub(&call->refs, 1) == 1)
        free(call);
}

void gb_call_finish(struct gb_call *call, const struct gb_error *error) {
    if (error && call->error.code == GB_OK)
        call->error = *error;
    atomic_store(&call->finished, true);
    if (call->done)
        call->done(call->arg);
    gb_call_unref(call);
}

int gb_no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "the daemon has no memory left");
}
