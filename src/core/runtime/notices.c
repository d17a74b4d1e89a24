#include "core/runtime/notices.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "core/session/session.h"
#include "core/share/lease_internal.h"

struct gb_notice gb_notice_of(const struct gb_session *session, enum gb_notice_type type) {
    struct gb_notice n;

    /* Not zeroed as a whole: the texts are most of it, and it is made for every change. */
    memset(&n, 0, offsetof(struct gb_notice, session));
    n.at_us = gb_wall_us();
    n.type = type;
    n.device = -1;
    n.session.s[0] = n.pool.s[0] = n.buffer.s[0] = n.detail[0] = '\0';
    if (session)
        strcpy(n.session.s, session->name.s);
    n.has_bytes = false;
    n.bytes = n.count = 0;
    n.generation = n.lease = 0;
    return n;
}

void gb_notice_post(struct gb_core *core, const struct gb_notice *notice) {
    gb_store_note(core->store, notice);
}

/* --- storms --------------------------------------------------------------------------------------------------------- */

static bool same(const struct gb_notice *a, const struct gb_notice *b) {
    return a->type == b->type && gb_name_equal(&a->session, &b->session);
}

/* The one of its kind, else a free one, else NULL. */
static struct gb_rate_limiter *find_locked(struct gb_feed *f, const struct gb_notice *notice) {
    struct gb_rate_limiter *room = NULL;
    size_t i;

    for (i = 0; i < GB_FEED_RATE_LIMITERS; i++) {
        struct gb_rate_limiter *s = &f->limiters[i];

        if (s->active && same(&s->notice, notice))
            return s;
        if (!s->active && !room)
            room = s;
    }
    return room;
}

void gb_notice_post_limited(struct gb_core *core, const struct gb_notice *notice) {
    struct gb_feed *f = &core->feed;
    struct gb_rate_limiter *s;

    pthread_mutex_lock(&f->limiter_lock);
    s = find_locked(f, notice);
    if (s && !s->active) {
        *s = (struct gb_rate_limiter){.active = true, .until_ns = gb_clock_ns() + GB_NS_PER_S};
        gb_notice_post(core, notice);
    } else if (s) {
        s->more++;
    }
    if (s)
        s->notice = *notice;
    pthread_mutex_unlock(&f->limiter_lock);
}

void gb_feed_tick(struct gb_core *core) {
    struct gb_feed *f = &core->feed;
    uint64_t now_ns = gb_clock_ns();
    size_t i;

    pthread_mutex_lock(&f->limiter_lock);
    for (i = 0; i < GB_FEED_RATE_LIMITERS; i++) {
        struct gb_rate_limiter *s = &f->limiters[i];

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
    pthread_mutex_unlock(&f->limiter_lock);
}

/* --- of what -------------------------------------------------------------------------------------------------------- */

void gb_notice_post_session(struct gb_session *session, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(session, type);

    gb_notice_post(session->core, &n);
}

void gb_notice_post_pool(struct gb_session *session, const struct gb_core_pool *pool, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(session, type);

    n.pool = pool->rec.name;
    n.device = pool->rec.device;
    if (type == GB_NOTICE_POOL_LOST)
        snprintf(n.detail, sizeof(n.detail), "%s",
                 pool->device ? "the device could not make it again" : "the device that it was on is not here");
    gb_notice_post(session->core, &n);
}

void gb_notice_post_lease(const struct gb_lease *lease, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(lease->session, type);

    n.buffer = lease->buffer;
    n.lease = lease->id;
    snprintf(n.detail, sizeof(n.detail), "%s", lease->write ? "for writing" : "for reading");
    gb_notice_post(lease->core, &n);
}

void gb_notice_post_lost(struct gb_session *session, uint64_t count, const char *why) {
    struct gb_notice n = gb_notice_of(session, GB_NOTICE_BUFFER_LOST);

    if (count == 0)
        return;
    n.count = count;
    snprintf(n.detail, sizeof(n.detail), "%s", why);
    gb_notice_post(session->core, &n);
}

struct gb_notice gb_notice_of_buffer(struct gb_session *session, const struct gb_buffer *buffer,
                                     enum gb_notice_type type) {
    const struct gb_buffer_kept *rec = &buffer->rec;
    struct gb_notice n = gb_notice_of(session, type);

    strcpy(n.buffer.s, buffer->name);
    if (rec->kind == GB_KIND_DEVICE)
        strcpy(n.pool.s, gb_text_s(rec->pool));
    n.device = rec->device;
    n.has_bytes = true;
    n.bytes = rec->bytes;
    n.generation = rec->generation;
    return n;
}

void gb_feed_health(struct gb_core *core, int device, const char *detail) {
    struct gb_notice n = gb_notice_of(NULL, GB_NOTICE_DEVICE_HEALTH);

    n.device = device;
    snprintf(n.detail, sizeof(n.detail), "%s", detail);
    gb_notice_post(core, &n);
}
