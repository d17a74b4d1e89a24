#include "core/memory/alloc_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/device/stream.h"
#include "core/memory/content.h"

#define CHUNK 64 /* blocks that are copied at a time */

struct gb_alloc_log *gb_alloc_log_new(uint64_t room) {
    struct gb_alloc_log *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->next = 1;
    t->room = room;
    t->ring = room > 0 ? calloc(room, sizeof(*t->ring)) : NULL; /* pages that were never written cost nothing */
    if (room > 0 && !t->ring) {
        free(t);
        return NULL;
    }
    gb_mutex_init(&t->lock);
    TAILQ_INIT(&t->live);
    return t;
}

void gb_alloc_log_free(struct gb_alloc_log *t) {
    if (!t)
        return;
    free(t->ring);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void cut(char out[GB_ALLOC_LOG_NAME_SIZE], const char *name) {
    size_t n = strnlen(name, GB_ALLOC_LOG_NAME_SIZE);

    memcpy(out, name, n < GB_ALLOC_LOG_NAME_SIZE ? n + 1 : n);
    if (n == GB_ALLOC_LOG_NAME_SIZE)
        memcpy(out + GB_ALLOC_LOG_NAME_SIZE - 4, "...", 4);
}

static void add_locked(struct gb_alloc_log *t, const struct gb_content *c, enum gb_alloc_log_action action) {
    struct gb_alloc_log_event *e;

    if (t->room > 0) {
        e = &t->ring[t->next % t->room];
        *e = (struct gb_alloc_log_event){
            .number = t->next,
            .at_us = gb_wall_us(),
            .address = action == GB_ALLOC_LOG_FAILURE ? 0 : (uint64_t)(uintptr_t)c->ptr,
            .bytes = c->bytes,
            .free_bytes = action == GB_ALLOC_LOG_FAILURE ? atomic_load(&c->device->free_bytes) : 0,
            .session_id = c->session->id,
            .stream_id = c->alloc_stream->id,
            .pool_id = c->kind == GB_KIND_DEVICE ? c->pool->rec.id : 0,
            .device = c->device->index,
            .kind = c->kind,
            .action = action,
        };
        cut(e->session, gb_session_name(c->session)->s);
        cut(e->buffer, c->buffer);
    }
    t->next++;
}

void gb_alloc_log_taken(struct gb_content *c) {
    struct gb_alloc_log *t = c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind) || !c->ptr)
        return;
    pthread_mutex_lock(&t->lock);
    c->alloc_log.number = t->next;
    TAILQ_INSERT_TAIL(&t->live, &c->alloc_log, entry);
    add_locked(t, c, GB_ALLOC_LOG_ALLOC);
    pthread_mutex_unlock(&t->lock);
}

static void leave(struct gb_content *c, bool given) {
    struct gb_alloc_log *t = c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind) || c->owner)
        return;
    pthread_mutex_lock(&t->lock);
    if (c->alloc_log.number > 0) {
        TAILQ_REMOVE(&t->live, &c->alloc_log, entry);
        c->alloc_log.number = 0;
        if (given)
            add_locked(t, c, GB_ALLOC_LOG_FREE);
    }
    pthread_mutex_unlock(&t->lock);
}

void gb_alloc_log_freed(struct gb_content *c) {
    leave(c, true);
}

void gb_alloc_log_forget(struct gb_content *c) {
    leave(c, false);
}

void gb_alloc_log_refused(const struct gb_content *c) {
    struct gb_alloc_log *t = c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind))
        return;
    pthread_mutex_lock(&t->lock);
    add_locked(t, c, GB_ALLOC_LOG_FAILURE);
    pthread_mutex_unlock(&t->lock);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static uint64_t first_locked(const struct gb_alloc_log *t) {
    if (t->room == 0)
        return t->next;
    return t->next > t->room ? t->next - t->room : 1;
}

uint64_t gb_alloc_log_room(const struct gb_core *core) {
    return core->alloc_log->room;
}

void gb_alloc_log_range(struct gb_core *core, uint64_t *ret_first, uint64_t *ret_end) {
    struct gb_alloc_log *t = core->alloc_log;

    pthread_mutex_lock(&t->lock);
    *ret_first = first_locked(t);
    *ret_end = t->next;
    pthread_mutex_unlock(&t->lock);
}

unsigned gb_alloc_log_events(struct gb_core *core, uint64_t *from, uint64_t end, struct gb_alloc_log_event *out,
                             unsigned n) {
    struct gb_alloc_log *t = core->alloc_log;
    unsigned count = 0;

    pthread_mutex_lock(&t->lock);
    if (*from < first_locked(t))
        *from = first_locked(t);
    if (end > t->next)
        end = t->next;
    for (; *from < end && count < n; (*from)++)
        out[count++] = t->ring[*from % t->room];
    pthread_mutex_unlock(&t->lock);
    return count;
}

static void copy_block(const struct gb_alloc_log_link *link, struct gb_alloc_log_block *out) {
    const struct gb_content *c =
        gb_container_of((struct gb_alloc_log_link *)(uintptr_t)link, struct gb_content, alloc_log);
    bool pool_sessions = c->kind == GB_KIND_DEVICE;

    *out = (struct gb_alloc_log_block){
        .number = link->number,
        .address = (uint64_t)(uintptr_t)c->ptr,
        .bytes = c->bytes,
        .session_id = c->session->id,
        .stream_id = c->alloc_stream->id,
        .pool_id = pool_sessions ? c->pool->rec.id : 0,
        .device = c->device->index,
        .kind = c->kind,
        .leaving = atomic_load(&c->left),
        .session = *gb_session_name(c->session),
    };
    strcpy(out->buffer.s, c->buffer);
    if (pool_sessions)
        out->pool = c->pool->rec.name;
}

/* Copies the blocks behind place, which moves behind them. A content in the list still has its references. */
static unsigned copy_chunk(struct gb_alloc_log *t, struct gb_alloc_log_link *place, struct gb_alloc_log_block *out) {
    struct gb_alloc_log_link *link;
    unsigned count = 0;

    pthread_mutex_lock(&t->lock);
    for (link = TAILQ_NEXT(place, entry); link && count < CHUNK; link = TAILQ_NEXT(place, entry)) {
        TAILQ_REMOVE(&t->live, place, entry);
        TAILQ_INSERT_AFTER(&t->live, link, place, entry);
        if (!link->place)
            copy_block(link, &out[count++]);
    }
    pthread_mutex_unlock(&t->lock);
    return count;
}

int gb_alloc_log_blocks(struct gb_core *core,
                        int (*visit)(void *arg, const struct gb_alloc_log_block *, struct gb_error *), void *arg,
                        struct gb_error *err) {
    struct gb_alloc_log *t = core->alloc_log;
    struct gb_alloc_log_block *chunk = calloc(CHUNK, sizeof(*chunk));
    struct gb_alloc_log_link place = {.place = true};
    unsigned count;
    unsigned i;
    int r = 0;

    if (!chunk)
        return gb_no_memory(err);
    pthread_mutex_lock(&t->lock);
    TAILQ_INSERT_HEAD(&t->live, &place, entry);
    pthread_mutex_unlock(&t->lock);
    while (r == 0 && (count = copy_chunk(t, &place, chunk)) > 0) {
        for (i = 0; i < count && r == 0; i++)
            r = visit(arg, &chunk[i], err);
    }
    pthread_mutex_lock(&t->lock);
    TAILQ_REMOVE(&t->live, &place, entry);
    pthread_mutex_unlock(&t->lock);
    free(chunk);
    return r;
}
