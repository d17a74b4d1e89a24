#include "http/mhd/canned.h"

#include <microhttpd.h>

#include "http/message/response.h"

bool gb_mhd_add_every(struct MHD_Response *response) {
#define ADD(name, value) &&MHD_add_response_header(response, name, value) == MHD_YES
    return true GB_EVERY_REPLY(ADD);
#undef ADD
}

static void release(void *prepared) {
    MHD_destroy_response(prepared);
}

/* The body becomes libmicrohttpd's: connections may still send it when the last reference to the answer is gone. */
static bool prepare(struct gb_http_canned *c) {
    struct MHD_Response *r = MHD_create_response_from_buffer(c->body_len, c->body, MHD_RESPMEM_MUST_FREE);

    if (!r)
        return false;
    c->prepared = r;
    c->release = release;
    return gb_mhd_add_every(r) && MHD_add_response_header(r, "Content-Type", c->type) == MHD_YES &&
           (!c->etag || MHD_add_response_header(r, "ETag", c->etag) == MHD_YES) &&
           MHD_add_response_header(r, "Cache-Control", "no-cache") == MHD_YES;
}

struct gb_http_canned *gb_http_canned_new(int status, const char *content_type, const char *etag, const void *body,
                                          size_t n) {
    struct gb_http_canned *c = gb_canned_make(status, content_type, etag, body, n);

    if (c && !prepare(c)) {
        gb_http_canned_unref(c);
        return NULL;
    }
    return c;
}
