/* A long answer by way of libmicrohttpd: where it may hold bytes of a next request, and the connection must not end for that.
 * It costs a copy. */
#include <microhttpd.h>
#include <string.h>

#include "http/server.h"

/* libmicrohttpd allocates this for each such response. */
#define BLOCK (256u << 10)

static ssize_t next_piece(void *cls, uint64_t pos, char *buf, size_t max) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = cls;
    struct gb_http_source *source = ex->resp.source;
    const void *at;
    size_t n;
    int r = -1;

    if (ex->phase == GB_PHASE_STREAM && source)
        r = source->next(source, &at, &n, &err);
    if (r < 0)
        return MHD_CONTENT_READER_END_WITH_ERROR; /* the length is announced: only breaking off tells the client */
    if (r == 0) {
        gb_mhd_suspend(ex->loop, ex);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(buf, at, n);
    source->sent(source, n);
    ex->info->replied_ns = ex->loop->now_ns;
    ex->info->reply_bytes = n;
    if (pos + n == ex->resp.source_len) {
        source->free(source, true);
        ex->resp.source = NULL;
    }
    return (ssize_t)n;
}

struct MHD_Response *gb_mhd_stream(struct gb_exchange *ex) {
    return MHD_create_response_from_callback(ex->resp.source_len, BLOCK, next_piece, ex, NULL);
}
