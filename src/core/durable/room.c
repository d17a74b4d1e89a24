/* Room in memory: which buffers leave memory for others, and when. An allocation that finds no memory asks for room
 * (core->make_room), and the housekeeper keeps memory below the high-water mark. */
#include "core/durable/room.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/durable/evict.h"
#include "core/durable/stored.h"
#include "core/memory/content.h"
#include "core/public/durable.h"

/* Which buffers give up their memory for others. */

/* A buffer whose bytes may leave memory. */
struct gb_victim {
    struct gb_session *session; /* a reference */
    int64_t id;                 /* of the buffer */
    uint64_t bytes;             /* that the ask gets if it leaves */
    uint64_t used_ns;
    int priority; /* of the session */
    bool dirty;   /* the disk has not its bytes yet */
};

struct gb_victims {
    struct gb_victim *items;
    size_t count;
    size_t room;
    uint64_t bytes; /* of all of them */
    uint64_t later; /* bytes of buffers that are in use, or were written just now */
};

/* --- victims ------------------------------------------------------------------------------------------------------ */

enum answer { STAYS, LATER, GOES };

static bool is_dirty(const struct gb_buffer *b) {
    return !gb_buffer_on_disk(b);
}

static bool in_use(const struct gb_buffer *b) {
    int i;

    if (b->in_place || b->fifo.taken)
        return true;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (c && atomic_load(&c->refs) > 1)
            return true;
    }
    return false;
}

/* There is a place for the bytes. disk: it takes files. */
static bool has_place(const struct gb_core *core, const struct gb_buffer *b, bool disk) {
    return disk || !is_dirty(b) ||
           (b->rec.durability == GB_DURABILITY_NONE && b->rec.spill == GB_SPILL_HOST &&
            gb_host_tier_has_room(core, b->rec.bytes));
}

/* Buffers that are loaded together do not displace each other, and the watermark evicts none of them before their loads
 * have ended. */
static bool is_spared(const struct gb_buffer *b, const struct gb_room_ask *ask) {
    return b->sweep > 0 && (ask->partly || b->sweep == ask->sweep);
}

/* Mapped bytes stay, since how long a mapping lasts is its client's affair. */
static enum answer ask_buffer(const struct gb_core *core, const struct gb_buffer *b, const struct gb_room_ask *ask,
                              bool disk, uint64_t now_ns) {
    struct gb_error unused = GB_ERROR_INIT;

    if (is_spared(b, ask) || !b->live || b->deleting || b->rec.state != GB_BUFFER_READY || b->rec.resident ||
        b->rec.adopted || gb_guard_check_unmapped_locked(b, "", &unused) < 0 ||
        gb_guard_check_writers_locked(b, &unused) < 0)
        return STAYS;
    if (b->rec.durability == GB_DURABILITY_NONE &&
        (b->rec.spill == GB_SPILL_NEVER || b->rec.bytes <= GB_STORED_INLINE_BYTES))
        return STAYS;
    if (!has_place(core, b, disk))
        return STAYS;
    return b->leaving || in_use(b) || now_ns - b->since_ns < core->config.min_resident_ms * GB_NS_PER_MS ? LATER : GOES;
}

/* The memory that the ask is about. */
static uint64_t gives(const struct gb_buffer *b, const struct gb_room_ask *ask) {
    uint64_t bytes = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (!c || c->owner || (ask->pool && (c->kind != GB_KIND_DEVICE || c->pool != ask->pool)))
            continue;
        if (ask->session || (c->device == ask->device && gb_kind_of_device(c->kind)))
            bytes += c->bytes;
    }
    return bytes;
}

static bool add(struct gb_victims *victims, const struct gb_victim *victim) {
    if (victims->count == victims->room) {
        size_t room = victims->room > 0 ? 2 * victims->room : 64;
        struct gb_victim *items = realloc(victims->items, room * sizeof(*items));

        if (!items)
            return false;
        victims->items = items;
        victims->room = room;
    }
    victims->items[victims->count++] = *victim;
    victims->bytes += victim->bytes;
    gb_session_ref(victim->session);
    return true;
}

/* Adds the session's buffers that help the ask. disk: the disk takes writes. The session's lock is held. */
static void victims_add_locked(struct gb_victims *victims, struct gb_session *s, const struct gb_room_ask *ask,
                               bool disk) {
    uint64_t now_ns = gb_clock_ns();
    size_t i;

    for (i = 0; i < s->buffers_by_id.count && s->movable > 0; i++) {
        const struct gb_buffer *b = s->buffers_by_id.items[i].value;
        struct gb_victim victim = {
            .session = s, .id = b->id, .used_ns = b->used_ns, .priority = s->rec.priority, .dirty = is_dirty(b)};
        enum answer answer = ask_buffer(s->core, b, ask, disk, now_ns);

        victim.bytes = answer == STAYS ? 0 : gives(b, ask);
        if (victim.bytes > 0 && answer == LATER)
            victims->later += victim.bytes;
        else if (victim.bytes > 0 && !add(victims, &victim))
            return;
    }
}

/* How many bytes the session could give, now or soon, if the disk takes writes. Its lock is held. */
static uint64_t victims_sum_locked(const struct gb_session *s, const struct gb_room_ask *ask) {
    uint64_t now_ns = gb_clock_ns();
    uint64_t bytes = 0;
    size_t i;

    for (i = 0; i < s->buffers_by_id.count && s->movable > 0; i++) {
        const struct gb_buffer *b = s->buffers_by_id.items[i].value;

        if (ask_buffer(s->core, b, ask, true, now_ns) != STAYS)
            bytes += gives(b, ask);
    }
    return bytes;
}

static int before(const void *left, const void *right) {
    const struct gb_victim *a = left;
    const struct gb_victim *b = right;

    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    if (a->dirty != b->dirty)
        return a->dirty ? 1 : -1;
    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

static void cut(struct gb_victims *victims, size_t count) {
    while (victims->count > count)
        gb_session_unref(victims->items[--victims->count].session);
}

/* Sorts the buffers by the order in which they leave: sessions of a low priority first, then bytes that the disk has,
 * then the longest unused. Keeps as many as give `bytes`, or none if all together give less. */
static void victims_choose(struct gb_victims *victims, uint64_t bytes) {
    uint64_t sum = 0;
    size_t n = 0;

    if (victims->count == 0 || victims->bytes < bytes) { /* without any there is no array to be sorted */
        cut(victims, 0);
        return;
    }
    qsort(victims->items, victims->count, sizeof(*victims->items), before);
    while (n < victims->count && sum < bytes)
        sum += victims->items[n++].bytes;
    cut(victims, n);
}

static void victims_done(struct gb_victims *victims) {
    cut(victims, 0);
    free(victims->items);
}

/* --- room --------------------------------------------------------------------------------------------------------- */

/* Room in memory by itself: an allocation that finds none asks for it, and above the high-water mark the tick does. */

struct item {
    struct gb_room_ask *ask;
    struct gb_session *session; /* a reference */
    struct gb_name name;
    int64_t id; /* of the buffer */
    struct gb_buffer_call *call;
};

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void tell(struct gb_task *task) {
    struct gb_room_ask *ask = gb_container_of(task, struct gb_room_ask, task);

    ask->ended(ask);
}

static void release(struct gb_room_ask *ask) {
    if (atomic_fetch_sub(&ask->pending, 1) > 1)
        return;
    ask->task.run = tell;
    gb_lane_post(&ask->device->lane, &ask->task);
}

static void stay_no_more(struct gb_session *s, const struct gb_name *name) {
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, name->s);
    if (b)
        b->leaving = false;
    pthread_mutex_unlock(&s->lock);
}

static void evicted(void *arg) {
    struct item *item = arg;
    struct gb_room_ask *ask = item->ask;
    struct gb_loads *loads = item->session->core->loads;
    enum gb_code code = item->call->base.error.code;

    stay_no_more(item->session, &item->name);
    if (code == GB_OK && item->call->copied) {
        atomic_store(&ask->made, true);
        atomic_fetch_add(&loads->evicted_for_room, 1);
    } else if (code != GB_ERR_STORAGE_FULL && code != GB_ERR_STORAGE_FAILED && code != GB_ERR_STORAGE_UNAVAILABLE &&
               code != GB_ERR_QUOTA_EXCEEDED) {
        atomic_store(&ask->later, true); /* a request came first: it used the bytes, or freed them */
    }
    gb_session_unref(item->session);
    free(item);
    release(ask);
}

/* --- the choice --------------------------------------------------------------------------------------------------- */

/* False: the buffer is gone, or memory is exhausted. */
static bool mark(struct item *item, const struct gb_victim *victim) {
    struct gb_buffer *b;
    bool found;

    pthread_mutex_lock(&victim->session->lock);
    b = gb_idlist_after(&victim->session->buffers_by_id, victim->id - 1, NULL);
    found = b && b->id == victim->id && !b->leaving;
    if (found) {
        b->leaving = true;
        item->id = b->id;
        strcpy(item->name.s, b->name);
    }
    pthread_mutex_unlock(&victim->session->lock);
    return found;
}

/* Of the name may be another buffer by now, or the buffer is to stay. */
static int check_victim(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    const struct item *item = arg;

    if (rec && rec->id == item->id && !rec->resident)
        return 0;
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "the buffer is not to leave memory any more");
}

static void evict(struct gb_room_ask *ask, const struct gb_victim *victim) {
    struct item *item = calloc(1, sizeof(*item));
    struct gb_buffer_check check = {.check = check_victim, .arg = item};
    struct gb_call *call;

    if (!item || !mark(item, victim)) {
        atomic_store(&ask->later, true);
        free(item);
        return;
    }
    item->ask = ask;
    item->session = gb_session_ref(victim->session);
    item->call = gb_call_new(sizeof(*item->call), evicted, item);
    if (!item->call) {
        stay_no_more(item->session, &item->name);
        gb_session_unref(item->session);
        free(item);
        return;
    }
    atomic_fetch_add(&ask->pending, 1);
    call = &item->call->base; /* the item ends with the call */
    gb_buffer_evict_in(victim->session, &item->name, &check, GB_SPILL_NEVER, item->call);
    gb_call_unref(call);
}

static void look_at(struct gb_victims *victims, struct gb_session *s, const struct gb_room_ask *ask, bool disk) {
    pthread_mutex_lock(&s->lock);
    victims_add_locked(victims, s, ask, disk);
    pthread_mutex_unlock(&s->lock);
}

/* Of the load that needs room. */
static uint64_t sweep_of(const struct gb_content *content) {
    const struct gb_buffer *b;
    uint64_t sweep;

    if (!content || !content->buffer)
        return 0;
    pthread_mutex_lock(&content->session->lock);
    b = gb_map_get(&content->session->buffers, content->buffer);
    sweep = b && b->load ? b->sweep : 0;
    pthread_mutex_unlock(&content->session->lock);
    return sweep;
}

static void collect(struct gb_core *core, const struct gb_room_ask *ask, struct gb_victims *victims) {
    struct gb_error unused = GB_ERROR_INIT;
    bool disk = gb_disk_state_of(core->config.disk, &unused) == GB_DISK_READY;
    struct gb_session *s;
    int64_t id = 0;

    if (ask->session) {
        look_at(victims, ask->session, ask, disk);
        return;
    }
    while ((s = gb_session_after(core, id))) {
        id = s->id;
        look_at(victims, s, ask, disk);
        gb_session_unref(s);
    }
}

static void choose(struct gb_task *task) {
    struct gb_room_ask *ask = gb_container_of(task, struct gb_room_ask, task);
    struct gb_victims victims = {.count = 0};
    size_t i;

    ask->sweep = sweep_of(ask->content);
    collect(ask->device->core, ask, &victims);
    ask->evictable = victims.bytes + victims.later;
    ask->later = ask->evictable >= ask->bytes && victims.bytes < ask->bytes;
    atomic_store(&ask->pending, 1);
    victims_choose(&victims, ask->partly && victims.bytes < ask->bytes ? victims.bytes : ask->bytes);
    for (i = 0; i < victims.count; i++)
        evict(ask, &victims.items[i]);
    victims_done(&victims);
    release(ask);
}

void gb_durable_make_room(struct gb_core *core, struct gb_room_ask *ask) {
    ask->task.run = choose;
    gb_lane_post(gb_core_compute_lane(core), &ask->task);
}

uint64_t gb_durable_spare(struct gb_session *s) {
    const struct gb_room_ask ask = {.session = s};

    return victims_sum_locked(s, &ask);
}

/* --- the water marks ---------------------------------------------------------------------------------------------- */

static void forget(struct gb_room_ask *ask) {
    gb_core_pool_unref(ask->pool);
    atomic_store(&ask->device->making_room, false);
    free(ask);
}

static uint64_t percent_of(uint64_t bytes, unsigned percent) {
    return bytes / 100 * percent + bytes % 100 * percent / 100;
}

/* pool NULL: the device. */
static void keep_low(struct gb_core_device *device, struct gb_core_pool *pool, uint64_t used, uint64_t limit) {
    const struct gb_core_config *config = &device->core->config;
    struct gb_room_ask *ask;

    if (limit == 0 || used <= percent_of(limit, config->evict_high) || atomic_exchange(&device->making_room, true))
        return;
    ask = calloc(1, sizeof(*ask));
    if (!ask) {
        atomic_store(&device->making_room, false);
        return;
    }
    ask->device = device;
    ask->pool = pool ? gb_core_pool_ref(pool) : NULL;
    ask->bytes = used - percent_of(limit, config->evict_low);
    ask->partly = true;
    ask->ended = forget;
    gb_durable_make_room(device->core, ask);
}

static uint64_t in_memory(struct gb_alloc_counters *memory) {
    uint64_t freed = atomic_load(&memory->freed_bytes);
    uint64_t allocated = atomic_load(&memory->allocated_bytes);

    return allocated > freed ? allocated - freed : 0;
}

static void keep_pools_low(struct gb_session *s) {
    size_t i;

    pthread_mutex_lock(&s->lock);
    for (i = 0; i < s->pools_by_id.count; i++) {
        struct gb_core_pool *pool = s->pools_by_id.items[i].value;

        if (pool->device) /* that of a lost pool may not be there */
            keep_low(pool->device, pool, in_memory(&pool->memory), pool->rec.config.max_bytes);
    }
    pthread_mutex_unlock(&s->lock);
}

void gb_durable_keep_room(struct gb_core *core) {
    struct gb_session *s;
    int64_t id = 0;
    int i;

    if (core->config.evict_high == 0 || atomic_load(&core->movable_buffers) == 0)
        return;
    for (i = 0; i < core->device_count; i++)
        keep_low(&core->devices[i], NULL, in_memory(&core->devices[i].memory), core->devices[i].rec.total_bytes);
    while ((s = gb_session_after(core, id))) {
        id = s->id;
        keep_pools_low(s);
        gb_session_unref(s);
    }
}
