/* /v1/snapshot: device memory in the form of torch.cuda.memory._snapshot(), which PyTorch's memory_viz page draws. */
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/observe/deferred_report.h"
#include "api/observe/memory_map.h"
#include "api/request/media.h"
#include "api/request/query.h"
#include "api/route.h"
#include "base/json_writer.h"
#include "format/pickle.h"

#define CHUNK 256

enum { LIMIT, JSON };

/* Writes either form. */
struct writer {
    bool as_json;
    struct gb_json_writer json;
    struct gb_pickle pickle;
    const struct gb_memory_map *map;
};

static void open_(struct writer *w, const char *key, char bracket) {
    if (w->as_json)
        gb_json_open(&w->json, key, bracket);
    else
        gb_pickle_open(&w->pickle, key, bracket);
}

static void close_(struct writer *w, char bracket) {
    if (w->as_json)
        gb_json_close(&w->json, bracket);
    else
        gb_pickle_close(&w->pickle);
}

static void number(struct writer *w, const char *key, uint64_t value) {
    if (w->as_json)
        gb_json_put_u64(&w->json, key, value);
    else
        gb_pickle_u64(&w->pickle, key, value);
}

static void text(struct writer *w, const char *key, const char *value) {
    if (w->as_json)
        gb_json_put_string(&w->json, key, value);
    else
        gb_pickle_string(&w->pickle, key, value);
}

/* Static text. */
static void word(struct writer *w, const char *key, const char *value) {
    if (w->as_json)
        gb_json_put_string(&w->json, key, value);
    else
        gb_pickle_word(&w->pickle, key, value);
}

static void no(struct writer *w, const char *key) {
    if (w->as_json)
        gb_json_put_bool(&w->json, key, false);
    else
        gb_pickle_bool(&w->pickle, key, false);
}

/* Writes one frame in place of a stack: it names the owner. */
static void frames(struct writer *w, const char *where, const char *name) {
    open_(w, "frames", '[');
    if (where) {
        open_(w, NULL, '{');
        text(w, "filename", where);
        number(w, "line", 0);
        text(w, "name", name);
        close_(w, '}');
    }
    close_(w, ']');
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

static void write_block(struct writer *w, uint64_t address, uint64_t bytes, const struct gb_map_span *s) {
    open_(w, NULL, '{');
    number(w, "address", address);
    number(w, "size", bytes);
    number(w, "requested_size", s ? s->bytes : 0);
    word(w, "state", !s ? "inactive" : s->leaving ? "active_pending_free" : "active_allocated");
    frames(w, s ? w->map->names + s->session : NULL, s ? w->map->names + s->buffer : NULL);
    close_(w, '}');
}

/* The page computes the place of a block from the sizes of those before it, so blocks fill the segment. */
static void write_blocks(struct writer *w, const struct gb_segment *g) {
    uint64_t at = g->address;
    size_t i;

    open_(w, "blocks", '[');
    for (i = g->first; i < g->first + g->count; i++) {
        const struct gb_map_span *s = &w->map->spans[i];

        if (s->number == 0)
            continue;
        if (s->address > at)
            write_block(w, at, s->address - at, NULL);
        write_block(w, s->address, s->bytes, s);
        at = s->address + s->bytes;
    }
    if (at < g->address + g->bytes)
        write_block(w, at, g->address + g->bytes - at, NULL);
    close_(w, ']');
}

static void write_segment(struct writer *w, const struct gb_segment *g) {
    const struct gb_map_span *s = &w->map->spans[g->first];

    open_(w, NULL, '{');
    number(w, "device", (uint64_t)s->device);
    number(w, "address", g->address);
    number(w, "total_size", g->bytes);
    number(w, "allocated_size", g->taken);
    number(w, "active_size", g->taken + g->leaving);
    number(w, "requested_size", g->taken + g->leaving);
    number(w, "stream", 0);
    word(w, "segment_type", "large");
    no(w, "is_expandable");
    frames(w, s->owner >= 0 ? "pool" : "kind", gb_memory_map_name(w->map, g));
    write_blocks(w, g);
    close_(w, '}');
}

/* --- traces ------------------------------------------------------------------------------------------------------- */

static void write_step(struct writer *w, const struct gb_alloc_log_event *e, const char *action) {
    open_(w, NULL, '{');
    word(w, "action", action);
    if (e->action == GB_ALLOC_LOG_FAILURE)
        number(w, "device_free", e->free_bytes);
    else
        number(w, "addr", e->address);
    number(w, "size", e->bytes);
    number(w, "stream", gb_alloc_log_stream(e->session_id, e->stream_id));
    number(w, "time_us", (uint64_t)e->at_us);
    frames(w, e->session, e->buffer);
    close_(w, '}');
}

/* The page looks each piece up in a segment. A piece that is gone has its beginning and end in the trace. */
static void write_event(struct writer *w, const struct gb_alloc_log_event *e) {
    bool single = gb_memory_map_single(w->map, e->device, e->kind, e->pool_id);

    if (e->action == GB_ALLOC_LOG_ALLOC && single)
        write_step(w, e, "segment_alloc");
    if (e->action == GB_ALLOC_LOG_FREE)
        write_step(w, e, "free_requested");
    write_step(w, e,
               e->action == GB_ALLOC_LOG_ALLOC  ? "alloc"
               : e->action == GB_ALLOC_LOG_FREE ? "free_completed"
                                                : "oom");
    if (e->action == GB_ALLOC_LOG_FREE && single)
        write_step(w, e, "segment_free");
}

static int write_trace(struct writer *w, struct gb_core *core, int device) {
    struct gb_alloc_log_event *chunk = malloc(CHUNK * sizeof(*chunk));
    uint64_t from = w->map->events_from;
    unsigned n;
    unsigned i;

    if (!chunk)
        return -1;
    open_(w, NULL, '[');
    while ((n = gb_alloc_log_events(core, &from, w->map->events_end, chunk, CHUNK)) > 0) {
        for (i = 0; i < n; i++) {
            const struct gb_alloc_log_event *e = &chunk[i];

            if (e->device != device)
                continue;
            write_event(w, e);
        }
    }
    close_(w, ']');
    free(chunk);
    return 0;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static int write_all(struct writer *w, struct gb_api *api) {
    size_t i;
    int device;
    int r = 0;

    open_(w, NULL, '{');
    open_(w, "segments", '[');
    for (i = 0; i < w->map->segment_count; i++)
        write_segment(w, &w->map->segments[i]);
    close_(w, ']');
    open_(w, "device_traces", '[');
    for (device = 0; device < api->devices && r == 0; device++)
        r = write_trace(w, api->core, device);
    close_(w, ']');
    open_(w, "allocator_settings", '{');
    word(w, "backend", "gpubufd");
    text(w, "version", api->version);
    close_(w, '}');
    close_(w, '}');
    return r;
}

static int make(struct gb_deferred_report *report, struct gb_error *err) {
    struct gb_memory_map map;
    struct writer w = {.as_json = report->params[JSON] != 0, .map = &map};
    int r;

    if (gb_memory_map_read(report->api->core, report->params[LIMIT], &map, err) < 0)
        return -1;
    if (!w.as_json)
        gb_pickle_begin(&w.pickle);
    r = write_all(&w, report->api);
    gb_memory_map_done(&map);
    if (w.as_json)
        gb_json_end(&w.json);
    else
        gb_pickle_end(&w.pickle);
    if (r < 0 || w.json.failed || w.pickle.failed) {
        gb_json_done(&w.json);
        gb_pickle_done(&w.pickle);
        return -1;
    }
    report->body = w.as_json ? w.json.s : w.pickle.s;
    report->len = w.as_json ? w.json.used : w.pickle.used;
    return 0;
}

enum gb_step gb_api_memory_snapshot(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    bool json = gb_media_prefers(gb_http_header(request, "Accept"), "application/json", GB_MEDIA_RAW);
    struct gb_deferred_report report = {.params = {[LIMIT] = GB_DEFERRED_REPORT_ENTRIES_MAX, [JSON] = json},
                                        .content_type = json ? "application/json" : GB_MEDIA_RAW};

    (void)response;
    if (gb_query_u64(request, "limit", &report.params[LIMIT], err) < 0)
        return GB_STEP_ERROR;
    if (report.params[LIMIT] > GB_DEFERRED_REPORT_ENTRIES_MAX)
        report.params[LIMIT] = GB_DEFERRED_REPORT_ENTRIES_MAX;
    return gb_deferred_report_start(request, make, &report, err);
}
