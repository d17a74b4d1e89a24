/* The body of a download. */
#include <stdlib.h>

#include "api/transfer/download_source.h"

static const struct gb_range *range_of(const struct download *d) {
    return &d->ranges.range[d->part];
}

/* Begins with the part's share of the header. */
static void enter_head(struct download *d) {
    const struct gb_range *r = range_of(d);
    uint64_t end = r->first + r->length;

    if (r->first < d->head_size) {
        d->at = d->head + r->first;
        d->at_n = (size_t)((end < d->head_size ? end : d->head_size) - r->first);
    }
    d->stage = DOWNLOAD_HEAD;
}

static void enter_part(struct download *d) {
    if (!download_several(d)) {
        enter_head(d);
        return;
    }
    d->at = d->text;
    d->at_n = gb_byteranges_head(&d->multipart, &d->ranges, d->part, d->text);
    d->stage = DOWNLOAD_TEXT;
}

static void leave_part(struct download *d) {
    if (++d->part < d->ranges.count) {
        enter_part(d);
        return;
    }
    if (download_several(d)) {
        d->at = d->text;
        d->at_n = gb_byteranges_tail(&d->multipart, d->text);
    }
    d->stage = DOWNLOAD_END;
}

/* Goes on to the next stage that has bytes. */
static void advance(struct download *d) {
    while (d->at_n == 0 && d->left == 0 && d->stage != DOWNLOAD_END) {
        switch (d->stage) {
        case DOWNLOAD_TEXT:
            enter_head(d);
            break;
        case DOWNLOAD_HEAD:
            d->left = d->spans[d->part].length;
            d->stage = DOWNLOAD_BYTES;
            break;
        default:
            leave_part(d);
        }
    }
}

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct download *d = (struct download *)source;
    int r = 1;

    advance(d);
    if (d->at_n > 0) {
        *ret_ptr = d->at;
        *ret_n = d->at_n;
        return 1;
    }
    if (d->left == 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "more was asked for than there is to send");
    if (d->block_n > 0) {
        *ret_ptr = d->block;
        *ret_n = d->block_n;
    } else {
        r = gb_download_next(d->core, ret_ptr, ret_n, err);
    }
    if (r > 0 && *ret_n > d->left)
        *ret_n = (size_t)d->left;
    return r;
}

static void source_sent(struct gb_http_source *source, size_t n) {
    struct download *d = (struct download *)source;

    if (d->at_n > 0) {
        d->at += n;
        d->at_n -= n;
        return;
    }
    d->left -= n;
    if (d->block_n > 0) {
        d->block += n;
        d->block_n -= n;
    }
    gb_download_sent(d->core, n);
}

static void source_pause(struct gb_http_source *source) {
    struct download *d = (struct download *)source;

    d->block_n = 0; /* the core gives the rest of it again */
    if (d->core)
        gb_download_pause(d->core);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct download *d = (struct download *)source;

    gb_download_free(d->core, complete);
    gb_session_unref(d->session);
    gb_buffer_rec_done(&d->rec);
    free(d->head);
    free(d->bytes);
    free(d);
}

void gb_download_source_init(struct download *d) {
    d->source =
        (struct gb_http_source){.next = source_next, .sent = source_sent, .pause = source_pause, .free = source_free};
    d->part = 0;
    d->at_n = 0;
    d->left = 0;
    enter_part(d);
}
