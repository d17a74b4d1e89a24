#include "core/memory/room.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/memory/content.h"

/* How long an allocation goes on asking, and how often at most. */
#define PATIENCE_NS (10 * GB_NS_PER_S)
#define AGAIN_NS (20 * GB_NS_PER_MS)
#define COPIES_NS GB_NS_PER_S /* after copies have given way */

static void ended(struct gb_room_ask *ask) {
    struct gb_alloc *a = gb_container_of(ask, struct gb_alloc, room);

    a->room_state = GB_ROOM_ENDED;
    ask->device->waiting.freed = true;
}

/* The quota's other uses change it meanwhile; the next try sees what is missing then. */
static uint64_t missing_quota(struct gb_content *c) {
    struct gb_session *s = c->session;
    uint64_t missing = c->bytes;

    pthread_mutex_lock(&s->lock);
    if (s->used_bytes < s->rec.quota.bytes && s->rec.quota.bytes - s->used_bytes < missing)
        missing -= s->rec.quota.bytes - s->used_bytes;
    pthread_mutex_unlock(&s->lock);
    return missing;
}

static void ask(struct gb_alloc *a, bool at_quota) {
    struct gb_content *c = a->content;

    a->room = (struct gb_room_ask){.device = c->device, .content = c, .bytes = a->missing, .ended = ended};
    if (at_quota) {
        a->room.session = c->session;
        a->room.bytes = missing_quota(c);
    } else if (c->kind == GB_KIND_DEVICE && c->pool->rec.config.max_bytes > 0) {
        a->room.pool = c->pool;
    }
    a->room_state = GB_ROOM_COMING;
    c->device->core->make_room(c->device->core, &a->room);
}

/* What this node keeps for others goes first, but not for more of the same. */
static bool copies_go(const struct gb_alloc *a) {
    struct gb_core *core = a->content->device->core;
    struct gb_session *s = a->content->session;
    bool goes = false;
    bool is_copy;

    if (!atomic_load(&core->keeps_copies) || atomic_load(&a->cancelled))
        return false;
    pthread_mutex_lock(&s->lock);
    is_copy = s->rec.fleet_epoch == 0 && s->rec.fleet_claim[0] != '\0';
    pthread_mutex_unlock(&s->lock);
    if (is_copy)
        return false;
    pthread_mutex_lock(&core->gone_lock);
    if (core->shortage)
        goes = core->shortage(core->copied_arg, a->missing);
    pthread_mutex_unlock(&core->gone_lock);
    return goes;
}

/* Their memory comes back in stream order, some time after they have gone. */
static bool wait_for_copies(struct gb_alloc *a) {
    uint64_t now_ns = gb_clock_ns();

    if (copies_go(a)) {
        a->copies_until_ns = a->copies_until_ns == 0 ? now_ns + PATIENCE_NS : a->copies_until_ns;
        a->copies_went_ns = now_ns;
    }
    return a->copies_went_ns > 0 && now_ns - a->copies_went_ns < COPIES_NS && now_ns < a->copies_until_ns;
}

bool gb_room_hope(struct gb_alloc *a, bool at_quota) {
    struct gb_core *core = a->content->device->core;
    uint64_t now_ns;

    if (!at_quota && wait_for_copies(a))
        return true;
    if (!core->make_room || atomic_load(&core->movable_buffers) == 0 || atomic_load(&a->cancelled) ||
        (a->room_state == GB_ROOM_ENDED && !a->room.made && !a->room.later))
        return false;
    now_ns = gb_clock_ns();
    if (a->room_until_ns == 0)
        a->room_until_ns = now_ns + PATIENCE_NS;
    if (now_ns >= a->room_until_ns)
        return false;
    if (now_ns >= a->room_next_ns) {
        a->room_next_ns = now_ns + (a->room.made ? 0 : AGAIN_NS);
        ask(a, at_quota);
    }
    return true;
}

void gb_room_tell(const struct gb_alloc *a, struct gb_error *error) {
    size_t said = strlen(error->detail);

    if (a->room_state == GB_ROOM_ENDED)
        snprintf(error->detail + said, sizeof(error->detail) - said, "; evictable_bytes: %llu of other buffers",
                 (unsigned long long)a->room.evictable);
}
