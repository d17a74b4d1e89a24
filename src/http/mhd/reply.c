/* From our responses to libmicrohttpd's. */
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "http/server.h"

#define CACHE_LINE 64 /* the kernel copies faster what begins with one */

const char *gb_http_reason(int status) {
    return MHD_get_reason_phrase_for((unsigned)status);
}

static bool add_every(struct MHD_Response *r) {
#define ADD(name, value) &&MHD_add_response_header(r, name, value) == MHD_YES
    return true GB_EVERY_REPLY(ADD);
#undef ADD
}

/* --- canned answers --------------------------------------------------------------------------------------------------- */

struct gb_http_canned {
    atomic_int refs;
    int status;
    char *type;
    char *etag; /* NULL: none */
    char *body; /* libmicrohttpd's copy in full; ours to look at while full lives */
    size_t body_len;
    struct MHD_Response *full;
};

static struct MHD_Response *make_canned(const char *type, const char *etag, const char *body, size_t n,
                                        char **ret_copy) {
    char *copy = aligned_alloc(CACHE_LINE, (n / CACHE_LINE + 1) * CACHE_LINE);
    struct MHD_Response *r;

    if (!copy)
        return NULL;
    if (n > 0)
        memcpy(copy, body, n);
    /* The copy is libmicrohttpd's: connections may still send it when the last reference here is gone. */
    r = MHD_create_response_from_buffer(n, copy, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(copy);
        return NULL;
    }
    if (!add_every(r) || (type && MHD_add_response_header(r, "Content-Type", type) != MHD_YES) ||
        (etag && MHD_add_response_header(r, "ETag", etag) != MHD_YES) ||
        MHD_add_response_header(r, "Cache-Control", "no-cache") != MHD_YES) {
        MHD_destroy_response(r);
        return NULL;
    }
    *ret_copy = copy;
    return r;
}

struct gb_http_canned *gb_http_canned_new(int status, const char *content_type, const char *etag, const void *body,
                                          size_t n) {
    struct gb_http_canned *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    atomic_init(&c->refs, 1);
    c->status = status;
    c->body_len = n;
    c->type = strdup(content_type ? content_type : "application/octet-stream");
    c->etag = etag ? strdup(etag) : NULL;
    c->full = c->type ? make_canned(c->type, etag, body, n, &c->body) : NULL;
    if (!c->full || (etag && !c->etag)) {
        gb_http_canned_unref(c);
        return NULL;
    }
    return c;
}

struct gb_http_canned *gb_http_canned_ref(struct gb_http_canned *canned) {
    atomic_fetch_add_explicit(&canned->refs, 1, memory_order_relaxed);
    return canned;
}

void gb_http_canned_unref(struct gb_http_canned *canned) {
    if (!canned || atomic_fetch_sub_explicit(&canned->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (canned->full)
        MHD_destroy_response(canned->full);
    free(canned->type);
    free(canned->etag);
    free(canned);
}

size_t gb_canned_len(const struct gb_http_canned *canned) {
    return canned->body_len;
}

void gb_canned_unpack(struct gb_exchange *ex, const char **ret_body, size_t *ret_n) {
    const struct gb_http_canned *canned = ex->resp.canned;

    ex->resp.status = canned->status;
    *ret_body = canned->body;
    *ret_n = canned->body_len;
    gb_http_response_header(&ex->resp, NULL, "Content-Type", "%s", canned->type);
    if (canned->etag)
        gb_http_response_header(&ex->resp, NULL, "ETag", "%s", canned->etag);
    gb_http_response_header(&ex->resp, NULL, "Cache-Control", "no-cache");
    if (gb_http_canned_known(canned, &ex->req)) {
        ex->resp.status = 304;
        *ret_n = 0;
    }
}

bool gb_http_canned_known(const struct gb_http_canned *canned, const struct gb_http_request *request) {
    const char *asked = canned->etag ? gb_http_header(request, "If-None-Match") : NULL;

    /* The tag carries its quotes, so that finding it in the list is a comparison with one member of it; weak or not does not matter here. */
    return asked && (strcmp(asked, "*") == 0 || strstr(asked, strchr(canned->etag, '"')) != NULL);
}

/* --- replies ----------------------------------------------------------------------------------------------------------- */

/* Never asked: stands for the body that a reply to HEAD, or a 304, describes and does not send. */
static ssize_t no_body(void *cls, uint64_t pos, char *buf, size_t max) {
    (void)cls;
    (void)pos;
    (void)buf;
    (void)max;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

static struct MHD_Response *make_response(struct gb_exchange *ex) {
    struct gb_http_response *resp = &ex->resp;
    struct MHD_Response *r;
    const char *body = resp->body;
    size_t n = resp->body_len;

    if (ex->phase == GB_PHASE_STREAM)
        return gb_mhd_stream(ex);
    if (resp->source)
        return MHD_create_response_from_callback(resp->source_len, 1024, no_body, NULL, NULL);
    if (resp->unsent_len > 0)
        return MHD_create_response_from_callback(resp->unsent_len, 1024, no_body, NULL, NULL);
    if (gb_reply_bytes(ex) > GB_LONG_REPLY) {
        if (resp->canned)
            gb_canned_unpack(ex, &body, &n);
        return gb_mhd_pieces(ex, body, n);
    }
    r = MHD_create_response_from_buffer(resp->body_len, resp->body, MHD_RESPMEM_MUST_FREE);
    if (r)
        resp->body = NULL;
    return r;
}

static int queue(struct gb_exchange *ex) {
    struct MHD_Response *r = make_response(ex);
    enum MHD_Result ok;
    unsigned i;

    if (!r)
        return -1;
    /* Each costs libmicrohttpd three allocations. */
    ok = !gb_reply_is_read(ex) || add_every(r) ? MHD_YES : MHD_NO;
    for (i = 0; i < ex->resp.headers && ok == MHD_YES; i++)
        ok = MHD_add_response_header(r, ex->resp.header[i].name, ex->resp.header[i].value);
    if (ok == MHD_YES && (ex->close || atomic_load(&ex->server->draining)))
        ok = MHD_add_response_header(r, "Connection", "close");
    if (ok == MHD_YES)
        ok = MHD_queue_response(ex->conn, (unsigned)ex->resp.status, r);
    MHD_destroy_response(r);
    return ok == MHD_YES ? 0 : -1;
}

int gb_mhd_reply(struct gb_exchange *ex) {
    struct gb_http_canned *canned = ex->resp.canned;

    if (!canned || gb_reply_bytes(ex) > GB_LONG_REPLY)
        return queue(ex);
    /* libmicrohttpd sends no body with a 304, and the length in its header is then that of the 200, as it should be. */
    ex->resp.status = gb_http_canned_known(canned, &ex->req) ? 304 : canned->status;
    return MHD_queue_response(ex->conn, (unsigned)ex->resp.status, canned->full) == MHD_YES ? 0 : -1;
}
