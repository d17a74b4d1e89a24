#include "core/runtime/notices.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/runtime/runtime.h"

struct gb_notice gb_notice_new(enum gb_notice_type type) {
    struct gb_notice n;

    /* Not zeroed as a whole: the texts are most of it, and it is made for every change. */
    memset(&n, 0, offsetof(struct gb_notice, session));
    n.at_us = gb_wall_us();
    n.type = type;
    n.device = -1;
    n.session.s[0] = n.pool.s[0] = n.buffer.s[0] = n.detail[0] = '\0';
    n.has_bytes = n.has_head = false;
    n.head = GB_HEAD_UNINITIALIZED;
    n.bytes = n.count = 0;
    n.generation = n.lease = 0;
    return n;
}

void gb_notice_post(struct gb_core *core, const struct gb_notice *notice) {
    gb_store_note(core->store, notice);
}

/* --- limiters ----------------------------------------------------------------------------------------------------- */

#define LIMITERS 64

/* The first of a burst is posted at once; then, once a second, the number of those that followed. */
struct gb_rate_limiter {
    bool active;
    uint64_t until_ns;
    uint64_t more; /* since the last that was posted */
    struct gb_notice notice;
};

struct gb_notice_limiters {
    pthread_mutex_t lock; /* a leaf */
    struct gb_rate_limiter limiters[LIMITERS];
};

struct gb_notice_limiters *gb_notice_limiters_new(void) {
    struct gb_notice_limiters *l = calloc(1, sizeof(*l));

    if (l)
        gb_mutex_init(&l->lock);
    return l;
}

void gb_notice_limiters_free(struct gb_notice_limiters *l) {
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static bool same(const struct gb_notice *a, const struct gb_notice *b) {
    return a->type == b->type && gb_name_equal(&a->session, &b->session);
}

/* The one of its kind, else a free one, else NULL. */
static struct gb_rate_limiter *find_locked(struct gb_notice_limiters *l, const struct gb_notice *notice) {
    struct gb_rate_limiter *room = NULL;
    size_t i;

    for (i = 0; i < LIMITERS; i++) {
        struct gb_rate_limiter *s = &l->limiters[i];

        if (s->active && same(&s->notice, notice))
            return s;
        if (!s->active && !room)
            room = s;
    }
    return room;
}

void gb_notice_post_limited(struct gb_core *core, const struct gb_notice *notice) {
    struct gb_notice_limiters *l = core->limiters;
    struct gb_rate_limiter *s;

    pthread_mutex_lock(&l->lock);
    s = find_locked(l, notice);
    if (s && !s->active) {
        *s = (struct gb_rate_limiter){.active = true, .until_ns = gb_clock_ns() + GB_NS_PER_S};
        gb_notice_post(core, notice);
    } else if (s) {
        s->more++;
    }
    if (s)
        s->notice = *notice;
    pthread_mutex_unlock(&l->lock);
}

void gb_notices_tick(struct gb_core *core) {
    struct gb_notice_limiters *l = core->limiters;
    uint64_t now_ns = gb_clock_ns();
    size_t i;

    pthread_mutex_lock(&l->lock);
    for (i = 0; i < LIMITERS; i++) {
        struct gb_rate_limiter *s = &l->limiters[i];

        if (!s->active || now_ns < s->until_ns)
            continue;
        s->active = s->more > 0;
        if (s->active) {
            s->notice.count = s->more;
            gb_notice_post(core, &s->notice);
        }
        s->more = 0;
        s->until_ns = now_ns + GB_NS_PER_S;
    }
    pthread_mutex_unlock(&l->lock);
}
