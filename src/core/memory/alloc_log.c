#include "core/memory/alloc_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/session/session.h"

#define CHUNK 64 /* blocks that are copied at a time */

int gb_alloc_log_init(struct gb_alloc_log *t, uint64_t room, struct gb_error *err) {
    pthread_mutex_init(&t->lock, NULL);
    TAILQ_INIT(&t->live);
    t->next = 1;
    t->room = room;
    if (room == 0)
        return 0;
    t->ring = calloc(room, sizeof(*t->ring)); /* pages that were never written cost nothing */
    return t->ring ? 0 : gb_no_memory(err);
}

void gb_alloc_log_done(struct gb_alloc_log *t) {
    free(t->ring);
    pthread_mutex_destroy(&t->lock);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void cut(char out[GB_ALLOC_LOG_NAME_SIZE], const char *name) {
    if (snprintf(out, GB_ALLOC_LOG_NAME_SIZE, "%s", name) >= GB_ALLOC_LOG_NAME_SIZE)
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
        cut(e->session, c->session->name.s);
        cut(e->buffer, c->buffer);
    }
    t->next++;
}

void gb_alloc_log_taken(struct gb_content *c) {
    struct gb_alloc_log *t = &c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind) || !c->ptr)
        return;
    pthread_mutex_lock(&t->lock);
    c->alloc_log.number = t->next;
    TAILQ_INSERT_TAIL(&t->live, &c->alloc_log, entry);
    add_locked(t, c, GB_ALLOC_LOG_ALLOC);
    pthread_mutex_unlock(&t->lock);
}

static void leave(struct gb_content *c, bool given) {
    struct gb_alloc_log *t = &c->device->core->alloc_log;

    if (!gb_kind_of_device(c->kind) || c->adoption)
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
    struct gb_alloc_log *t = &c->device->core->alloc_log;

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
    return core->alloc_log.room;
}

void gb_alloc_log_range(struct gb_core *core, uint64_t *ret_first, uint64_t *ret_end) {
    struct gb_alloc_log *t = &core->alloc_log;

    pthread_mutex_lock(&t->lock);
    *ret_first = first_locked(t);
    *ret_end = t->next;
    pthread_mutex_unlock(&t->lock);
}

unsigned gb_alloc_log_events(struct gb_core *core, uint64_t *from, uint64_t end, struct gb_alloc_log_event *out,
                             unsigned n) {
    struct gb_alloc_log *t = &core->alloc_log;
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
    const struct gb_content *c = (const void *)((const char *)link - offsetof(struct gb_content, alloc_log));
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
        .session = c->session->name,
    };
    strcpy(out->buffer.s, c->buffer);
    if (pool_sessions)
        out->pool = c->pool->rec.name;
}

/* The blocks behind place, which moves behind them. What is in the list has not given back its references. */
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
    struct gb_alloc_log *t = &core->alloc_log;
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

static struct gb_alloc_log_pool describe(struct gb_core_pool *p) {
    struct gb_alloc_log_pool ret = {.id = p->own ? 0 : p->rec.id, .device = p->device->index, .name = p->rec.name};
    struct gb_pool_stat stat;

    gb_core_pool_stat(p, &stat);
    ret.reserved_bytes = stat.reserved_bytes;
    return ret;
}

int gb_alloc_log_pools(struct gb_core *core,
                       int (*visit)(void *arg, const struct gb_alloc_log_pool *, struct gb_error *), void *arg,
                       struct gb_error *err) {
    struct gb_alloc_log_pool pool;
    struct gb_session *s;
    int64_t id = 0;
    int r = 0;
    int i;

    for (i = 0; i < core->device_count && r == 0; i++) {
        pool = describe(core->devices[i].pool);
        r = visit(arg, &pool, err);
    }
    while (r == 0 && (s = gb_session_after(core, id))) {
        struct gb_core_pool *p;
        int64_t pool_id = 0;

        id = s->id;
        while (r == 0 && (p = gb_session_pool_after(s, &pool_id))) {
            if (atomic_load(&p->state) == GB_POOL_LIVE && p->device) {
                pool = describe(p);
                r = visit(arg, &pool, err);
            }
            gb_core_pool_unref(p);
        }
        gb_session_unref(s);
    }
    return r;
}

/* --- work --------------------------------------------------------------------------------------------------------- */

static void run(struct gb_task *task) {
    struct gb_core_task *work = (struct gb_core_task *)((char *)task - offsetof(struct gb_core_task, task));

    work->run(work);
}

void gb_core_run_task(struct gb_core *core, struct gb_core_task *work) {
    unsigned number = atomic_fetch_add(&core->scan_number, 1);

    work->task.run = run;
    gb_lane_post(&core->compute[number % GB_COMPUTE_LANES], &work->task);
}
