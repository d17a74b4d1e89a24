/* A download between the headers and the last byte. download.c is the handler, download_plan.c decides what is sent,
 * download_source.c gives the bytes, download_values.c writes them as JSON or text. */
#ifndef GB_API_TRANSFER_DOWNLOAD_PLAN_H
#define GB_API_TRANSFER_DOWNLOAD_PLAN_H

#include "api/middleware/conditional.h"
#include "core/core.h"
#include "http/http.h"
#include "http/message/fields.h"
#include "model/view.h"

/* What comes next in the body. Each part has its own text, its share of the header and its share of the bytes. */
enum download_stage { DOWNLOAD_TEXT, DOWNLOAD_HEAD, DOWNLOAD_BYTES, DOWNLOAD_END };

/* The representation is the header of the form (raw bytes have none) followed by the bytes of view. The ranges are of
 * the representation. */
struct download {
    struct gb_http_source source; /* first */
    struct gb_session *session;   /* a reference; found once */
    struct gb_download *core;     /* NULL when no byte of the buffer is sent */
    struct gb_buffer_rec rec;

    /* The plan: */
    enum gb_form form;         /* raw if values are written */
    enum gb_notation notation; /* of the values in place of the bytes; ranges are of the bytes, and there are none */
    char etag[GB_ETAG_SIZE];
    bool cut;              /* ?offset= or ?length=: bytes that have no shape */
    bool sliced;           /* ?slice= */
    struct gb_shape shape; /* of what view picks, unless cut */
    struct gb_view view;   /* of the buffer's bytes */
    char *head;
    size_t head_size;
    uint64_t total; /* of the representation */
    enum gb_range_kind range_kind;
    struct gb_range_set ranges;          /* of the representation: one for the whole, none when it is empty */
    struct gb_span spans[GB_RANGES_MAX]; /* of the view, one for each range; some may be empty */
    uint64_t length;                     /* of all spans */
    struct gb_byteranges multipart;      /* several ranges */
    char text[GB_MULTIPART_TEXT_SIZE];
    uint64_t body_length;

    /* Where the body is: */
    enum download_stage stage;
    unsigned part;
    const char *at; /* of text or head: the bytes still to send */
    size_t at_n;
    uint64_t left;     /* of the part's bytes */
    const char *block; /* the first block, got before the header went out */
    size_t block_n;
    char *bytes; /* all of them, if values are written; block_n says how many are there */
};

static inline bool download_several(const struct download *d) {
    return d->ranges.count > 1;
}

/* Decides by the record. The response has the ETag afterwards. Returns 1 to send, 0 when the response is complete, or
 * -1. */
int gb_download_plan(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                     struct gb_error *err);

#endif
