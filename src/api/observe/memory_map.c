#include "api/observe/memory_map.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 256

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
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
        return no_memory(err);
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
        return no_memory(err);
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

/* --- reading ------------------------------------------------------------------------------------------------------ */

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
    int r = chunk ? 0 : no_memory(err);
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
static void settle(struct gb_memory_map *map) {
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

bool gb_memory_map_single(const struct gb_memory_map *map, int device, enum gb_kind kind, int64_t pool_id) {
    return single(map, device, owner(kind, pool_id));
}

/* Tells whether a piece that is a segment exists, or was the last at its address by the log; then it was freed after
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

const char *gb_memory_map_name(const struct gb_memory_map *map, const struct gb_segment *g) {
    const struct gb_map_span *s = &map->spans[g->first];
    const struct gb_map_owner *o = s->owner < 0 ? NULL : find_owner(map, s->device, s->owner);
    size_t i;

    for (i = g->first; i < g->first + g->count; i++) {
        if (map->spans[i].number > 0)
            return map->names + map->spans[i].pool;
    }
    return s->owner < 0 ? gb_kind_name((enum gb_kind)(-1 - s->owner)) : o ? map->names + o->name : "given back";
}

int gb_memory_map_read(struct gb_core *core, uint64_t events, struct gb_memory_map *ret, struct gb_error *err) {
    struct gb_memory_map map = {.span_count = 0};
    uint32_t nothing;

    gb_alloc_log_range(core, &map.events_from, &map.events_end);
    if (map.events_end - map.events_from > events)
        map.events_from = map.events_end - events;
    if (add_name(&map, "", &nothing, err) < 0 || gb_alloc_log_blocks(core, add_block, &map, err) < 0 ||
        gb_alloc_log_pools(core, add_pool, &map, err) < 0 || add_events(core, &map, err) < 0) {
        gb_memory_map_done(&map);
        return -1;
    }
    if (map.span_count > 0)
        qsort(map.spans, map.span_count, sizeof(*map.spans), compare);
    settle(&map);
    if (make_segments(&map, err) < 0 || (measure(&map) && make_segments(&map, err) < 0)) {
        gb_memory_map_done(&map);
        return -1;
    }
    *ret = map;
    return 0;
}

void gb_memory_map_done(struct gb_memory_map *map) {
    free(map->spans);
    free(map->segments);
    free(map->owners);
    free(map->names);
    *map = (struct gb_memory_map){.span_count = 0};
}
