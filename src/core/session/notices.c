#include "core/session/notices.h"

#include <stdio.h>
#include <string.h>

#include "core/device/pool.h"
#include "core/session/session.h"

struct gb_notice gb_notice_of(const struct gb_session *session, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_new(type);

    strcpy(n.session.s, gb_session_told(session)->s);
    return n;
}

struct gb_notice gb_notice_of_buffer(struct gb_session *session, const struct gb_buffer_rec *rec,
                                     enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(session, type);

    strcpy(n.buffer.s, rec->name.s);
    if (rec->kind == GB_KIND_DEVICE)
        strcpy(n.pool.s, rec->pool.s);
    n.device = rec->device;
    n.has_bytes = true;
    n.bytes = rec->bytes;
    n.generation = rec->generation;
    n.has_head = rec->mirrored;
    n.head = rec->head;
    return n;
}

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

void gb_notice_post_lost(struct gb_session *session, uint64_t count, const char *why) {
    struct gb_notice n = gb_notice_of(session, GB_NOTICE_BUFFER_LOST);

    if (count == 0)
        return;
    n.count = count;
    snprintf(n.detail, sizeof(n.detail), "%s", why);
    gb_notice_post(session->core, &n);
}
