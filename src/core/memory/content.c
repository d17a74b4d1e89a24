#include "core/memory/content.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "core/device/stream.h"
#include "core/memory/alloc_stats.h"
#include "core/memory/free_cache.h"
#include "core/memory/kind.h"

#define FREE_TRIES 3

int gb_content_new_locked(struct gb_session *session, struct gb_core_pool *pool, enum gb_kind kind,
                          struct gb_core_stream *alloc_stream, const struct gb_name *buffer, uint64_t bytes,
                          struct gb_content **ret, struct gb_error *err) {
    size_t size = strlen(buffer->s) + 1;
    struct gb_content *c = calloc(1, sizeof(*c) + size);

    if (!c)
        return gb_no_memory(err);
    c->promised = kind != GB_KIND_PINNED && gb_quota_promise_locked(session, bytes);
    c->given = c->promised;
    if (!c->promised && gb_quota_take_locked(session, bytes, 0, err) < 0) {
        free(c);
        return -1;
    }
    if (kind == GB_KIND_PINNED && gb_quota_take_pinned_locked(session, bytes, err) < 0) {
        gb_quota_give_locked(session, bytes, 0);
        free(c);
        return -1;
    }
    atomic_init(&c->refs, 1);
    TAILQ_INIT(&c->pins);
    c->session = gb_session_ref(session);
    c->kind = kind;
    c->device = pool->device;
    c->pool = gb_core_pool_ref(kind == GB_KIND_DEVICE ? pool : pool->device->pool);
    c->alloc_stream = gb_core_stream_ref(alloc_stream);
    c->buffer = memcpy(c + 1, buffer->s, size);
    c->bytes = bytes;
    atomic_fetch_add(&c->pool->occupants, kind == GB_KIND_DEVICE);
    *ret = c;
    return 0;
}

int gb_content_redeem(struct gb_content *c, struct gb_error *err) {
    int r = 0;

    pthread_mutex_lock(&c->session->lock);
    if (c->promised)
        r = gb_quota_redeem_locked(c->session, c->bytes, err);
    if (r == 0)
        c->promised = c->given = false;
    pthread_mutex_unlock(&c->session->lock);
    return r;
}

struct gb_content *gb_content_foreign_new(struct gb_session *session, struct gb_core_device *device, uint64_t bytes) {
    struct gb_content *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    atomic_init(&c->refs, 1);
    TAILQ_INIT(&c->pins);
    c->session = gb_session_ref(session);
    c->kind = GB_KIND_PAGEABLE;
    c->device = device;
    c->pool = gb_core_pool_ref(device->pool);
    c->alloc_stream = gb_core_stream_ref(session->standard);
    c->buffer = "";
    c->bytes = bytes;
    c->given = true;
    return c;
}

struct gb_content *gb_content_ref(struct gb_content *content) {
    atomic_fetch_add(&content->refs, 1);
    return content;
}

/* Memory of other kinds is in no pool. */
static bool pooled(const struct gb_content *c) {
    return c->kind == GB_KIND_DEVICE;
}

static void leave_locked(struct gb_content *c) {
    if (!c->left && pooled(c))
        atomic_fetch_sub(&c->pool->occupants, 1);
    c->left = true;
}

static void give_quota(struct gb_content *c) {
    pthread_mutex_lock(&c->session->lock);
    leave_locked(c);
    if (!c->given) {
        gb_quota_give_locked(c->session, c->bytes, 0);
        if (c->kind == GB_KIND_PINNED)
            gb_quota_give_pinned_locked(c->session, c->bytes);
    }
    c->given = true;
    pthread_mutex_unlock(&c->session->lock);
}

void gb_content_attach_locked(struct gb_content *content) {
    if (pooled(content))
        atomic_fetch_add(&content->pool->live_buffers, 1);
}

/* A buffer gave the bytes up: pinned bytes are held from now on. */
static void hold_pinned_locked(struct gb_content *c) {
    if (c->pin_count == 0)
        return;
    c->held = true;
    c->session->held_bytes += c->bytes;
    atomic_fetch_add(&c->session->core->held_bytes, c->bytes);
}

void gb_content_detach_locked(struct gb_content *content) {
    if (pooled(content))
        atomic_fetch_sub(&content->pool->live_buffers, 1);
    leave_locked(content);
    hold_pinned_locked(content);
}

void gb_content_pin_locked(struct gb_content *c, struct gb_pin *pin) {
    TAILQ_INSERT_TAIL(&c->pins, pin, link);
    c->pin_count++;
    c->pin_writers += pin->write;
    atomic_fetch_add(&c->pool->leases, c->kind == GB_KIND_DEVICE);
}

void gb_content_unpin_locked(struct gb_content *c, struct gb_pin *pin) {
    TAILQ_REMOVE(&c->pins, pin, link);
    c->pin_count--;
    c->pin_writers -= pin->write;
    atomic_fetch_sub(&c->pool->leases, c->kind == GB_KIND_DEVICE);
    if (c->pin_count > 0 || !c->held)
        return;
    c->held = false;
    c->session->held_bytes -= c->bytes;
    atomic_fetch_sub(&c->session->core->held_bytes, c->bytes);
}

void gb_content_end(struct gb_content *c) {
    struct gb_session *session = c->session;

    gb_alloc_log_forget(c);
    gb_event_pool_give(&c->device->events, c->ready);
    gb_event_pool_give(&c->device->events, c->used);
    give_quota(c);
    gb_core_stream_unref(c->alloc_stream);
    gb_core_pool_unref(c->pool);
    gb_pinned_give(&c->device->core->pinned, c->locked_bytes);
    if (c->on_freed)
        c->on_freed(c->owner);
    if (c->then)
        c->then(c->then_arg);
    gb_session_unref(session);
    free(c->last);
    free(c);
}

static int zero(struct gb_content *c, struct gb_error *err) {
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);
    struct gb_ev *ready = gb_event_pool_take(&c->device->events, err);

    if (!ready)
        return -1;
    if (gb_content_zero(c, 0, c->bytes, part, err) < 0 ||
        gb_event_record(c->device->core->backend, ready->event, part, err) < 0) {
        gb_event_pool_give(&c->device->events, ready);
        return -1;
    }
    c->ready = ready;
    return 0;
}

/* The lanes of two devices may want the same zeros: the lock is held while a fill is queued, which waits for
 * nothing. */
int gb_content_materialize(struct gb_content *c, struct gb_error *err) {
    int r = 0;

    if (!c || !atomic_load(&c->blank))
        return 0;
    pthread_mutex_lock(&c->device->core->blank_lock);
    if (atomic_load(&c->blank)) {
        r = zero(c, err);
        atomic_store(&c->blank, r < 0);
    }
    pthread_mutex_unlock(&c->device->core->blank_lock);
    return r;
}

static int try_free(struct gb_content *c, struct gb_error *err) {
    struct gb_stream *stream = gb_core_stream_part(c->alloc_stream, c->device->index);

    if (!stream && gb_core_stream_part_make(c->session->standard, c->device->index, &stream, err) < 0)
        return -1;
    return gb_mem_free(c->device->core->backend, c->ptr, stream, err);
}

void gb_content_count_alloc(struct gb_content *c) {
    gb_alloc_stats_taken(c);
    gb_alloc_log_taken(c);
}

void gb_content_count_free(struct gb_content *c) {
    if (c->counted)
        return;
    c->counted = true;
    gb_alloc_log_freed(c);
    gb_alloc_stats_freed(c);
}

/* A free that fails on a living device would leak for ever, so it is tried again. */
void gb_content_free_memory(struct gb_content *c) {
    struct gb_core_device *device = c->device;
    struct gb_core *core = device->core;
    bool freed = false;
    int tries;

    for (tries = 0; tries < FREE_TRIES; tries++) {
        struct gb_error err = GB_ERROR_INIT;

        freed = try_free(c, &err) == 0;
        if (freed)
            break;
        gb_core_report_error(core, &err);
        if (gb_backend_dead(core->backend, NULL))
            break;
    }
    if (freed)
        gb_content_count_free(c);
    device->waiting.freed = true;
    gb_core_pool_refresh(c->pool);
    gb_core_changed(core);
    gb_content_end(c);
}

static void free_memory(struct gb_task *task) {
    gb_content_free_memory(gb_container_of(task, struct gb_content, task));
}

/* [any thread] The last reference is gone. */
static void let_go(struct gb_content *content) {
    if (!content->ptr) {
        gb_content_end(content);
    } else if (!pooled(content)) {
        gb_kind_free_start(content);
    } else {
        content->task.run = free_memory;
        gb_lane_post(&content->device->lane, &content->task);
    }
}

void gb_content_drop(struct gb_content *content, void (*then)(void *arg), void *arg) {
    struct gb_core_device *device;

    if (!content || atomic_fetch_sub(&content->refs, 1) != 1) {
        if (then)
            then(arg);
        return;
    }
    content->then = then;
    content->then_arg = arg;
    device = content->device;
    /* As with allocations: see alloc.c. */
    if (content->ptr && pooled(content) && device->rec.cpu_access && gb_lane_enter(&device->lane)) {
        gb_content_free_memory(content);
        gb_lane_leave(&device->lane, device->waiting.first != NULL);
        return;
    }
    let_go(content);
}

void gb_content_retire(struct gb_content *content, void (*then)(void *arg), void *arg) {
    if (!content || !pooled(content) || !content->ptr || content->device->rec.cpu_access) {
        gb_content_drop(content, then, arg);
        return;
    }
    if (atomic_fetch_sub(&content->refs, 1) == 1) {
        give_quota(content);
        if (!gb_free_cache_put(content))
            let_go(content);
    }
    if (then)
        then(arg);
}

void gb_content_drop_later(struct gb_content *content) {
    if (content && atomic_fetch_sub(&content->refs, 1) == 1)
        let_go(content);
}

void gb_content_drop_all(struct gb_content *list) {
    struct gb_content *next;

    for (; list; list = next) {
        next = list->next;
        gb_content_drop(list, NULL, NULL);
    }
}

static void drop_rest(void *arg) {
    struct gb_content *c = arg;

    gb_content_drop_list(c, c->list_then, c->list_arg);
}

void gb_content_drop_list(struct gb_content *list, void (*then)(void *arg), void *arg) {
    struct gb_content *rest = list ? list->next : NULL;

    if (!rest) {
        gb_content_drop(list, then, arg);
        return;
    }
    rest->list_then = then;
    rest->list_arg = arg;
    gb_content_drop(list, drop_rest, rest);
}

void gb_content_list_add(struct gb_content **list, struct gb_content *more) {
    struct gb_content *last = more;

    if (!more)
        return;
    while (last->next)
        last = last->next;
    last->next = *list;
    *list = more;
}
