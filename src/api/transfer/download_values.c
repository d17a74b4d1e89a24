#include "api/transfer/download_values.h"

#include <stdlib.h>
#include <string.h>

#include "api/reply/deferred.h"
#include "base/container.h"
#include "format/values.h"

int gb_download_collect(struct download *d, struct gb_error *err) {
    const void *block;
    size_t n;
    int r;

    if (!d->bytes)
        d->bytes = malloc(d->view.bytes);
    if (!d->bytes)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the values; try again later");
    while (d->block_n < d->view.bytes) {
        r = gb_download_next(d->core, &block, &n, err);
        if (r <= 0)
            return r;
        memcpy(d->bytes + d->block_n, block, n);
        d->block_n += n;
        gb_download_sent(d->core, n);
    }
    return 1;
}

struct writing {
    struct gb_deferred deferred;
    struct download *d;
    struct gb_json_writer out;
};

static int make(struct gb_deferred *deferred, struct gb_error *err) {
    struct writing *w = gb_container_of(deferred, struct writing, deferred);
    const struct download *d = w->d;

    (void)err;
    if (d->notation == GB_NOTATION_JSON)
        gb_values_json(&w->out, d->rec.dtype, &d->shape, d->bytes);
    else
        gb_values_text(&w->out, d->rec.dtype, &d->shape, d->bytes);
    return w->out.failed ? -1 : 0;
}

static enum gb_step reply(struct gb_deferred *deferred, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err) {
    struct writing *w = gb_container_of(deferred, struct writing, deferred);

    (void)request;
    (void)err;
    gb_http_response_take(response, w->out.s, w->out.used);
    w->out = (struct gb_json_writer){0};
    return GB_STEP_REPLY;
}

static void release(struct gb_deferred *deferred) {
    struct writing *w = gb_container_of(deferred, struct writing, deferred);

    w->d->source.free(&w->d->source, true);
    gb_json_done(&w->out);
    free(w);
}

enum gb_step gb_download_write(struct gb_http_request *request, struct gb_error *err) {
    struct download *d = request->state;
    struct writing *w = calloc(1, sizeof(*w));

    if (!w) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the values; try again later");
        return GB_STEP_ERROR;
    }
    gb_download_free(d->core, true);
    d->core = NULL;
    w->d = d;
    w->deferred = (struct gb_deferred){.make = make, .reply = reply, .release = release};
    return gb_deferred_start(request, &w->deferred);
}
