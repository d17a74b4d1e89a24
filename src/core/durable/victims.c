#include "core/durable/victims.h"

#include <stdlib.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/durable/durable.h"

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

/* Many buffers that are loaded together do not take each other's place, and no watermark undoes what is not over. */
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

void gb_victims_add_locked(struct gb_victims *victims, struct gb_session *s, const struct gb_room_ask *ask, bool disk) {
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

uint64_t gb_victims_sum_locked(const struct gb_session *s, const struct gb_room_ask *ask) {
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

void gb_victims_choose(struct gb_victims *victims, uint64_t bytes) {
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

void gb_victims_done(struct gb_victims *victims) {
    cut(victims, 0);
    free(victims->items);
}
