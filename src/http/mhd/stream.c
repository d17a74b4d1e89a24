/* Where libmicrohttpd may hold bytes of a next request, and the connection must not end for that,
 * long answers go its way. It costs a copy. */
#include "http/mhd/stream.h"

#include <string.h>

#include "http/mhd/suspend.h"

/* Over a UNIX socket the kernel reports whole pieces, and a client that takes one in --stall-timeout must be seen
 * moving. With the defaults a piece is half of what --min-rate asks for in that time. */
#define PIECE (16u << 10)

static ssize_t next_piece(void *cls, uint64_t pos, char *buf, size_t max) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = cls;
    struct gb_http_source *source = ex->resp.source;
    const void *at;
    size_t n;
    int r = -1;

    if (ex->phase == GB_PHASE_STREAM && source)
        r = source->next(source, &at, &n, &err);
    /* The length is announced: only the end of the connection tells the client. */
    if (r < 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (r == 0) {
        gb_mhd_suspend(ex->info->loop, ex);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(buf, at, n);
    source->sent(source, n);
    ex->info->replied_ns = ex->info->loop->now_ns;
    ex->info->loop->progress++;
    ex->info->progress.out = pos;
    if (pos + n == ex->resp.source_len) {
        source->free(source, true);
        ex->resp.source = NULL;
    }
    return (ssize_t)n;
}

struct MHD_Response *gb_mhd_stream(struct gb_exchange *ex) {
    gb_progress_begin(&ex->info->progress, ex->info->loop->now_ns);
    return MHD_create_response_from_callback(ex->resp.source_len, GB_MHD_STREAM_BYTES, next_piece, ex, NULL);
}

static ssize_t next_of_memory(void *cls, uint64_t pos, char *buf, size_t max) {
    struct gb_exchange *ex = cls;
    size_t left = ex->long_len - (size_t)pos;
    size_t n = left < max ? left : max;

    if (!ex->info)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buf, ex->long_body + pos, n);
    ex->info->loop->progress++;
    ex->info->progress.out = pos; /* the piece before has gone to the kernel */
    return (ssize_t)n;
}

struct MHD_Response *gb_mhd_pieces(struct gb_exchange *ex, const char *body, size_t n) {
    ex->long_body = body;
    ex->long_len = n;
    gb_progress_begin(&ex->info->progress, ex->info->loop->now_ns);
    return MHD_create_response_from_callback(n, PIECE, next_of_memory, ex, NULL);
}
