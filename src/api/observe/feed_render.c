/* Events as text, and the feed's hooks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/observe/feed.h"
#include "api/reply/render.h"
#include "api/request/query.h"
#include "base/clock.h"

static void text(struct gb_json_writer *out, const char *key, const char *value) {
    if (value[0])
        gb_json_put_string(out, key, value);
}

void gb_render_notice(struct gb_json_writer *out, const char *key, const struct gb_api *api,
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

struct gb_notice gb_notice_of_gap(int64_t after, int64_t through, const char *why) {
    struct gb_notice n = {.id = through, .at_us = gb_wall_us(), .type = GB_NOTICE_FEED_GAP, .device = -1};

    if (why)
        snprintf(n.detail, sizeof(n.detail), "%s", why);
    else
        snprintf(n.detail, sizeof(n.detail),
                 "of the events after %" PRId64 ", up to %" PRId64 ", the log has not all any more", after, through);
    return n;
}

void gb_render_event_text(struct gb_json_writer *out, const struct gb_api *api, const struct gb_notice *n) {
    char head[80];

    snprintf(head, sizeof(head), "id: %" PRId64 "\nevent: %s\ndata: ", n->id, gb_notice_word(n->type));
    gb_json_put_text(out, head);
    gb_render_notice(out, NULL, api, n);
    gb_json_put_text(out, "\n\n");
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static struct gb_http_frame *frame_of(const struct gb_api *api, const struct gb_notice *n) {
    struct gb_http_frame *frame = NULL;
    struct gb_json_writer out = {0};

    gb_render_event_text(&out, api, n);
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
        gap = gb_notice_of_gap((int64_t)after, piece.last, "the log cannot be read");
        *ret_through = (uint64_t)piece.last;
        return add_frame(api, &gap, frames, 0);
    }
    if (piece.gap_through > 0) {
        gap = gb_notice_of_gap((int64_t)after, piece.gap_through, NULL);
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
