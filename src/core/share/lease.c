/* Leases: mappings of buffers by other processes, and their holders. A lease pins its content, and ends with its holder
 * at the latest. A lease for writing commits a new generation at its end. map.c makes leases; handlers, the housekeeper
 * and the lanes end them. */
#include "core/share/lease.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/public/access.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/share/adopt.h"

static void lease_leave(struct gb_lease *lease, bool commit);
static bool lease_withdraw_locked(struct gb_lease *lease);

/* --- one lease ---------------------------------------------------------------------------------------------------- */

static struct gb_lease *lease_ref(struct gb_lease *lease) {
    atomic_fetch_add(&lease->refs, 1);
    return lease;
}

void gb_lease_unref(struct gb_lease *lease) {
    if (!lease || atomic_fetch_sub(&lease->refs, 1) != 1)
        return;
    gb_holder_unref(lease->holder);
    if (lease->transaction)
        gb_transaction_done(&lease->transaction->transaction);
    free(lease->transaction);
    gb_session_unref(lease->session);
    free(lease);
}

static bool has(const struct gb_buffer *b, const struct gb_content *c) {
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        if (gb_buffer_content_at(b, i) == c)
            return true;
    }
    return false;
}

/* The lease's buffer, or NULL if that has another content. The session's lock is held. */
static struct gb_buffer *lease_buffer_locked(const struct gb_lease *lease) {
    struct gb_buffer *b = gb_map_get(&lease->session->buffers, lease->buffer.s);

    return b && b->live && b->id == lease->buffer_id && has(b, lease->content) ? b : NULL;
}

/* Makes the last step. Returns true if a new generation is to be committed. The session's lock is held. */
static bool lease_decide_locked(struct gb_lease *lease) {
    enum gb_head head;
    bool commit = lease->pin.write && !atomic_load(&lease->core->closing) && gb_lease_current_locked(lease, &head);

    lease->step = commit ? GB_LEASE_LEAVING : GB_LEASE_OVER;
    return commit;
}

/* --- lease finish ------------------------------------------------------------------------------------------------- */

/* The importer's own event. A lease that has one ends when the event is complete, so the importer need not wait for its
 * work before it unmaps.
 *
 * No stream of the device waits for the event, because the importer may never complete it. The lane polls it, for a
 * limited time. */

void gb_lease_share_finished(struct gb_lease *lease) {
    struct gb_lease_grant *g = &lease->map->lease;
    struct gb_backend *be = lease->core->backend;
    struct gb_error why = GB_ERROR_INIT;

    if (lease->export.way == GB_EXPORT_MEMFD)
        gb_error_set(&why, GB_ERR_UNSUPPORTED, "no event stands for what the CPU does: unmap when it is done");
    else if (gb_event_create_shared(be, lease->content->device->index, &lease->finished, &why) == 0 &&
             gb_event_export(be, lease->finished, g->finished, &why) == 0)
        g->has_finished = true;
    if (g->has_finished)
        return;
    if (why.code != GB_ERR_UNSUPPORTED)
        gb_core_report_error(lease->core, &why);
    snprintf(g->finished_missing, sizeof(g->finished_missing), "%s", why.detail);
    gb_event_destroy(be, lease->finished);
    lease->finished = NULL;
}

/* Returns true if the process has ended, and so its work; its event may never complete. */
static bool process_gone(pid_t pid) {
    return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

/* Returns 1 if the event is complete, or never will be; 0: not yet; -1: its time has ended. */
static int poll_finished(struct gb_lease *lease) {
    bool done = false;

    if (atomic_load(&lease->core->closing) || gb_event_query(lease->core->backend, lease->finished, &done, NULL) < 0 ||
        done || process_gone(lease->holder->pid))
        return 1;
    return gb_clock_ns() < lease->deadline_ns ? 0 : -1;
}

static void end(struct gb_lease *lease, bool in_time) {
    bool commit;

    if (!in_time)
        gb_error_set(&lease->error, GB_ERR_TIMED_OUT,
                     "the lease has ended, and its process's event was not complete after %d seconds",
                     GB_LEASE_FINISH_S);
    pthread_mutex_lock(&lease->session->lock);
    if (!in_time && lease->pin.write)
        lease->content->tainted = true;
    commit = lease_decide_locked(lease);
    pthread_mutex_unlock(&lease->session->lock);
    lease_leave(lease, commit);
}

bool gb_leases_finish(struct gb_core_device *device) {
    struct gb_lease *list = device->finishing;
    struct gb_lease *next;

    device->finishing = NULL;
    for (; list; list = next) {
        int r = poll_finished(list);

        next = list->next_waiting;
        if (r != 0) {
            end(list, r > 0);
            continue;
        }
        list->next_waiting = device->finishing;
        device->finishing = list;
    }
    return device->finishing != NULL;
}

/* Polls on the lane, after each task. */
static void begin(struct gb_task *task) {
    struct gb_lease *lease = (struct gb_lease *)task;
    struct gb_core_device *device = lease->content->device;

    lease->next_waiting = device->finishing;
    device->finishing = lease;
}

/* Waits for it, then decides and leaves. Without locks. */
static void lease_finish(struct gb_lease *lease) {
    lease->deadline_ns = gb_clock_ns() + GB_LEASE_FINISH_S * GB_NS_PER_S;
    lease->task.run = begin;
    gb_lane_post(&lease->content->device->lane, &lease->task);
}

/* --- lease end ---------------------------------------------------------------------------------------------------- */

/* The end of a lease: written bytes get a generation, the memory is freed after its last user. */

/* --- a new generation --------------------------------------------------------------------------------------------- */

void gb_lease_commit(struct gb_lease *lease, const struct gb_transaction *how) {
    lease->transaction->decided = false;
    gb_transaction_done(&lease->transaction->transaction);
    lease->transaction->transaction = *how;
    lease->transaction->transaction.session = lease->session;
    lease->transaction->transaction.name = lease->buffer;
    gb_transaction_start(&lease->transaction->transaction);
}

void gb_lease_describe(const struct gb_buffer *b, enum gb_head head, struct gb_buffer_rec *ret) {
    gb_buffer_copy_locked(b, ret);
    ret->head = head;
    ret->generation++;
    if (ret->dtype == GB_DTYPE_TENSORS)
        ret->layout = ret->generation; /* the process may have written the table itself */
    ret->version++;
    ret->has_crc32c = false;
    ret->crc32c = 0;
    ret->updated_at_us = gb_wall_us();
}

void gb_lease_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    /* If the device died while the database was busy, the bytes stay lost. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_lease *lease = gb_lease_of(transaction);
    enum gb_head head;

    (void)b;
    b = gb_lease_current_locked(lease, &head);
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer has other bytes by now");
    gb_lease_describe(b, head, &transaction->rec);
    lease->transaction->decided = true;
    return 0;
}

static void left(struct gb_transaction *transaction) {
    struct gb_lease *lease = gb_lease_of(transaction);
    struct gb_session *s = lease->session;
    struct gb_error none = GB_ERROR_INIT;

    /* The database write failed; apply the change in memory anyway, because a restart loses the content. */
    if (transaction->error.code != GB_OK && lease->transaction->decided) {
        lease->error = transaction->error;
        pthread_mutex_lock(&s->lock);
        if (validate_locked(transaction, NULL, &none) == 0)
            gb_lease_apply_locked(transaction, lease_buffer_locked(lease));
        if (lease_buffer_locked(lease))
            gb_buffer_note_behind_locked(s, lease_buffer_locked(lease));
        pthread_mutex_unlock(&s->lock);
    }
    gb_lease_dispose(lease);
}

/* --- over --------------------------------------------------------------------------------------------------------- */

static void gone(void *arg) {
    struct gb_lease *lease = arg;
    struct gb_call *call = lease->call;
    struct gb_error error = lease->error;

    gb_session_touch(lease->session); /* until now it was in use */
    gb_core_changed(lease->core);
    gb_lease_unref(lease);
    if (call)
        gb_call_finish(call, error.code == GB_OK ? NULL : &error);
}

static void drop(struct gb_lease *lease) {
    struct gb_content *c = lease->content;

    lease->content = NULL;
    if (lease->call) {
        gb_content_drop(c, gone, lease);
        return;
    }
    gb_content_drop_later(c);
    gone(lease);
}

/* On the lane. */
static void drop_event(struct gb_task *task) {
    struct gb_lease *lease = (struct gb_lease *)task;

    gb_event_destroy(lease->core->backend, lease->event);
    gb_event_destroy(lease->core->backend, lease->finished);
    drop(lease);
}

void gb_lease_dispose(struct gb_lease *lease) {
    struct gb_session *s = lease->session;
    struct gb_lane *lane = &lease->content->device->lane;

    gb_export_done(&lease->export);
    pthread_mutex_lock(&s->lock);
    if (lease_withdraw_locked(lease))
        lease->content = NULL;
    pthread_mutex_unlock(&s->lock);
    if (lease->granted) {
        atomic_fetch_sub(&lease->core->leases->live, 1);
        GB_COUNT(lease->core, s, unmaps, 1);
        gb_notice_post_lease(lease, GB_NOTICE_LEASE_ENDED);
    }
    if (!lease->event && !lease->finished) {
        drop(lease);
        return;
    }
    lease->task.run = drop_event;
    gb_lane_post(lane, &lease->task);
}

/* --- asking for it ------------------------------------------------------------------------------------------------ */

/* Begins the end of a live lease. Returns true if the caller must call leave_ended. The session's lock is held. */
static bool close_locked(struct gb_lease *lease, bool outside, bool *ret_commit) {
    if (lease->step == GB_LEASE_MAKING)
        lease->cut = true;
    if (lease->step != GB_LEASE_LIVE)
        return false;
    if (outside && lease->pin.write) /* the record has this from the withdrawal on */
        lease->content->tainted = true;
    if (lease->finished && !atomic_load(&lease->core->closing))
        lease->step = GB_LEASE_FINISHING;
    else
        *ret_commit = lease_decide_locked(lease);
    return true;
}

static void lease_leave(struct gb_lease *lease, bool commit) {
    static const struct gb_transaction how = {
        .upkeep = true, .validate_locked = validate_locked, .publish_locked = gb_lease_apply_locked, .end = left};

    if (commit)
        gb_lease_commit(lease, &how);
    else
        gb_lease_dispose(lease);
}

/* Only the lane continues the end of a lease that is finishing. */
static void leave_ended(struct gb_lease *lease, bool commit) {
    if (lease->step == GB_LEASE_FINISHING)
        lease_finish(lease);
    else
        lease_leave(lease, commit);
}

/* Ends the lease as soon as possible; outside as in gb_lease_end. Without locks. */
static void lease_close(struct gb_lease *lease, bool outside) {
    bool commit = false;
    bool go;

    pthread_mutex_lock(&lease->session->lock);
    go = close_locked(lease, outside, &commit);
    pthread_mutex_unlock(&lease->session->lock);
    if (go)
        leave_ended(lease, commit);
}

/* Sets LEASE_NOT_FOUND. Returns -1. */
static int lease_not_found(int64_t id, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_LEASE_NOT_FOUND, "there is no lease %lld, or it has ended", (long long)id);
}

struct gb_lease *gb_lease_find(struct gb_core *core, int64_t id, struct gb_error *err) {
    struct gb_lease *lease;

    pthread_mutex_lock(&core->leases->lock);
    lease = id > 0 ? gb_idlist_after(&core->leases->by_id, id - 1, NULL) : NULL;
    if (lease && lease->pin.id == id)
        lease_ref(lease);
    else
        lease = NULL;
    pthread_mutex_unlock(&core->leases->lock);
    if (!lease)
        lease_not_found(id, err);
    return lease;
}

static int end_locked(struct gb_lease *lease, const struct gb_holder *holder, bool outside, struct gb_call *call,
                      bool *ret_commit, struct gb_error *err) {
    if (lease->step != GB_LEASE_LIVE)
        return lease_not_found(lease->pin.id, err);
    if (holder && lease->holder != holder)
        return gb_error_set(err, GB_ERR_MAP_NOT_PERMITTED,
                            "lease %lld belongs to another connection: that one ends it, or a token of scope admin",
                            (long long)lease->pin.id);
    lease->call = call;
    close_locked(lease, outside, ret_commit);
    return 0;
}

void gb_lease_end(struct gb_core *core, int64_t id, struct gb_holder *holder, bool outside, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease *lease = gb_lease_find(core, id, &err);
    bool commit = false;
    int r = -1;

    if (lease) {
        pthread_mutex_lock(&lease->session->lock);
        r = end_locked(lease, holder, outside, call, &commit, &err);
        pthread_mutex_unlock(&lease->session->lock);
    }
    if (r == 0)
        leave_ended(lease, commit);
    else
        gb_call_finish(call, &err);
    gb_lease_unref(lease);
}

/* --- lease -------------------------------------------------------------------------------------------------------- */

/* Leases in memory: holders, the table, and what a content has of them. */

/* --- holders ------------------------------------------------------------------------------------------------------ */

void gb_holder_ref(struct gb_holder *holder) {
    atomic_fetch_add(&holder->refs, 1);
}

void gb_holder_unref(struct gb_holder *holder) {
    if (holder && atomic_fetch_sub(&holder->refs, 1) == 1)
        free(holder);
}

int gb_holder_new(struct gb_core *core, pid_t pid, uid_t uid, gid_t gid, struct gb_holder **ret, struct gb_error *err) {
    struct gb_holder *holder = calloc(1, sizeof(*holder));

    if (!holder)
        return gb_no_memory(err);
    atomic_init(&holder->refs, 1);
    holder->core = core;
    holder->id = atomic_fetch_add(&core->leases->last_holder, 1) + 1;
    holder->pid = pid;
    holder->uid = uid;
    holder->gid = gid;
    TAILQ_INIT(&holder->leases);
    TAILQ_INIT(&holder->adoptions);
    *ret = holder;
    return 0;
}

uint64_t gb_holder_id(const struct gb_holder *holder) {
    return holder->id;
}

bool gb_holder_maps(struct gb_holder *holder) {
    struct gb_leases *table = holder->core->leases;
    bool maps;

    pthread_mutex_lock(&table->lock);
    maps = holder->count > 0 || holder->adopted > 0;
    pthread_mutex_unlock(&table->lock);
    return maps;
}

/* A lease that the holder's end has not reached yet, with a reference. */
static struct gb_lease *next_of(struct gb_holder *holder) {
    struct gb_leases *table = holder->core->leases;
    struct gb_lease *lease;

    pthread_mutex_lock(&table->lock);
    holder->ended = true;
    lease = TAILQ_FIRST(&holder->leases);
    if (lease) {
        TAILQ_REMOVE(&holder->leases, lease, of_holder);
        lease->listed = false;
        lease_ref(lease);
    }
    pthread_mutex_unlock(&table->lock);
    return lease;
}

void gb_holder_end(struct gb_holder *holder) {
    struct gb_lease *lease;

    if (!holder)
        return;
    while ((lease = next_of(holder))) {
        lease_close(lease, false);
        gb_lease_unref(lease);
    }
    gb_adoptions_end(holder);
    gb_holder_unref(holder);
}

struct gb_buffer *gb_lease_current_locked(const struct gb_lease *lease, enum gb_head *ret_head) {
    struct gb_buffer *b = lease_buffer_locked(lease);
    enum gb_side side;

    if (!b || b->rec.state != GB_BUFFER_READY)
        return NULL;
    *ret_head = b->rec.head;
    if (!b->rec.mirrored)
        return b;
    side = b->sides[GB_SIDE_HOST] == lease->content ? GB_SIDE_HOST : GB_SIDE_DEVICE;
    *ret_head = gb_mirror_move(b->rec.head, gb_mirror_write(side, false)).next;
    return *ret_head == b->rec.head || b->rec.head == GB_HEAD_SYNCED ? b : NULL;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

struct gb_leases *gb_leases_new(void) {
    struct gb_leases *leases = calloc(1, sizeof(*leases));

    if (!leases)
        return NULL;
    gb_mutex_init(&leases->lock);
    leases->last_id = gb_wall_us();
    return leases;
}

void gb_leases_free(struct gb_leases *leases) {
    if (!leases)
        return;
    gb_idlist_done(&leases->by_id);
    pthread_mutex_destroy(&leases->lock);
    free(leases);
}

void gb_leases_end(struct gb_core *core) {
    struct gb_lease *lease;
    int64_t id = 0;

    do {
        pthread_mutex_lock(&core->leases->lock);
        lease = gb_idlist_after(&core->leases->by_id, id, &id);
        if (lease)
            lease_ref(lease);
        pthread_mutex_unlock(&core->leases->lock);
        if (lease)
            lease_close(lease, false);
        gb_lease_unref(lease);
    } while (lease);
}

/* The table's lock is held. */
static int enter(struct gb_leases *table, struct gb_lease *lease, struct gb_error *err) {
    const struct gb_core_config *config = &lease->core->config;
    struct gb_holder *holder = lease->holder;
    uint64_t max = config->leases_max ? config->leases_max : GB_LEASES_MAX;
    uint64_t mine = config->holder_leases_max ? config->holder_leases_max : GB_HOLDER_LEASES_MAX;

    if (holder->ended)
        return gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended, and its leases with it");
    if (holder->count >= mine)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "this connection has %llu leases, the permitted number; end one first",
                            (unsigned long long)holder->count);
    if (table->by_id.count >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "there are %zu leases, the permitted number",
                            table->by_id.count);
    if (lease->pin.ttl_s > 0 && table->exports >= GB_EXPORTS_MAX)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "there are %llu exports, the permitted number; end one, or wait until one's time is over",
                            (unsigned long long)table->exports);
    if (gb_idlist_put(&table->by_id, table->last_id + 1, lease) < 0)
        return gb_no_memory(err);
    lease->pin.id = ++table->last_id;
    TAILQ_INSERT_TAIL(&holder->leases, lease, of_holder);
    lease->listed = true;
    holder->count++;
    table->exports += lease->pin.ttl_s > 0;
    table->timed += gb_lease_span_s(lease) > 0;
    return 0;
}

int gb_lease_enroll_locked(struct gb_lease *lease, struct gb_error *err) {
    struct gb_leases *table = lease->core->leases;
    struct gb_content *c = lease->content;
    int r;

    pthread_mutex_lock(&table->lock);
    r = enter(table, lease, err);
    pthread_mutex_unlock(&table->lock);
    if (r < 0)
        return -1;
    lease->since_us = gb_wall_us();
    gb_content_pin_locked(c, &lease->pin);
    lease->session->leases++;
    if (c->of)
        gb_guard_count_locked(c->of);
    return 0;
}

static void leave(struct gb_leases *table, struct gb_lease *lease) {
    pthread_mutex_lock(&table->lock);
    gb_idlist_take(&table->by_id, lease->pin.id);
    if (lease->listed)
        TAILQ_REMOVE(&lease->holder->leases, lease, of_holder);
    lease->listed = false;
    lease->holder->count--;
    table->exports -= lease->pin.ttl_s > 0;
    table->timed -= gb_lease_span_s(lease) > 0;
    pthread_mutex_unlock(&table->lock);
}

/* Drops a reference that is not the last. */
static bool drop_one(struct gb_content *c) {
    unsigned n = atomic_load(&c->refs);

    while (n > 1 && !atomic_compare_exchange_weak(&c->refs, &n, n - 1))
        ;
    return n > 1;
}

/* Takes an ended lease out of the table and unpins the content. Returns true if the lease's reference to the content
 * was dropped. False: it was the last one, which the caller drops. The session's lock is held. */
static bool lease_withdraw_locked(struct gb_lease *lease) {
    struct gb_content *c = lease->content;

    leave(lease->core->leases, lease);
    gb_content_unpin_locked(c, &lease->pin);
    lease->session->leases--;
    lease->step = GB_LEASE_OVER;
    if (c->of)
        gb_guard_count_locked(c->of);
    /* At once: a count of references under this lock then equals the number of users. */
    return drop_one(c);
}

/* --- notices ------------------------------------------------------------------------------------------------------ */

void gb_notice_post_lease(const struct gb_lease *lease, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(lease->session, type);

    n.buffer = lease->buffer;
    n.lease = lease->pin.id;
    snprintf(n.detail, sizeof(n.detail), "%s", lease->pin.write ? "for writing" : "for reading");
    gb_notice_post(lease->core, &n);
}

/* --- lease export ------------------------------------------------------------------------------------------------- */

/* Leases without a connection: any process that has the handle maps the memory, for a time. And the leases that end
 * without a request. */

void gb_lease_export(struct gb_core *core, const struct gb_export_params *params, struct gb_lease_call *call) {
    struct gb_lease_params map = {.session = params->session,
                                  .name = params->name,
                                  .write = params->write,
                                  .ways = 1u << GB_EXPORT_LEGACY,
                                  .wait_ms = params->wait_ms,
                                  .ttl_s = params->ttl_s,
                                  .caller = params->caller};
    struct gb_error err = GB_ERROR_INIT;

    if (gb_holder_new(core, 0, params->uid, params->gid, &map.holder, &err) < 0) {
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_lease_map(core, &map, call);
    gb_holder_unref(map.holder); /* its holder has no connection: the lease has a time of its own */
}

static bool due(struct gb_lease *lease, uint64_t now_ns) {
    bool is;

    if (gb_lease_span_s(lease) == 0)
        return false;
    pthread_mutex_lock(&lease->session->lock);
    is = lease->step == GB_LEASE_LIVE && lease->expires_ns <= now_ns;
    pthread_mutex_unlock(&lease->session->lock);
    return is;
}

/* The next lease, with a reference, or NULL. timed: only leases that have an end of their own. */
static struct gb_lease *next(struct gb_leases *table, bool timed, int64_t *id) {
    struct gb_lease *lease = NULL;

    pthread_mutex_lock(&table->lock);
    if (!timed || table->timed > 0)
        lease = gb_idlist_after(&table->by_id, *id, id);
    if (lease)
        lease_ref(lease);
    pthread_mutex_unlock(&table->lock);
    return lease;
}

void gb_leases_expire(struct gb_core *core) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_lease *lease;
    int64_t id = 0;

    while ((lease = next(core->leases, true, &id))) {
        if (due(lease, now_ns))
            lease_close(lease, true);
        gb_lease_unref(lease);
    }
}

bool gb_lease_revoked(const struct gb_lease *lease) {
    struct gb_core *core = lease->core;

    return lease->caller > 0 && gb_tokens_required(core) && !gb_tokens_in_force(core, lease->caller);
}

void gb_leases_recheck(struct gb_core *core) {
    struct gb_lease *lease;
    int64_t id = 0;

    while ((lease = next(core->leases, false, &id))) {
        if (gb_lease_revoked(lease))
            lease_close(lease, true);
        gb_lease_unref(lease);
    }
}

/* --- lease view --------------------------------------------------------------------------------------------------- */

/* Leases as clients see them. */

static void view_of(const struct gb_lease *lease, enum gb_lease_state state, struct gb_lease_view *ret) {
    *ret = (struct gb_lease_view){.id = lease->pin.id,
                                  .session = *gb_session_name(lease->session),
                                  .buffer = lease->buffer,
                                  .write = lease->pin.write,
                                  .way = lease->way,
                                  .pid = lease->holder->pid,
                                  .uid = lease->holder->uid,
                                  .gid = lease->holder->gid,
                                  .since_us = lease->since_us,
                                  .exported = lease->pin.ttl_s > 0,
                                  .expires_at_us = lease->expires_at_us,
                                  .generation = lease->generation,
                                  .bytes = lease->content->bytes,
                                  .state = state};
}

static bool ending(const struct gb_lease *lease) {
    return lease->step == GB_LEASE_FINISHING || lease->step == GB_LEASE_LEAVING;
}

unsigned gb_lease_holders(struct gb_core *core, const struct gb_locator *at, struct gb_lease_view *ret, unsigned max) {
    struct gb_session *s = gb_session_find(core, &at->session, NULL);
    struct gb_buffer *b;
    unsigned n = 0;
    int i;

    if (!s)
        return 0;
    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, at->name.s);
    for (i = 0; i < GB_BUFFER_CONTENTS && b && b->live; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);
        const struct gb_pin *pin;

        if (!c)
            continue;
        TAILQ_FOREACH(pin, &c->pins, link) {
            const struct gb_lease *lease = gb_lease_of_pin(pin);

            if (n < max)
                view_of(lease, ending(lease) ? GB_LEASE_ENDING : GB_LEASE_PRESENT, &ret[n++]);
        }
    }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return n;
}

static enum gb_lease_state state_locked(const struct gb_lease *lease) {
    const struct gb_buffer *b = gb_map_get(&lease->session->buffers, lease->buffer.s);
    enum gb_head head;

    if (ending(lease))
        return GB_LEASE_ENDING;
    if (gb_lease_current_locked(lease, &head))
        return GB_LEASE_PRESENT;
    if (!b || !b->live || b->id != lease->buffer_id)
        return GB_LEASE_DELETED;
    return b->rec.state == GB_BUFFER_LOST ? GB_LEASE_LOST : GB_LEASE_REPLACED;
}

/* False: it was not granted yet, or it has ended. */
static bool look(struct gb_lease *lease, struct gb_lease_view *ret) {
    bool seen;

    pthread_mutex_lock(&lease->session->lock);
    seen = lease->step == GB_LEASE_LIVE || ending(lease);
    if (seen)
        view_of(lease, state_locked(lease), ret);
    pthread_mutex_unlock(&lease->session->lock);
    return seen;
}

int gb_lease_get(struct gb_core *core, int64_t id, struct gb_lease_view *ret, struct gb_error *err) {
    struct gb_lease *lease = gb_lease_find(core, id, err);
    bool seen = lease && look(lease, ret);

    if (lease && !seen)
        lease_not_found(id, err);
    gb_lease_unref(lease);
    return seen ? 0 : -1;
}

/* The next lease that can be seen. */
static bool after(struct gb_core *core, int64_t id, struct gb_lease_view *ret) {
    struct gb_lease *lease;
    bool seen = false;

    while (!seen) {
        pthread_mutex_lock(&core->leases->lock);
        lease = gb_idlist_after(&core->leases->by_id, id, &id);
        if (lease)
            lease_ref(lease);
        pthread_mutex_unlock(&core->leases->lock);
        if (!lease)
            return false;
        seen = look(lease, ret);
        gb_lease_unref(lease);
    }
    return true;
}

int gb_lease_list(struct gb_core *core, struct gb_page *page,
                  int (*visit)(void *, const struct gb_lease_view *, struct gb_error *), void *arg,
                  struct gb_error *err) {
    struct gb_lease_view view;
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    for (n = 0; n < page->limit && r == 0 && after(core, id, &view); n++) {
        id = view.id;
        r = visit(arg, &view, err);
    }
    if (r == 0)
        page->more = after(core, id, &view);
    return r;
}

const char *gb_lease_state_name(enum gb_lease_state state) {
    static const char *const names[] = {"present", "replaced", "deleted", "lost", "ending"};

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}
