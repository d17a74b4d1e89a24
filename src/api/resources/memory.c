/* Device memory: its layout, the allocations and frees, and a snapshot as PyTorch's pages draw it. All three are made
 * on a thread of the core from the log of allocations and what is there now, while the request waits. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/context.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/json_writer.h"
#include "core/core.h"
#include "format/pickle.h"

/* The layout of device memory: allocations, by segments in the order of addresses. */

/* An allocation that exists now, or existed within the log of allocations. */
struct gb_map_span {
    uint64_t address;
    uint64_t bytes;
    uint64_t number; /* of the event that took it; 0: not taken any more */
    uint64_t event;  /* the event of the log that reports it; 0: the piece exists */
    bool took;       /* that event */
    int64_t owner;   /* the pool's id, or less than 0: a kind that has no pools */
    uint64_t stream;
    uint32_t session; /* where its name begins in names */
    uint32_t buffer;
    uint32_t pool;
    int device;
    bool leaving;
};

/* The owner of memory: a pool that lives, or lived within the log. */
struct gb_map_owner {
    int64_t owner;
    int device;
    uint64_t reserved;
    uint64_t spread; /* what its segments come to */
    bool gives_back; /* that exceeds what it has: some was given back, so each piece is a segment of its own */
    uint32_t name;   /* where it begins in names */
};

/* Addresses that one pool has or had, without a hole larger than GB_MAP_HOLE. A piece of a kind without pools, or of a
 * pool that gave memory back, is a segment of its own. CUDA does not say which addresses a pool has reserved, so unused
 * memory at the ends is missing here. */
struct gb_segment {
    size_t first; /* of the spans */
    size_t count;
    uint64_t address;
    uint64_t bytes;
    uint64_t taken; /* of these */
    uint64_t leaving;
};
#define GB_MAP_HOLE (32u << 20)

struct gb_memory_map {
    struct gb_map_span *spans; /* by device and address; of those that are taken no two overlap */
    size_t span_count;
    size_t span_room;
    struct gb_segment *segments;
    size_t segment_count;
    char *names; /* the first is "" */
    size_t names_used;
    size_t names_room;
    struct gb_map_owner *owners;
    size_t owner_count;
    size_t owner_room;
    uint64_t events_from; /* of the log that belongs to it */
    uint64_t events_end;
};

/* --- the layout of memory ----------------------------------------------------------------------------------------- */

#define CHUNK 256

static void memory_map_done(struct gb_memory_map *map) {
    free(map->spans);
    free(map->segments);
    free(map->owners);
    free(map->names);
    *map = (struct gb_memory_map){.span_count = 0};
}

static int grow(void **at, size_t *room, size_t needed, size_t size, struct gb_error *err) {
    size_t more = *room ? *room * 2 : 1024;
    void *bigger;

    if (needed <= *room)
        return 0;
    while (more < needed)
        more *= 2;
    bigger = realloc(*at, more * size);
    if (!bigger)
        return gb_error_memory(err, "reply");
    *at = bigger;
    *room = more;
    return 0;
}

static int add_name(struct gb_memory_map *map, const char *name, uint32_t *ret, struct gb_error *err) {
    size_t n = strlen(name) + 1;

    if (n == 1 && map->names_used > 0) {
        *ret = 0;
        return 0;
    }
    if (map->names_used + n > UINT32_MAX ||
        grow((void **)&map->names, &map->names_room, map->names_used + n, 1, err) < 0)
        return gb_error_memory(err, "reply");
    memcpy(map->names + map->names_used, name, n);
    *ret = (uint32_t)map->names_used;
    map->names_used += n;
    return 0;
}

static int add_span(struct gb_memory_map *map, const struct gb_map_span *span, struct gb_error *err) {
    if (grow((void **)&map->spans, &map->span_room, map->span_count + 1, sizeof(*map->spans), err) < 0)
        return -1;
    map->spans[map->span_count++] = *span;
    return 0;
}

/* --- reading the core --------------------------------------------------------------------------------------------- */

static int64_t owner(enum gb_kind kind, int64_t pool_id) {
    return kind == GB_KIND_DEVICE ? pool_id : -1 - (int64_t)kind;
}

static int add_block(void *arg, const struct gb_alloc_log_block *b, struct gb_error *err) {
    struct gb_memory_map *map = arg;
    struct gb_map_span span = {.address = b->address,
                               .bytes = b->bytes,
                               .number = b->number,
                               .owner = owner(b->kind, b->pool_id),
                               .stream = gb_alloc_log_stream(b->session_id, b->stream_id),
                               .device = b->device,
                               .leaving = b->leaving};

    if (b->number >= map->events_end) /* it was allocated after the log had been read */
        return 0;
    if (add_name(map, b->session.s, &span.session, err) < 0 || add_name(map, b->buffer.s, &span.buffer, err) < 0 ||
        add_name(map, b->kind == GB_KIND_DEVICE ? b->pool.s : gb_kind_name(b->kind), &span.pool, err) < 0)
        return -1;
    return add_span(map, &span, err);
}

static struct gb_map_owner *find_owner(const struct gb_memory_map *map, int device, int64_t owner) {
    size_t i;

    for (i = 0; i < map->owner_count; i++) {
        if (map->owners[i].owner == owner && map->owners[i].device == device)
            return &map->owners[i];
    }
    return NULL;
}

static int add_pool(void *arg, const struct gb_alloc_log_pool *pool, struct gb_error *err) {
    struct gb_memory_map *map = arg;
    struct gb_map_owner o = {.owner = pool->id, .device = pool->device, .reserved = pool->reserved_bytes};

    if (add_name(map, pool->name.s, &o.name, err) < 0 ||
        grow((void **)&map->owners, &map->owner_room, map->owner_count + 1, sizeof(*map->owners), err) < 0)
        return -1;
    map->owners[map->owner_count++] = o;
    return 0;
}

/* Stepping back through the log looks up the segment of each address. */
static int add_events(struct gb_core *core, struct gb_memory_map *map, struct gb_error *err) {
    struct gb_alloc_log_event *chunk = malloc(CHUNK * sizeof(*chunk));
    uint64_t from = map->events_from;
    int r = chunk ? 0 : gb_error_memory(err, "reply");
    unsigned n;
    unsigned i;

    while (r == 0 && (n = gb_alloc_log_events(core, &from, map->events_end, chunk, CHUNK)) > 0) {
        for (i = 0; i < n && r == 0; i++) {
            struct gb_map_span span = {.address = chunk[i].address,
                                       .bytes = chunk[i].bytes,
                                       .event = chunk[i].number,
                                       .took = chunk[i].action == GB_ALLOC_LOG_ALLOC,
                                       .owner = owner(chunk[i].kind, chunk[i].pool_id),
                                       .device = chunk[i].device};

            if (span.address > 0)
                r = add_span(map, &span, err);
        }
    }
    free(chunk);
    return r;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right) {
    const struct gb_map_span *a = left;
    const struct gb_map_span *b = right;

    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    if (a->number != b->number)
        return a->number > b->number ? -1 : 1;
    return a->event == b->event ? 0 : a->event > b->event ? -1 : 1;
}

static void drop(struct gb_map_span *span) {
    span->number = 0;
}

/* If a block was freed and its memory taken again between the two reads, the later block has it. */
static void drop_overlaps(struct gb_memory_map *map) {
    struct gb_map_span *last = NULL;
    size_t i;

    for (i = 0; i < map->span_count; i++) {
        struct gb_map_span *s = &map->spans[i];

        if (s->number == 0)
            continue;
        if (!last || last->device != s->device || last->address + last->bytes <= s->address) {
            last = s;
        } else if (last->number > s->number) {
            drop(s);
        } else {
            drop(last);
            last = s;
        }
    }
}

static bool single(const struct gb_memory_map *map, int device, int64_t owner) {
    const struct gb_map_owner *o = owner < 0 ? NULL : find_owner(map, device, owner);

    return !o || o->gives_back; /* a pool that is gone has no segments */
}

/* Whether each piece of that owner is a segment of its own. */
static bool memory_map_single(const struct gb_memory_map *map, int device, enum gb_kind kind, int64_t pool_id) {
    return single(map, device, owner(kind, pool_id));
}

/* Whether a piece that is a segment exists, or was the last at its address by the log; then it was freed after
 * the log had been read. Pieces of one address follow each other, the existing one first. */
static bool is_there(const struct gb_memory_map *map, size_t i) {
    const struct gb_map_span *s = &map->spans[i];

    if (s->number > 0)
        return true;
    return s->took && (i == 0 || s[-1].device != s->device || s[-1].address != s->address);
}

static bool belongs(const struct gb_segment *g, const struct gb_map_span *first, const struct gb_map_span *s) {
    uint64_t end = g->address + g->bytes;

    if (first->device != s->device)
        return false;
    if (s->address < end)
        return true;
    return s->owner == first->owner && s->owner >= 0 && s->address - end <= GB_MAP_HOLE;
}

static int make_segments(struct gb_memory_map *map, struct gb_error *err) {
    struct gb_segment *g = NULL;
    bool g_alone = false;
    size_t room = 0;
    size_t i;

    free(map->segments);
    map->segments = NULL;
    map->segment_count = 0;

    for (i = 0; i < map->span_count; i++) {
        const struct gb_map_span *s = &map->spans[i];
        bool alone = single(map, s->device, s->owner);

        if (alone && !is_there(map, i))
            continue;
        if (!g || alone || g_alone || !belongs(g, &map->spans[g->first], s)) {
            if (grow((void **)&map->segments, &room, map->segment_count + 1, sizeof(*g), err) < 0)
                return -1;
            g = &map->segments[map->segment_count++];
            *g = (struct gb_segment){.first = i, .address = s->address};
            g_alone = alone;
        }
        g->count = i + 1 - g->first;
        if (s->address + s->bytes > g->address + g->bytes)
            g->bytes = s->address + s->bytes - g->address;
        if (s->number > 0)
            *(s->leaving ? &g->leaving : &g->taken) += s->bytes;
    }
    return 0;
}

/* Returns true when the segments of a pool exceed what it has reserved, and that it gave some back was not known
 * yet. */
static bool measure(struct gb_memory_map *map) {
    bool found = false;
    size_t i;

    for (i = 0; i < map->segment_count; i++) {
        const struct gb_map_span *s = &map->spans[map->segments[i].first];
        struct gb_map_owner *o = s->owner < 0 ? NULL : find_owner(map, s->device, s->owner);

        if (o)
            o->spread += map->segments[i].bytes;
    }
    for (i = 0; i < map->owner_count; i++) {
        map->owners[i].gives_back = map->owners[i].spread > map->owners[i].reserved;
        found |= map->owners[i].gives_back;
    }
    return found;
}

/* Returns the name of the pool or kind. */
static const char *memory_map_name(const struct gb_memory_map *map, const struct gb_segment *g) {
    const struct gb_map_span *s = &map->spans[g->first];
    const struct gb_map_owner *o = s->owner < 0 ? NULL : find_owner(map, s->device, s->owner);
    size_t i;

    for (i = g->first; i < g->first + g->count; i++) {
        if (map->spans[i].number > 0)
            return map->names + map->spans[i].pool;
    }
    return s->owner < 0 ? gb_kind_name((enum gb_kind)(-1 - s->owner)) : o ? map->names + o->name : "given back";
}

/* Reads the map with the last `events` of the log. Takes a while: not on an HTTP loop. Returns 0, or -1 when memory is
 * exhausted. */
static int memory_map_read(struct gb_core *core, uint64_t events, struct gb_memory_map *ret, struct gb_error *err) {
    struct gb_memory_map map = {.span_count = 0};
    uint32_t nothing;

    gb_alloc_log_range(core, &map.events_from, &map.events_end);
    if (map.events_end - map.events_from > events)
        map.events_from = map.events_end - events;
    if (add_name(&map, "", &nothing, err) < 0 || gb_alloc_log_blocks(core, add_block, &map, err) < 0 ||
        gb_alloc_log_pools(core, add_pool, &map, err) < 0 || add_events(core, &map, err) < 0) {
        memory_map_done(&map);
        return -1;
    }
    if (map.span_count > 0)
        qsort(map.spans, map.span_count, sizeof(*map.spans), compare);
    drop_overlaps(&map);
    if (make_segments(&map, err) < 0 || (measure(&map) && make_segments(&map, err) < 0)) {
        memory_map_done(&map);
        return -1;
    }
    *ret = map;
    return 0;
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

/* /v1/snapshot: device memory in the form of torch.cuda.memory._snapshot(), which PyTorch's memory_viz page draws. */

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
    frames(w, s->owner >= 0 ? "pool" : "kind", memory_map_name(w->map, g));
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
    bool single = memory_map_single(w->map, e->device, e->kind, e->pool_id);

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

/* --- the whole snapshot ------------------------------------------------------------------------------------------- */

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

    if (memory_map_read(report->api->core, report->params[LIMIT], &map, err) < 0)
        return -1;
    if (!w.as_json)
        gb_pickle_begin(&w.pickle);
    r = write_all(&w, report->api);
    memory_map_done(&map);
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

/* --- allocations -------------------------------------------------------------------------------------------------- */

/* /v1/allocations: allocations and frees of device memory, in the columns of RMM's logging_resource_adaptor or as
 * JSON. */

enum { LOG_SINCE, LOG_LIMIT };

static const char *action_name(enum gb_alloc_log_action action) {
    return action == GB_ALLOC_LOG_ALLOC ? "allocate" : action == GB_ALLOC_LOG_FREE ? "free" : "allocate failure";
}

/* If more entries are asked for than the limit, the newest are kept. */
static void pick(const struct gb_deferred_report *report, uint64_t *ret_from, uint64_t *ret_end) {
    gb_alloc_log_range(report->api->core, ret_from, ret_end);
    if (report->params[LOG_SINCE] >= *ret_from)
        *ret_from = report->params[LOG_SINCE] < *ret_end ? report->params[LOG_SINCE] + 1 : *ret_end;
    if (*ret_end - *ret_from > report->params[LOG_LIMIT])
        *ret_from = *ret_end - report->params[LOG_LIMIT];
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

/* The thread column has the session, because threads of the daemon mean nothing outside. */
static void write_line(FILE *out, const struct gb_alloc_log_event *e) {
    time_t seconds = (time_t)(e->at_us / 1000000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    fprintf(out, "%" PRId64 ",%02d:%02d:%02d.%06d,%s,", e->session_id, tm.tm_hour, tm.tm_min, tm.tm_sec,
            (int)(e->at_us % 1000000), action_name(e->action));
    if (e->address == 0)
        fputs("(nil)", out);
    else
        fprintf(out, "0x%" PRIx64, e->address);
    fprintf(out, ",%" PRIu64 ",0x%" PRIx64 "\n", e->bytes, gb_alloc_log_stream(e->session_id, e->stream_id));
}

static int make_csv(struct gb_deferred_report *report, struct gb_error *err) {
    struct gb_alloc_log_event *chunk = malloc(CHUNK * sizeof(*chunk));
    FILE *out = open_memstream(&report->body, &report->len);
    uint64_t from;
    uint64_t end;
    unsigned n;
    unsigned i;
    int r = -1;

    (void)err;
    if (chunk && out) {
        pick(report, &from, &end);
        fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
        while ((n = gb_alloc_log_events(report->api->core, &from, end, chunk, CHUNK)) > 0) {
            for (i = 0; i < n; i++)
                write_line(out, &chunk[i]);
        }
        r = ferror(out) ? -1 : 0;
    }
    if (out && fclose(out) != 0)
        r = -1;
    free(chunk);
    return r;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void render_event(struct gb_json_writer *out, const struct gb_api *api, const struct gb_alloc_log_event *e) {
    char address[24];

    gb_json_open(out, NULL, '{');
    gb_json_put_u64(out, "id", e->number);
    gb_json_put_time(out, "at", e->at_us);
    gb_json_put_string(out, "action", action_name(e->action));
    snprintf(address, sizeof(address), "0x%" PRIx64, e->address);
    gb_json_put_string(out, "pointer", e->address > 0 ? address : NULL);
    gb_json_put_u64(out, "bytes", e->bytes);
    gb_json_put_string(out, "kind", gb_kind_name(e->kind));
    gb_render_device_id(out, "device", api, e->device);
    gb_json_put_string(out, "session", e->session);
    gb_json_put_string(out, "buffer", e->buffer);
    gb_json_put_i64(out, "stream", e->stream_id);
    if (e->action == GB_ALLOC_LOG_FAILURE)
        gb_json_put_u64(out, "free_bytes", e->free_bytes);
    gb_json_close(out, '}');
}

static int make_json(struct gb_deferred_report *report, struct gb_error *err) {
    struct gb_alloc_log_event *chunk = malloc(CHUNK * sizeof(*chunk));
    struct gb_json_writer out = {0};
    uint64_t from;
    uint64_t end;
    unsigned n;
    unsigned i;

    (void)err;
    if (!chunk)
        return -1;
    pick(report, &from, &end);
    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "items", '[');
    while ((n = gb_alloc_log_events(report->api->core, &from, end, chunk, CHUNK)) > 0) {
        for (i = 0; i < n; i++)
            render_event(&out, report->api, &chunk[i]);
    }
    free(chunk);
    gb_json_close(&out, ']');
    gb_json_put_u64(&out, "last_id", end - 1);
    if (gb_alloc_log_room(report->api->core) == 0)
        gb_json_put_string(&out, "note", "no log is kept: the daemon runs with --allocation-log 0");
    gb_json_close(&out, '}');
    gb_json_end(&out);
    if (out.failed) {
        gb_json_done(&out);
        return -1;
    }
    report->body = out.s;
    report->len = out.used;
    return 0;
}

/* --- the handler -------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_allocation_list(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    bool json = gb_media_prefers(gb_http_header(request, "Accept"), "application/json", "text/csv");
    struct gb_deferred_report report = {.params[LOG_LIMIT] = GB_DEFERRED_REPORT_ENTRIES_MAX,
                                        .content_type =
                                            json ? "application/json" : "text/csv; charset=utf-8; header=present"};

    (void)response;
    if (gb_query_u64(request, "since", &report.params[LOG_SINCE], err) < 0 ||
        gb_query_u64(request, "limit", &report.params[LOG_LIMIT], err) < 0)
        return GB_STEP_ERROR;
    if (report.params[LOG_LIMIT] == 0) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "limit must be 1 or more; without it the newest %d are sent",
                     GB_DEFERRED_REPORT_ENTRIES_MAX);
        return GB_STEP_ERROR;
    }
    if (report.params[LOG_LIMIT] > GB_DEFERRED_REPORT_ENTRIES_MAX)
        report.params[LOG_LIMIT] = GB_DEFERRED_REPORT_ENTRIES_MAX;
    return gb_deferred_report_start(request, json ? make_json : make_csv, &report, err);
}
