/* GET /v1/feed: listening, a page of the log, and events as text. An event is written as text once for all listeners.
 * The feed of the server calls the hooks here, on its thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/text.h"

/* --- events as text ----------------------------------------------------------------------------------------------- */

/* Events as text, and the feed's hooks. */

static void text(struct gb_json_writer *out, const char *key, const char *value) {
    if (value[0])
        gb_json_put_string(out, key, value);
}

/* Writes one event as a JSON object. */
static void render_notice(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                          const struct gb_notice *n) {
    char lease[GB_CURSOR_SIZE];

    gb_json_open(out, key, '{');
    gb_json_put_i64(out, "id", n->id);
    gb_json_put_time(out, "at", n->at_us);
    gb_json_put_string(out, "type", gb_notice_word(n->type));
    text(out, "session", n->session.s);
    text(out, "pool", n->pool.s);
    text(out, "buffer", n->buffer.s);
    if (n->device >= 0)
        gb_render_device_id(out, "device", api, n->device);
    if (n->has_bytes)
        gb_json_put_u64(out, "bytes", n->bytes);
    if (n->count > 0)
        gb_json_put_u64(out, "count", n->count);
    if (n->generation > 0)
        gb_json_put_i64(out, "generation", n->generation);
    if (n->has_head)
        gb_json_put_string(out, "head", gb_head_name(n->head));
    if (n->lease > 0)
        gb_json_put_string(out, "lease", gb_cursor_text(n->lease, lease));
    text(out, "detail", n->detail);
    gb_json_close(out, '}');
}

/* Makes the event that reports a gap to a reader: the events after `after`, up to `through`, are no longer all in the
 * log. why may be NULL. */
static struct gb_notice notice_of_gap(int64_t after, int64_t through, const char *why) {
    struct gb_notice n = {.id = through, .at_us = gb_wall_us(), .type = GB_NOTICE_FEED_GAP, .device = -1};

    if (why)
        snprintf(n.detail, sizeof(n.detail), "%s", why);
    else
        snprintf(n.detail, sizeof(n.detail),
                 "of the events after %" PRId64 ", up to %" PRId64 ", the log has not all any more", after, through);
    return n;
}

/* Appends the event as one of text/event-stream: id, event, data, empty line. A gap that does not come from the log has
 * after and no id of its own (id 0). */
static void render_event_text(struct gb_json_writer *out, const struct gb_api *api, const struct gb_notice *n) {
    char head[80];

    snprintf(head, sizeof(head), "id: %" PRId64 "\nevent: %s\ndata: ", n->id, gb_notice_word(n->type));
    gb_json_put_text(out, head);
    render_notice(out, NULL, api, n);
    gb_json_put_text(out, "\n\n");
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static struct gb_http_frame *frame_of(const struct gb_api *api, const struct gb_notice *n) {
    struct gb_http_frame *frame = NULL;
    struct gb_json_writer out = {0};

    render_event_text(&out, api, n);
    if (!out.failed)
        frame = gb_http_frame_new((uint64_t)n->id, 1ULL << n->type, n->session.s, n->buffer.s, out.s, out.used);
    gb_json_done(&out);
    return frame;
}

static size_t add_frame(const struct gb_api *api, const struct gb_notice *n, struct gb_http_frame **frames,
                        size_t count) {
    frames[count] = frame_of(api, n);
    return frames[count] ? count + 1 : count;
}

/* Notices that are read and given in one go. */
#define PIECE 64
#define LOOK 512

static size_t feed_read(void *app, uint64_t after, uint64_t topics, const char *owner, struct gb_http_frame **frames,
                        size_t max, uint64_t *ret_through) {
    struct gb_api *api = app;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_notice notices[PIECE];
    struct gb_feed_piece piece = {.after = (int64_t)after,
                                  .look_max = LOOK,
                                  .filter.types = topics,
                                  .notices = notices,
                                  .max = max - 1 < PIECE ? max - 1 : PIECE}; /* a gap may precede them */
    struct gb_notice gap;
    size_t count = 0;
    size_t i;

    snprintf(piece.filter.session.s, sizeof(piece.filter.session.s), "%s", owner);
    if (gb_feed_read(api->core, &piece, &err) < 0) {
        gap = notice_of_gap((int64_t)after, piece.last, "the log cannot be read");
        *ret_through = (uint64_t)piece.last;
        return add_frame(api, &gap, frames, 0);
    }
    if (piece.gap_through > 0) {
        gap = notice_of_gap((int64_t)after, piece.gap_through, NULL);
        count = add_frame(api, &gap, frames, count);
    }
    for (i = 0; i < piece.count; i++)
        count = add_frame(api, &notices[i], frames, count);
    *ret_through = (uint64_t)piece.through;
    return count;
}

static uint64_t feed_newest(void *app) {
    return (uint64_t)gb_feed_last(((struct gb_api *)app)->core);
}

const struct gb_http_feed_hooks gb_api_feed_hooks = {
    .read = feed_read,
    .newest = feed_newest,
    .heartbeat = ": still here\n\n",
    .farewell =
        "event: feed.gap\ndata: {\"type\":\"feed.gap\",\"detail\":\"you read too slowly and are dropped; connect "
        "again with Last-Event-ID\"}\n\n",
};

/* --- GET /v1/feed ------------------------------------------------------------------------------------------------- */

/* GET /v1/feed: listening, or a page of the log. */

#define RETRY_MS 2000

/* An id that was never given belongs to another database, so the events since are unknown. */
#define UNKNOWN "the log does not know the id that you give; it goes on from here"

/* --- what is asked for -------------------------------------------------------------------------------------------- */

struct asked {
    bool json;
    bool has_after;
    uint64_t after;
    uint64_t limit;
    struct gb_feed_filter filter;
};

/* A client that accepts both forms listens. */
static bool wants_json(const struct gb_http_request *request) {
    const char *accept = gb_http_header(request, "Accept");

    return accept && strcasestr(accept, "application/json") && !strcasestr(accept, "text/event-stream");
}

/* The header wins: a browser that reconnects repeats its first query. */
static int read_after(const struct gb_http_request *request, struct asked *a, struct gb_error *err) {
    const char *last = gb_http_header(request, "Last-Event-ID");
    int r = gb_query_u64(request, "after", &a->after, err);

    if (r < 0)
        return -1;
    if (r > 0 && a->after > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "after must be the id of an event");
    if (last && (gb_parse_u64(last, strlen(last), &a->after) != GB_PARSE_OK || a->after > INT64_MAX))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "Last-Event-ID must be the id of an event, a whole number");
    a->has_after = r > 0 || last;
    return 0;
}

static int read_asked(const struct gb_http_request *request, struct asked *a, struct gb_error *err) {
    const struct gb_http_text *type = gb_http_query(request, "type");
    const struct gb_http_text *limit = gb_http_query(request, "limit");
    unsigned n = GB_PAGE_LIMIT;

    *a = (struct asked){.json = wants_json(request), .filter.types = UINT64_MAX};
    if (limit && !a->json)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "limit is for pages of the log: ask with Accept: application/json, or leave it out");
    if (limit && gb_limit_parse(limit->s, limit->len, &n, err) < 0)
        return -1;
    a->limit = n;
    if (type && gb_notice_types_parse(type->s, type->len, &a->filter.types, err) < 0)
        return -1;
    a->filter.types |= 1ULL << GB_NOTICE_FEED_GAP;
    if (gb_api_bound(request, GB_SCOPE_VERIFY, &a->filter.session, err) < 0 ||
        gb_api_prefix(request, &a->filter.prefix, err) < 0)
        return -1;
    return read_after(request, a, err);
}

/* --- a page ------------------------------------------------------------------------------------------------------- */

/* One reference is the request's, one the call's. */
struct page {
    atomic_int refs;
    struct gb_http_request *request;
    struct gb_call *call;
    struct gb_feed_piece piece;
    struct gb_notice notices[];
};

static void page_unref(void *arg) {
    struct page *page = arg;

    if (atomic_fetch_sub(&page->refs, 1) != 1)
        return;
    if (page->call)
        gb_call_unref(page->call);
    free(page);
}

static enum gb_step reply_page(const struct gb_http_request *request, const struct gb_feed_piece *p,
                               struct gb_http_response *response, struct gb_error *err) {
    const struct gb_api *api = gb_api_of(request);
    bool unknown = p->after > p->gap_through;
    char cursor[GB_CURSOR_SIZE];
    struct gb_json_writer out = {0};
    size_t i;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "items", '[');
    if (p->gap_through > 0) {
        struct gb_notice gap = notice_of_gap(p->after, p->gap_through, unknown ? UNKNOWN : NULL);

        render_notice(&out, NULL, api, &gap);
    }
    for (i = 0; i < p->count; i++)
        render_notice(&out, NULL, api, &p->notices[i]);
    gb_json_close(&out, ']');
    if (p->through < p->last)
        gb_json_put_string(&out, "next_cursor", gb_cursor_text(p->through, cursor));
    else
        gb_json_put_null(&out, "next_cursor");
    gb_json_put_i64(&out, "last_id", p->last);
    gb_json_close(&out, '}');
    if (p->through >= p->last || gb_list_link(request, "after", cursor, response, err) == 0)
        return gb_reply_json(&out, 200, response, err);
    gb_json_done(&out);
    return GB_STEP_ERROR;
}

static void fetched(void *arg) {
    struct page *page = arg;

    gb_http_wake(page->request);
    gb_http_request_unref(page->request);
    page_unref(page);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct page *page = request->state;

    if (!atomic_load(&page->call->finished) && !request->timed_out)
        return GB_STEP_WAIT;
    if (!atomic_load(&page->call->finished)) {
        gb_error_set(err, GB_ERR_TIMED_OUT, "the log could not be read in the permitted time");
        return GB_STEP_ERROR;
    }
    if (page->call->error.code == GB_OK)
        return reply_page(request, &page->piece, response, err);
    *err = page->call->error;
    return GB_STEP_ERROR;
}

static enum gb_step send_page(struct gb_http_request *request, const struct asked *a, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_feed_piece none = {.after = (int64_t)a->after, .gap_through = gb_feed_given(core)};
    struct page *page;

    none.through = none.last = gb_feed_last(core);
    if (none.after > none.gap_through)
        return reply_page(request, &none, response, err);
    page = calloc(1, sizeof(*page) + a->limit * sizeof(struct gb_notice));
    if (!page) {
        gb_error_memory(err, "reply");
        return GB_STEP_ERROR;
    }
    atomic_init(&page->refs, 1);
    page->piece = (struct gb_feed_piece){.after = (int64_t)a->after,
                                         .newest = !a->has_after,
                                         .filter = a->filter,
                                         .notices = page->notices,
                                         .max = a->limit};
    request->state = page;
    request->state_free = page_unref;
    request->resume = resume;
    if (gb_feed_recall(core, &page->piece))
        return reply_page(request, &page->piece, response, err);
    page->call = gb_call_new(sizeof(*page->call), fetched, page);
    if (!page->call) {
        gb_error_memory(err, "reply");
        return GB_STEP_ERROR;
    }
    atomic_fetch_add(&page->refs, 1);
    page->request = gb_http_request_ref(request);
    gb_feed_fetch(core, &page->piece, page->call);
    return resume(request, response, err);
}

/* --- listening ---------------------------------------------------------------------------------------------------- */

static int headers(struct gb_http_response *response, struct gb_error *err) {
    if (gb_http_response_header(response, err, "Content-Type", "text/event-stream") < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0)
        return -1;
    return gb_http_response_header(response, err, "X-Accel-Buffering", "no"); /* nginx would hold events back */
}

/* Sends the pause before a reconnection, and an id for clients that lose the connection before the first event. */
static void begin(const struct gb_api *api, struct asked *a, struct gb_json_writer *out) {
    int64_t last = gb_feed_given(api->core);
    int64_t after = a->has_after ? (int64_t)a->after : last;
    struct gb_notice gap;
    char first[64];

    a->after = (uint64_t)(after <= last ? after : last);
    snprintf(first, sizeof(first), "retry: %d\nid: %" PRIu64 "\n\n", RETRY_MS, a->after);
    gb_json_put_text(out, first);
    if (after <= last)
        return;
    gap = notice_of_gap(after, last, UNKNOWN);
    render_event_text(out, api, &gap);
}

enum gb_step gb_api_feed(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_json_writer out = {0};
    unsigned epoch = gb_http_feed_epoch(request);
    struct gb_http_listening what;
    struct asked a;

    if (read_asked(request, &a, err) < 0)
        return GB_STEP_ERROR;
    if (a.json)
        return send_page(request, &a, response, err);
    if (request->method == GB_HTTP_HEAD)
        return headers(response, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
    if (atomic_load(&api->draining)) {
        gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
        return GB_STEP_ERROR;
    }
    begin(api, &a, &out);
    if (out.failed) {
        gb_json_done(&out);
        gb_error_memory(err, "reply");
        return GB_STEP_ERROR;
    }
    gb_http_response_take(response, out.s, out.used);
    /* A refusal does not have these headers. */
    what = (struct gb_http_listening){.after = a.after,
                                      .topics = a.filter.types,
                                      .owner = a.filter.session.s,
                                      .prefix = a.filter.prefix.s,
                                      .epoch = epoch};
    if (gb_http_response_listen(request, response, &what, err) < 0 || headers(response, err) < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}
