#include "http/message/canned.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_LINE 64 /* the kernel copies faster if the source begins with one */

struct gb_http_canned *gb_http_canned_new(int status, const char *content_type, const char *etag, const void *body,
                                          size_t n) {
    struct gb_http_canned *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    atomic_init(&c->refs, 1);
    c->status = status;
    c->type = strdup(content_type ? content_type : "application/octet-stream");
    c->etag = etag ? strdup(etag) : NULL;
    c->body = aligned_alloc(CACHE_LINE, (n / CACHE_LINE + 1) * CACHE_LINE);
    c->body_len = n;
    if (!c->type || !c->body || (etag && !c->etag)) {
        gb_http_canned_unref(c);
        return NULL;
    }
    if (n > 0)
        memcpy(c->body, body, n);
    return c;
}

struct gb_http_canned *gb_http_canned_ref(struct gb_http_canned *canned) {
    atomic_fetch_add_explicit(&canned->refs, 1, memory_order_relaxed);
    return canned;
}

void gb_http_canned_unref(struct gb_http_canned *canned) {
    if (!canned || atomic_fetch_sub_explicit(&canned->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(canned->body);
    free(canned->type);
    free(canned->etag);
    free(canned);
}

bool gb_http_canned_known(const struct gb_http_canned *canned, const struct gb_http_request *request) {
    const char *asked = canned->etag ? gb_http_header(request, "If-None-Match") : NULL;

    /* The tag carries its quotes, so that finding it in the list compares it with one whole member. Weak tags match
     * too. */
    return asked && (strcmp(asked, "*") == 0 || strstr(asked, strchr(canned->etag, '"')) != NULL);
}
