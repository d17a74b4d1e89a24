/* A lease that maps a buffer: the bytes are held, by their own memory or, for writing, by a generation of their own,
 * and the answer waits until they are complete. lease.c has what follows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/runtime/runtime.h"
#include "core/share/adopt.h"

/* --- the bytes are held ------------------------------------------------------------------------------------------- */

/* BUFFER_BUSY if the bytes are being read. One reference is the buffer's, and each lease has one. */
static int check_unread_locked(const struct gb_content *c, struct gb_error *err) {
    if (atomic_load(&c->refs) > 1 + c->pin_count)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "others read the buffer's bytes; try again");
    return 0;
}

static int hold_locked(struct gb_lease *lease, struct gb_buffer_rec *ret_rec, struct gb_error *err) {
    struct gb_session *s = lease->session;
    struct gb_buffer *b;

    if ((lease->pin.write ? gb_session_changeable_locked(s, err) : gb_session_alive(s, err)) < 0 ||
        gb_buffer_hold_locked(s, &lease->buffer, ret_rec, &lease->content, err) < 0)
        return -1;
    if (!lease->content)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "\"%s\" has no bytes on either side yet: write it, or sync a side, first", lease->buffer.s);
    b = gb_buffer_find_locked(s, &lease->buffer, err);
    if (gb_adopted_check_locked(b, "ask that one for them, or copy them and map the copy", err) < 0)
        return -1;
    lease->buffer_id = ret_rec->id;
    lease->generation = ret_rec->generation;
    if ((lease->pin.write &&
         (gb_guard_check_unsealed_locked(b, err) < 0 || gb_guard_check_unshared_locked(b, err) < 0)) ||
        gb_kind_check_source(lease->content->kind, lease->content->pool, err) < 0)
        return -1;
    return gb_lease_enroll_locked(lease, err);
}

static struct gb_lease *lease_new(struct gb_core *core, const struct gb_lease_params *p, struct gb_lease_call *call) {
    struct gb_lease *lease = calloc(1, sizeof(*lease));

    if (!lease)
        return NULL;
    atomic_init(&lease->refs, 1);
    lease->core = core;
    lease->map = call;
    lease->call = &call->base;
    lease->holder = p->holder;
    atomic_fetch_add(&p->holder->refs, 1);
    lease->buffer = p->name;
    lease->pin = (struct gb_pin){
        .holder = p->holder->id, .pid = p->holder->pid, .uid = p->holder->uid, .write = p->write, .ttl_s = p->ttl_s};
    lease->wants_finished = p->finished;
    lease->max_age_s = p->max_age_s;
    lease->caller = p->caller;
    lease->ways = p->ways ? p->ways : (1u << GB_EXPORT_WAYS) - 1;
    lease->deadline_ns = gb_clock_ns() + p->wait_ms * GB_NS_PER_MS;
    lease->export = GB_EXPORT_INIT;
    call->lease.write = p->write;
    if (p->write)
        lease->transaction = calloc(1, sizeof(*lease->transaction));
    if (lease->transaction) {
        lease->transaction->lease = lease;
    } else if (p->write) {
        gb_lease_unref(lease);
        return NULL;
    }
    return lease;
}

/* NULL: err says why. */
static struct gb_lease *begin(struct gb_core *core, const struct gb_lease_params *p, struct gb_lease_call *call,
                              struct gb_error *err) {
    struct gb_lease *lease;
    int r = -1;

    if (gb_core_alive(core, err) < 0)
        return NULL;
    lease = lease_new(core, p, call);
    if (!lease) {
        gb_no_memory(err);
        return NULL;
    }
    lease->session = gb_session_use(core, &p->session, err);
    if (lease->session) {
        pthread_mutex_lock(&lease->session->lock);
        r = hold_locked(lease, &call->buffer, err);
        pthread_mutex_unlock(&lease->session->lock);
    }
    if (r == 0)
        return lease;
    gb_content_drop(lease->content, NULL, NULL);
    gb_lease_unref(lease);
    return NULL;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void fail(struct gb_lease *lease, const struct gb_error *error) {
    gb_core_report_error(lease->core, error);
    lease->error = *error;
    gb_lease_dispose(lease);
}

static int cut(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CANCELLED, "the connection or the token has ended, and its leases with it");
}

/* From here on it can end at any moment. */
static int publish_grant_locked(struct gb_lease *lease, struct gb_error *err) {
    uint64_t span_s = gb_lease_span_s(lease);

    if (lease->cut)
        return cut(err);
    if (gb_lease_revoked(lease)) /* since the last poll of all leases */
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "the token has expired or was revoked meanwhile");
    lease->step = GB_LEASE_LIVE;
    lease->granted = true;
    lease->way = lease->export.way;
    if (span_s > 0) {
        lease->expires_ns = gb_clock_ns() + span_s * GB_NS_PER_S;
        lease->expires_at_us = gb_wall_us() + (int64_t)span_s * 1000000;
    }
    lease->map->lease.expires_at_us = lease->expires_at_us;
    lease->export = GB_EXPORT_INIT; /* the call's */
    lease->map = NULL;
    lease->call = NULL;
    gb_notice_post_lease(lease, GB_NOTICE_LEASE_GRANTED);
    return 0;
}

static void grant(struct gb_lease *lease) {
    struct gb_core *core = lease->core;
    struct gb_session *s = gb_session_ref(lease->session);
    struct gb_lease_call *call = lease->map;
    struct gb_error err = GB_ERROR_INIT;
    int r;

    call->lease.id = lease->pin.id;
    call->lease.kind = lease->content->kind;
    if (lease->export.way == GB_EXPORT_POOL) {
        call->lease.pool_id = lease->content->pool->rec.id;
        call->lease.pool = lease->content->pool->rec.name;
    }
    call->lease.export = lease->export;
    atomic_fetch_add(&core->leases->live, 1);
    pthread_mutex_lock(&s->lock);
    r = publish_grant_locked(lease, &err);
    pthread_mutex_unlock(&s->lock);
    if (r == 0) {
        GB_COUNT(core, s, maps, 1);
        gb_core_changed(core);
        gb_call_finish(&call->base, NULL);
    } else {
        atomic_fetch_sub(&core->leases->live, 1);
        call->lease.export = GB_EXPORT_INIT;
        call->lease.id = 0;
        fail(lease, &err);
    }
    gb_session_unref(s);
}

/* --- for writing: a generation of its own ------------------------------------------------------------------------- */

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_lease *lease = gb_lease_of(transaction);
    enum gb_head head;

    (void)b;
    if (lease->cut)
        return cut(err);
    b = gb_lease_current_locked(lease, &head);
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    if (gb_guard_check_unsealed_locked(b, err) < 0 || gb_guard_check_unshared_locked(b, err) < 0 ||
        check_unread_locked(lease->content, err) < 0)
        return -1;
    gb_lease_describe(b, head, &transaction->rec);
    lease->content->mapping_for_write = true;
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_lease *lease = gb_lease_of(transaction);

    lease->content->mapping_for_write = false;
    gb_lease_apply_locked(transaction, b);
    lease->generation = transaction->rec.generation;
    gb_buffer_copy_locked(b, &lease->map->buffer);
}

static void rollback_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    (void)b;
    gb_lease_of(transaction)->content->mapping_for_write = false;
}

static void committed(struct gb_transaction *transaction) {
    struct gb_lease *lease = gb_lease_of(transaction);
    struct gb_error error = transaction->error;

    if (error.code == GB_OK)
        grant(lease);
    else
        fail(lease, &error);
}

static void proceed(struct gb_lease *lease) {
    static const struct gb_transaction how = {.validate_locked = validate_locked,
                                              .publish_locked = publish_locked,
                                              .rollback_locked = rollback_locked,
                                              .end = committed};

    if (lease->pin.write)
        gb_lease_commit(lease, &how);
    else
        grant(lease);
}

/* --- until the bytes are complete --------------------------------------------------------------------------------- */

/* An event that the importer can wait for, on the device. */
static int share_event(struct gb_lease *lease, struct gb_error *err) {
    struct gb_content *c = lease->content;
    struct gb_backend *be = lease->core->backend;
    struct gb_lease_grant *g = &lease->map->lease;
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);

    if (!part && gb_core_stream_part_make(lease->session->standard, c->device->index, &part, err) < 0)
        return -1;
    if (gb_event_create_shared(be, c->device->index, &lease->event, err) < 0)
        return -1;
    if (gb_stream_wait(be, part, c->ready->event, err) < 0 || gb_event_record(be, lease->event, part, err) < 0 ||
        gb_event_export(be, lease->event, g->event, err) < 0)
        return -1;
    g->has_event = true;
    return 0;
}

/* 1: the bytes are complete, or the importer has an event for that; 0: not yet; -1. */
static int complete(struct gb_lease *lease, struct gb_error *err) {
    struct gb_content *c = lease->content;
    bool done = true;

    if (c->ready && !lease->map->lease.has_event &&
        gb_event_query(lease->core->backend, c->ready->event, &done, err) < 0)
        return -1;
    return done;
}

/* Returns 1 if the lease can be granted; 0: not yet, and *why is the error if its time ends now; -1. */
static int ask(struct gb_lease *lease, struct gb_error *why, struct gb_error *err) {
    int r = complete(lease, err);

    if (r == 0)
        gb_error_set(why, GB_ERR_TIMED_OUT, "work is queued on the bytes of \"%s\" and has not ended in time",
                     lease->buffer.s);
    pthread_mutex_lock(&lease->session->lock);
    if (r >= 0 && lease->cut)
        r = cut(err);
    if (r > 0 && lease->pin.write)
        r = check_unread_locked(lease->content, why) == 0;
    pthread_mutex_unlock(&lease->session->lock);
    return r;
}

/* Returns true if the lease waits no longer. */
static bool look(struct gb_lease *lease) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_error err = GB_ERROR_INIT;
    int r = ask(lease, &why, &err);

    if (r == 0 && gb_clock_ns() >= lease->deadline_ns) {
        err = why;
        r = -1;
    }
    if (r < 0)
        fail(lease, &err);
    else if (r > 0)
        proceed(lease);
    return r != 0;
}

bool gb_lease_again(struct gb_core_device *device) {
    struct gb_lease *list = device->mapping;
    struct gb_lease *next;

    device->mapping = NULL;
    for (; list; list = next) {
        next = list->next_waiting;
        if (look(list))
            continue;
        list->next_waiting = device->mapping;
        device->mapping = list;
    }
    return device->mapping != NULL;
}

/* --- the ways ----------------------------------------------------------------------------------------------------- */

static void pass_over(struct gb_lease_grant *g, enum gb_export_way way, const char *why) {
    unsigned n = g->passed_count++;

    g->passed[n].way = way;
    snprintf(g->passed[n].reason, sizeof(g->passed[n].reason), "%s", why);
}

/* native: has what CUDA says of one of the ways. */
static int no_way(const struct gb_lease *lease, const struct gb_error *native, struct gb_error *err) {
    const struct gb_lease_grant *g = &lease->map->lease;
    enum gb_kind kind = lease->content->kind;
    char why[sizeof(err->detail)] = "";
    size_t n = 0;
    unsigned i;

    for (i = 0; i < g->passed_count && n < sizeof(why); i++)
        n += (size_t)snprintf(why + n, sizeof(why) - n, "%s%s: %s", i > 0 ? "; " : "",
                              gb_export_way_name(g->passed[i].way), g->passed[i].reason);
    if (native->native_domain[0] != '\0')
        gb_error_native_text(err, native->native_domain, native->native_code, native->native_name, native->call,
                             native->native_text);
    if (lease->pin.ttl_s > 0)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "\"%s\" cannot be exported: %s. Map it instead: POST .../map over the UNIX socket",
                            lease->buffer.s, why);
    if (kind != GB_KIND_SHARED && kind != GB_KIND_PINNED && kind != GB_KIND_PAGEABLE)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "\"%s\" is of kind %s and cannot be mapped: upload it with kind=shared. %s",
                            lease->buffer.s, gb_kind_name(kind), why);
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "\"%s\" cannot be mapped: %s", lease->buffer.s, why);
}

static int export(struct gb_lease *lease, enum gb_export_way way, struct gb_error *err) {
    struct gb_content *c = lease->content;
    struct gb_location place = gb_content_location(c, 0);
    bool write = lease->pin.write;

    if (way == GB_EXPORT_POOL && c->kind == GB_KIND_DEVICE)
        return gb_core_pool_export(c->pool, &place, c->bytes, write, &lease->export, err);
    return gb_mem_export(lease->core->backend, &place, c->bytes, NULL, way, write, &lease->export, err);
}

/* Tries the ways in order, and keeps the reason of each that failed. */
static int find_way(struct gb_lease *lease, struct gb_error *err) {
    struct gb_content *c = lease->content;
    struct gb_error native = GB_ERROR_INIT;
    enum gb_export_way way;

    for (way = 0; way < GB_EXPORT_WAYS; way++) {
        struct gb_error why = GB_ERROR_INIT;

        if (!(lease->ways & 1u << way))
            continue;
        if (!c->ptr)
            gb_error_set(&why, GB_ERR_UNSUPPORTED, "the buffer has no bytes");
        else if (export(lease, way, &why) == 0)
            return 0;
        if (why.code != GB_ERR_UNSUPPORTED) {
            *err = why;
            return -1;
        }
        if (native.native_domain[0] == '\0')
            native = why;
        pass_over(&lease->map->lease, way, why.detail);
    }
    return no_way(lease, &native, err);
}

/* On the lane. */
static void make(struct gb_task *task) {
    struct gb_lease *lease = (struct gb_lease *)task;
    struct gb_core_device *device = lease->content->device;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_error err = GB_ERROR_INIT;

    if (gb_content_materialize(lease->content, &err) < 0 || find_way(lease, &err) < 0) {
        fail(lease, &err);
        return;
    }
    /* If no event can be made or given, the lane waits for the bytes here. */
    if (complete(lease, &err) == 0 && lease->pin.ttl_s == 0 && lease->export.way != GB_EXPORT_MEMFD &&
        share_event(lease, &why) < 0)
        gb_core_report_error(lease->core, &why);
    if (lease->wants_finished)
        gb_lease_share_finished(lease);
    if (look(lease))
        return;
    lease->next_waiting = device->mapping;
    device->mapping = lease;
}

/* Descriptors that the client did not take are closed. */
static void result_done(struct gb_call *call) {
    struct gb_lease_call *c = gb_container_of(call, struct gb_lease_call, base);

    gb_export_done(&c->lease.export);
    gb_buffer_rec_done(&c->buffer);
}

void gb_lease_map(struct gb_core *core, const struct gb_lease_params *params, struct gb_lease_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease *lease;

    call->lease.export = GB_EXPORT_INIT;
    call->base.free_result = result_done;
    lease = begin(core, params, call, &err);
    if (!lease) {
        gb_call_finish(&call->base, &err);
        return;
    }
    lease->task.run = make;
    gb_lane_post(&lease->content->device->lane, &lease->task);
}

int gb_lease_take_fd(struct gb_lease_call *call) {
    int fd = call->lease.export.fd;

    call->lease.export.fd = -1;
    return fd;
}
