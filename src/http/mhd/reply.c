#include "http/mhd/reply.h"

#include <microhttpd.h>

#include "http/exchange/reply_memory.h"
#include "http/exchange/server_state.h"
#include "http/message/canned.h"
#include "http/message/cors.h"
#include "http/message/response.h"
#include "http/mhd/stream.h"

/* Never called: stands for the body that a reply to HEAD, or a 304, describes but does not send. */
static ssize_t no_body(void *cls, uint64_t pos, char *buf, size_t max) {
    (void)cls;
    (void)pos;
    (void)buf;
    (void)max;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* The exchange's reference keeps the body until libmicrohttpd has sent it. */
static struct MHD_Response *make_canned(struct gb_exchange *ex) {
    size_t whole = ex->resp.canned->body_len;
    const char *body;
    size_t n;

    gb_response_unpack(&ex->resp, &ex->req, &body, &n);
    if (ex->resp.status == 304)
        return MHD_create_response_from_callback(whole, 1024, no_body, NULL, NULL);
    return MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
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
            gb_response_unpack(&ex->resp, &ex->req, &body, &n);
        return gb_mhd_pieces(ex, body, n);
    }
    if (resp->canned)
        return make_canned(ex);
    r = MHD_create_response_from_buffer(resp->body_len, resp->body, MHD_RESPMEM_MUST_FREE);
    if (r)
        resp->body = NULL;
    return r;
}

/* Adds the fields that every reply to a request that reads has. */
static bool add_every(struct MHD_Response *response) {
#define ADD(name, value) &&MHD_add_response_header(response, name, value) == MHD_YES
    return true GB_EVERY_REPLY(ADD);
#undef ADD
}

int gb_mhd_reply(struct gb_exchange *ex) {
    struct MHD_Response *r = make_response(ex);
    struct gb_cors_field cors[GB_CORS_FIELDS];
    enum MHD_Result ok;
    unsigned cors_count;
    unsigned i;

    if (!r)
        return -1;
    /* Each field costs libmicrohttpd three allocations. */
    ok = !gb_reply_is_read(&ex->req) || add_every(r) ? MHD_YES : MHD_NO;
    if (ok == MHD_YES && gb_reply_is_asked_for_each_time(&ex->req, &ex->resp))
        ok = MHD_add_response_header(r, GB_REPLY_CACHING_NAME, GB_REPLY_CACHING);
    if (ok == MHD_YES)
        ok = MHD_add_response_header(r, GB_REPLY_ID, ex->req.id);
    for (i = 0, cors_count = gb_cors_fields(&ex->req, cors); i < cors_count && ok == MHD_YES; i++)
        ok = MHD_add_response_header(r, cors[i].name, cors[i].value);
    for (i = 0; i < ex->resp.headers && ok == MHD_YES; i++)
        ok = MHD_add_response_header(r, ex->resp.header[i].name, ex->resp.header[i].value);
    if (ok == MHD_YES && (ex->close || atomic_load(&ex->server->draining)))
        ok = MHD_add_response_header(r, "Connection", "close");
    if (ok == MHD_YES)
        ok = MHD_queue_response(ex->conn, (unsigned)ex->resp.status, r);
    MHD_destroy_response(r);
    return ok == MHD_YES ? 0 : -1;
}
