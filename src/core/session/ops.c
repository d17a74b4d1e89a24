/* Sessions as clients see them: made, changed, listed, set aside, given to another node, deleted. Changes of one
 * session take turns. Handlers call this, and the housekeeper for expiry. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/access/keys.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"
#include "core/transfer/multipart.h"

/* --- sessions ----------------------------------------------------------------------------------------------------- */

enum what { PATCHES, REMOVES, RAISES, SETS_ASIDE, ARRIVES, GIVES, REGAINS, HOLDS };

/* One call that changes a session. */
struct session_op {
    struct gb_op base; /* first */
    struct gb_fifo_waiter waiter;
    struct gb_session_view *ret; /* part of the call; NULL: a deletion has no result */
    struct gb_name name;         /* the name in the request */
    struct gb_session_params params;
    struct gb_session_check check;
    enum what what;
    uint64_t freeze; /* of those that give and regain */
    bool unchanged;  /* there is nothing to do */
    bool durable;    /* removes: buffers with bytes on disk go with it */
    struct gb_session_rec rec;
    struct gb_task task; /* removes: goes through the lanes, behind the frees */
    int lane;
    bool
        everywhere; /* it had pools or streams, so it may have memory on devices where its default stream has no part */
};

static void op_end(struct session_op *op, const struct gb_error *error) {
    gb_core_changed(op->base.session->core);
    gb_session_rec_done(&op->rec);
    gb_text_unref(op->params.labels);
    gb_text_unref(op->params.holders);
    gb_op_end(&op->base, error);
}

static void merge_params(const struct gb_session_params *p, struct gb_session_rec *rec) {
#define TAKE(has, type, at)                                                                                            \
    if (p->has)                                                                                                        \
        TAKE_##type(rec->at, p->at);
#define TAKE_limit(to, from) to = from
#define TAKE_u64(to, from) to = from
#define TAKE_durability(to, from) to = from
#define TAKE_spill(to, from) to = from
#define TAKE_priority(to, from) to = from
#define TAKE_phrase(to, from) to = from
#define TAKE_labels(to, from) gb_text_set(&to, from)
#define MERGE_PLACE(name, type)
#define MERGE_FLEET(name, type)
#define MERGE_KEPT(name, type)
#define MERGE_SET(name, type) TAKE(has_##name, type, name)
#define GB_SESSION_FIELD(name, type, how, ...) MERGE_##how(name, type)
#define GB_SESSION_QUOTA(name, type, ...) TAKE(has_quota_##name, type, quota.name)
#include "model/session.def"
    if (p->has_replicas)
        rec->replicas = p->replicas;
}

/* --- registered ones ---------------------------------------------------------------------------------------------- */

void gb_core_set_gone(struct gb_core *core,
                      void (*gone)(void *arg, const struct gb_name *name, const char *claim, bool made), void *arg) {
    pthread_mutex_lock(&core->gone_lock);
    core->gone = gone;
    core->gone_arg = arg;
    pthread_mutex_unlock(&core->gone_lock);
}

static void tell_gone(struct gb_core *core, const struct gb_session_rec *rec, bool made) {
    if (rec->fleet_epoch == 0)
        return;
    pthread_mutex_lock(&core->gone_lock);
    if (core->gone)
        core->gone(core->gone_arg, &rec->name, rec->fleet_claim, made);
    pthread_mutex_unlock(&core->gone_lock);
}

/* --- create ------------------------------------------------------------------------------------------------------- */

static void created(void *arg, const struct gb_error *error) {
    struct session_op *op = arg;
    struct gb_session *s = op->base.session;

    if (error) {
        atomic_store(&s->state, GB_SESSION_DEAD);
        tell_gone(s->core, &s->rec, false);
        gb_session_withdraw(s);
        op_end(op, error);
        return;
    }
    gb_session_touch(s);
    pthread_mutex_lock(&s->lock);
    gb_session_view_locked(s, op->ret);
    pthread_mutex_unlock(&s->lock);
    gb_container_of(op->base.call, struct gb_session_call, base)->created = true;
    atomic_fetch_add(&s->core->live_sessions, 1);
    atomic_store(&s->state, GB_SESSION_LIVE);
    gb_notice_post_session(s, GB_NOTICE_SESSION_CREATED);
    op_end(op, NULL);
}

void gb_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_session_call *call) {
    struct gb_session_rec rec = {.name = params->name, .quota = core->config.default_quota, .version = 1};
    struct gb_error err = GB_ERROR_INIT;
    struct session_op *op;
    struct gb_session *s = NULL;

    merge_params(params, &rec);
    rec.fleet_epoch = params->fleet_epoch;
    memcpy(rec.fleet_claim, params->fleet_claim, sizeof(rec.fleet_claim));
    rec.stops_on_partition = params->stops_on_partition;
    rec.failover_after_s = params->failover_after_s;
    rec.tenant = params->tenant;
    rec.id = atomic_fetch_add(&core->last_session_id, 1) + 1;
    rec.created_at_us = gb_wall_us();
    rec.updated_at_us = rec.created_at_us;
    if (gb_disks_check_durability(core, rec.durability, &err) == 0) {
        s = gb_session_new(core, &rec, GB_SESSION_NEW);
        if (!s)
            gb_no_memory(&err);
    }
    op = gb_op_new(sizeof(*op), s, &call->base, NULL, NULL, &err);
    if (!op) {
        tell_gone(core, &rec, false);
        gb_session_rec_done(&rec);
        return;
    }
    op->ret = &call->session;
    call->base.free_result = gb_session_call_done;
    if (gb_session_enroll(gb_session_ref(s), core->config.sessions_max, &err) < 0) {
        tell_gone(core, &rec, false);
        gb_session_rec_done(&rec);
        gb_session_unref(s);
        gb_op_end(&op->base, &err);
        return;
    }
    gb_store_put_session(core->store, &rec, gb_call_mark(&call->base), created, op);
    gb_session_rec_done(&rec);
}

/* --- patch and delete --------------------------------------------------------------------------------------------- */

static void run(struct session_op *op);

/* Ends the turn. Returns the operation that has it now, or NULL. */
static struct session_op *release_locked(struct gb_session *s) {
    struct gb_fifo_waiter *next = gb_fifo_lock_release(&s->fifo);

    return next ? gb_container_of(next, struct session_op, waiter) : NULL;
}

static bool has_durable_locked(struct gb_session *s) {
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at))) {
        if (b->live && b->rec.durability != GB_DURABILITY_NONE)
            return true;
    }
    return false;
}

/* Their rows were deleted with the session's. */
static void condemn_stored_locked(struct gb_session *s) {
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at)))
        gb_stored_condemn(b->stored);
}

static int not_found(const struct gb_name *name, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "there is no session named \"%s\"", name->s);
}

static int validate_removal_locked(struct session_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.session;

    if (gb_guard_check_session_locked(s, err) < 0 || (!s->aside && gb_session_changeable_locked(s, err) < 0))
        return -1;
    atomic_store(&s->state, GB_SESSION_DELETING);
    op->durable = has_durable_locked(s);
    return 0;
}

static void set_aside_locked(struct session_op *op) {
    struct gb_session *s = op->base.session;

    if (s->given || s->rec.given)
        atomic_store(&s->left, gb_session_name(s));
    op->rec.fleet_epoch = 0;
    op->rec.fleet_claim[0] = '\0';
    op->rec.stops_on_partition = false;
    op->rec.failover_after_s = op->rec.replicas = 0;
    op->rec.tenant.s[0] = '\0';
    gb_text_set(&op->rec.holders, NULL);
    op->rec.given = false;
    op->rec.aside_epoch = op->base.session->rec.fleet_epoch;
    op->rec.idle_ttl_s = op->params.idle_ttl_s;
    op->base.session->aside = true;
}

/* A session that is given away does not expire; its time counts again after it was regained. */
static int validate_giving_locked(struct session_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.session;

    if (op->what == GIVES) {
        if (gb_session_check_frozen_locked(s, op->freeze, err) < 0)
            return -1;
        s->frozen_until_ns = UINT64_MAX;
    } else if (!s->given || s->frozen != op->freeze) {
        return gb_error_set(err, GB_ERR_SESSION_MOVING, "the session \"%s\" is not being given away", op->name.s);
    }
    gb_session_rec_set(&op->rec, &s->rec);
    op->rec.given = op->what == GIVES;
    return 0;
}

static int validate_arrival_locked(struct session_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.session;

    if (s->rec.fleet_epoch > 0 || s->rec.fleet_claim[0] == '\0' ||
        strcmp(s->rec.fleet_claim, op->params.fleet_claim) != 0)
        return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "no session \"%s\" is to arrive by that claim", op->name.s);
    gb_session_rec_set(&op->rec, &s->rec);
    op->rec.name = op->params.name;
    op->rec.fleet_epoch = op->params.fleet_epoch;
    if (op->params.holders)
        gb_text_set(&op->rec.holders, op->params.holders);
    op->rec.version++;
    op->rec.updated_at_us = gb_wall_us();
    return 0;
}

static int validate_registered_locked(struct session_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.session;

    if (s->rec.fleet_epoch == 0 || strcmp(s->rec.fleet_claim, op->params.fleet_claim) != 0)
        return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "no session \"%s\" is registered by that claim", op->name.s);
    if (op->what == RAISES && op->params.fleet_epoch <= s->rec.fleet_epoch) {
        op->unchanged = true;
        gb_session_view_locked(s, op->ret);
        return 0;
    }
    gb_session_rec_set(&op->rec, &s->rec);
    op->rec.given = s->given;
    if (op->what == HOLDS) {
        gb_text_set(&op->rec.holders, op->params.holders);
        return 0;
    }
    if (op->what == RAISES)
        op->rec.fleet_epoch = op->params.fleet_epoch;
    else
        set_aside_locked(op);
    op->rec.version++;
    op->rec.updated_at_us = gb_wall_us();
    return 0;
}

/* Refuses the call if the session was set aside while the call waited, because it has another name now. */
static int validate_locked(struct session_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.session;

    if (gb_session_alive(s, err) < 0)
        return -1;
    if (atomic_load(&s->left) && gb_name_equal(atomic_load(&s->left), &op->name))
        return gb_session_open_locked(s, err);
    if (!gb_name_equal(gb_session_name(s), &op->name))
        return not_found(&op->name, err);
    if (op->check.check && op->check.check(op->check.arg, &s->rec, err) < 0)
        return -1;
    if (op->what == REMOVES)
        return validate_removal_locked(op, err);
    if (op->what == ARRIVES)
        return validate_arrival_locked(op, err);
    if (op->what == GIVES || op->what == REGAINS)
        return validate_giving_locked(op, err);
    if (op->what != PATCHES)
        return validate_registered_locked(op, err);
    if (gb_session_changeable_locked(s, err) < 0 ||
        (op->params.has_durability && gb_disks_check_durability(s->core, op->params.durability, err) < 0))
        return -1;
    gb_session_rec_set(&op->rec, &s->rec);
    merge_params(&op->params, &op->rec);
    if (op->params.has_pool && gb_session_choose_pool_locked(s, &op->params.pool, &op->rec.current_pools, err) < 0)
        return -1;
    op->rec.version++;
    op->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void patched(void *arg, const struct gb_error *error) {
    struct session_op *op = arg;
    struct gb_session *s = op->base.session;
    struct session_op *next;

    pthread_mutex_lock(&s->lock);
    if (!error) {
        if (s->rec.given && op->what == RAISES)
            s->frozen = 0;
        gb_session_rec_set(&s->rec, &op->rec);
        s->rec.given = false;
        gb_copies_set_locked(s, false);
        gb_session_view_locked(s, op->ret);
    }
    next = release_locked(s);
    pthread_mutex_unlock(&s->lock);
    if (!error && op->what != HOLDS)
        gb_notice_post_session(s, GB_NOTICE_SESSION_CHANGED);
    op_end(op, error);
    run(next);
}

/* The record has its mark in the database alone. */
static void given(void *arg, const struct gb_error *error) {
    struct session_op *op = arg;
    struct gb_session *s = op->base.session;
    bool gives = op->what == GIVES;
    struct session_op *next;

    pthread_mutex_lock(&s->lock);
    if (!error)
        s->given = gives;
    if (gives == (error != NULL)) /* a session that was not taken down, or one that is regained */
        s->frozen = 0;
    next = release_locked(s);
    pthread_mutex_unlock(&s->lock);
    op_end(op, error);
    run(next);
}

static void end_multiparts(struct gb_session *s) {
    struct gb_error why = GB_ERROR_INIT;

    pthread_mutex_lock(&s->lock);
    gb_session_changeable_locked(s, &why);
    pthread_mutex_unlock(&s->lock);
    gb_multiparts_end(s, &why);
}

/* The notice has the name that clients knew. The session's idle time starts again. */
static void was_set_aside(void *arg, const struct gb_error *error) {
    struct session_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_notice notice = gb_notice_of(s, GB_NOTICE_SESSION_SUPERSEDED);
    struct session_op *next;

    if (error) {
        gb_session_free_name(s);
    } else {
        gb_disks_point(s->core, GB_DISK_OP_after_commit);
        gb_session_touch(s);
        gb_session_rename(s, &op->rec);
    }
    pthread_mutex_lock(&s->lock);
    s->aside = !error;
    if (error)
        atomic_store(&s->left, NULL);
    if (!error)
        gb_session_view_locked(s, op->ret);
    next = release_locked(s);
    pthread_mutex_unlock(&s->lock);
    if (!error) {
        end_multiparts(s);
        if (!atomic_load(&s->left)) /* else clients do not know the session any more */
            strcpy(notice.detail, gb_session_name(s)->s);
        gb_notice_post(s->core, &notice);
    }
    op_end(op, error);
    run(next);
}

static void set_aside(struct session_op *op) {
    struct gb_session *s = op->base.session;
    struct gb_error err = GB_ERROR_INIT;

    if (gb_session_reserve_name(s, &err) < 0) {
        was_set_aside(op, &err);
        return;
    }
    op->rec.name = *gb_session_next_name(s);
    gb_disks_point(s->core, GB_DISK_OP_before_commit);
    gb_store_put_session(s->core->store, &op->rec, gb_call_mark(op->base.call), was_set_aside, op);
}

/* The notice has the name that clients knew before, if they knew one. */
static void has_arrived(void *arg, const struct gb_error *error) {
    struct session_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_session_view *view = op->ret;
    struct session_op *next;
    struct gb_notice notice;

    if (!error) {
        gb_session_touch(s);
        gb_session_rename(s, &op->rec);
    }
    pthread_mutex_lock(&s->lock);
    if (!error) {
        gb_copies_set_locked(s, true);
        gb_session_view_locked(s, view);
    }
    next = release_locked(s);
    pthread_mutex_unlock(&s->lock);
    if (!error) {
        notice = gb_notice_of(s, GB_NOTICE_SESSION_ARRIVED);
        gb_notice_post(s->core, &notice);
    }
    op_end(op, error);
    run(next);
}

static void arrive(struct session_op *op) {
    struct gb_session *s = op->base.session;
    struct gb_error err = GB_ERROR_INIT;

    if (gb_session_reserve(s, &op->params.name, &err) < 0)
        has_arrived(op, &err);
    else
        gb_store_put_session(s->core->store, &op->rec, gb_call_mark(op->base.call), has_arrived, op);
}

/* When this has been through every lane, the session's frees have been queued there, and the ends of its pools, which
 * come behind the last free; when it has been through again those have ended too. */
static void behind_frees(struct gb_task *task) {
    struct session_op *op = gb_container_of(task, struct session_op, task);
    struct gb_session *s = op->base.session;

    while (op->lane < 2 * s->core->device_count) {
        int lane = op->lane++ % s->core->device_count;

        if (op->everywhere || gb_core_stream_part(s->standard, lane)) {
            gb_lane_post(&s->core->devices[lane].lane, &op->task);
            return;
        }
    }
    op_end(op, NULL);
}

static void deleted(void *arg, const struct gb_error *error) {
    struct session_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_content *contents = NULL;
    struct gb_idlist pools = {0};
    struct session_op *next;
    struct gb_notice notice =
        gb_notice_of(s, op->check.expires ? GB_NOTICE_SESSION_EXPIRED : GB_NOTICE_SESSION_DELETED);

    pthread_mutex_lock(&s->lock);
    notice.count = s->live_buffers;
    notice.has_bytes = true;
    notice.bytes = s->used_bytes;
    if (!error) {
        atomic_store(&s->state, GB_SESSION_DEAD);
        condemn_stored_locked(s);
        contents = gb_session_clear_locked(s);
        pools = gb_session_take_pools_locked(s);
        op->everywhere = pools.count > 0 || s->streams_held > 0;
    } else {
        atomic_store(&s->state, GB_SESSION_LIVE);
    }
    next = release_locked(s);
    pthread_mutex_unlock(&s->lock);
    if (error) {
        op_end(op, error);
    } else {
        end_multiparts(s);
        gb_content_drop_all(contents);
        gb_session_drop_pools(&pools);
        atomic_fetch_sub(&s->core->live_sessions, 1);
        tell_gone(s->core, &s->rec, true);
        gb_keys_drop(s->core, s->id);
        gb_session_withdraw(s);     /* op has a reference too */
        if (!atomic_load(&s->left)) /* else they know it at another node */
            gb_notice_post(s->core, &notice);
        op->task.run = behind_frees;
        behind_frees(&op->task);
    }
    run(next);
}

/* op has the turn. */
static void run(struct session_op *op) {
    struct session_op *next;
    int r;

    for (; op; op = next) {
        struct gb_error err = GB_ERROR_INIT;
        struct gb_session *s = op->base.session;

        pthread_mutex_lock(&s->lock);
        r = validate_locked(op, &err);
        next = r < 0 || op->unchanged ? release_locked(s) : NULL;
        pthread_mutex_unlock(&s->lock);
        if (r < 0 || op->unchanged)
            op_end(op, &err);
        else if (op->what == REMOVES)
            gb_store_delete_session(s->core->store, s->id, op->durable, gb_call_mark(op->base.call), deleted, op);
        else if (op->what == SETS_ASIDE)
            set_aside(op);
        else if (op->what == ARRIVES)
            arrive(op);
        else if (op->what == GIVES || op->what == REGAINS)
            gb_store_put_session(s->core->store, &op->rec, gb_call_mark(op->base.call), given, op);
        else
            gb_store_put_session(s->core->store, &op->rec, gb_call_mark(op->base.call), patched, op);
    }
}

/* Takes over the reference to the session; NULL: err says why. params: borrowed; only the name for what has no others.
 * ret: part of the call; NULL: none. */
static struct session_op *begin(struct gb_session *s, enum what what, const struct gb_name *name,
                                const struct gb_session_params *params, const struct gb_session_check *check,
                                struct gb_error *err, struct gb_call *call, struct gb_session_view *ret) {
    struct session_op *op =
        gb_op_new(sizeof(*op), s, call, check ? check->free_arg : NULL, check ? check->arg : NULL, err);

    if (!op)
        return NULL;
    op->ret = ret;
    if (ret)
        call->free_result = gb_session_call_done;
    op->what = what;
    op->name = *name;
    if (params)
        op->params = *params;
    gb_text_ref(op->params.labels);
    gb_text_ref(op->params.holders);
    if (check)
        op->check = *check;
    return op;
}

static void take_turn(struct session_op *op) {
    struct gb_session *s = op->base.session;
    bool mine;

    pthread_mutex_lock(&s->lock);
    mine = gb_fifo_lock_acquire(&s->fifo, &op->waiter);
    pthread_mutex_unlock(&s->lock);
    if (mine)
        run(op);
}

static void transaction(struct gb_session *s, enum what what, const struct gb_name *name,
                        const struct gb_session_params *params, const struct gb_session_check *check,
                        struct gb_error *err, struct gb_call *call, struct gb_session_view *ret) {
    struct session_op *op = begin(s, what, name, params, check, err, call, ret);

    if (op)
        take_turn(op);
}

void gb_session_patch(struct gb_core *core, const struct gb_name *name, const struct gb_session_params *params,
                      const struct gb_session_check *check, struct gb_session_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    transaction(gb_session_use(core, name, &err), PATCHES, name, params, check, &err, &call->base, &call->session);
}

void gb_session_delete(struct gb_core *core, const struct gb_name *name, const struct gb_session_check *check,
                       struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = NULL;

    if (strcmp(name->s, "default") == 0)
        gb_error_set(&err, GB_ERR_SESSION_PROTECTED, "the session \"default\" always exists");
    else
        s = gb_session_find(core, name, &err);
    transaction(s, REMOVES, name, NULL, check, &err, call, NULL);
}

static void change_registered(struct gb_core *core, enum what what, const struct gb_name *name, const char *claim,
                              struct gb_session_params *params, struct gb_session_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    snprintf(params->fleet_claim, sizeof(params->fleet_claim), "%s", claim);
    transaction(gb_session_find(core, name, &err), what, name, params, NULL, &err, &call->base, &call->session);
}

void gb_session_raise(struct gb_core *core, const struct gb_name *name, const char *claim, int64_t epoch,
                      struct gb_session_call *call) {
    struct gb_session_params params = {.fleet_epoch = epoch};

    change_registered(core, RAISES, name, claim, &params, call);
}

void gb_session_hold(struct gb_core *core, const struct gb_name *name, const char *claim, struct gb_text *holders,
                     struct gb_session_call *call) {
    struct gb_session_params params = {.holders = holders};

    change_registered(core, HOLDS, name, claim, &params, call);
}

void gb_session_set_aside(struct gb_core *core, const struct gb_name *name, const char *claim, uint64_t idle_ttl_s,
                          struct gb_session_call *call) {
    struct gb_session_params params = {.idle_ttl_s = idle_ttl_s};

    change_registered(core, SETS_ASIDE, name, claim, &params, call);
}

static void change_frozen(struct gb_session *s, enum what what, const struct gb_session_params *params, uint64_t freeze,
                          struct gb_error *err, struct gb_session_call *call) {
    struct session_op *op = begin(s, what, &params->name, params, NULL, err, &call->base, NULL);

    if (!op)
        return;
    op->freeze = freeze;
    take_turn(op);
}

void gb_session_give(struct gb_core *core, const struct gb_name *name, uint64_t freeze, struct gb_session_call *call) {
    struct gb_session_params params = {.name = *name};
    struct gb_error err = GB_ERROR_INIT;

    change_frozen(gb_session_find(core, name, &err), GIVES, &params, freeze, &err, call);
}

void gb_session_regain(struct gb_core *core, const struct gb_name *name, uint64_t freeze,
                       struct gb_session_call *call) {
    struct gb_session_params params = {.name = *name};
    struct gb_error err = GB_ERROR_INIT;

    change_frozen(gb_session_find(core, name, &err), REGAINS, &params, freeze, &err, call);
}

int gb_session_expect(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                      struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, session, err);
    int r;

    if (!s)
        return -1;
    r = gb_session_reserve(s, name, err);
    gb_session_unref(s);
    return r;
}

void gb_session_arrive(struct gb_core *core, const struct gb_name *session, const struct gb_session_params *params,
                       struct gb_session_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    transaction(gb_session_find(core, session, &err), ARRIVES, session, params, NULL, &err, &call->base,
                &call->session);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* name: by which it was found, as whatever has that name is meant; NULL: any. Takes over the reference. */
static int look(struct gb_session *s, const struct gb_name *name, struct gb_session_view *ret, struct gb_error *err) {
    bool named;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    named = !name || gb_name_equal(gb_session_name(s), name);
    if (named)
        gb_session_view_locked(s, ret);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return named ? 0 : not_found(name, err);
}

int gb_session_get(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret,
                   struct gb_error *err) {
    ret->rec = (struct gb_session_rec){.labels = NULL};
    return look(gb_session_find(core, name, err), name, ret, err);
}

int gb_session_heartbeat(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret,
                         struct gb_error *err) {
    ret->rec = (struct gb_session_rec){.labels = NULL};
    return look(gb_session_use(core, name, err), name, ret, err);
}

/* The next session that clients see. */
static bool after(struct gb_core *core, int64_t id, struct gb_session_view *ret) {
    struct gb_session *s;

    while ((s = gb_session_after(core, id))) {
        id = s->id;
        if (atomic_load(&s->state) == GB_SESSION_LIVE) {
            look(s, NULL, ret, NULL);
            return true;
        }
        gb_session_unref(s);
    }
    return false;
}

int gb_session_list(struct gb_core *core, struct gb_page *page,
                    int (*visit)(void *, const struct gb_session_view *, struct gb_error *), void *arg,
                    struct gb_error *err) {
    struct gb_session_view view = {.rec = {.labels = NULL}};
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    for (n = 0; n < page->limit && r == 0 && after(core, id, &view); n++) {
        id = view.rec.id;
        r = visit(arg, &view, err);
    }
    if (r == 0)
        page->more = after(core, id, &view);
    gb_session_rec_done(&view.rec);
    return r;
}

/* --- freeze ------------------------------------------------------------------------------------------------------- */

/* A session that is handed to another node: nothing in it changes for a moment. */

static bool is_frozen_locked(const struct gb_session *s) {
    return s->frozen != 0 && gb_clock_ns() < s->frozen_until_ns;
}

static int check_unused_locked(struct gb_session *s, struct gb_error *err) {
    struct gb_buffer *b;
    size_t at = 0;

    while (s->leases > 0 && (b = gb_map_next(&s->buffers, &at)))
        if (b->live && gb_guard_check_unmapped_locked(b, "it is moved when that has ended", err) < 0)
            return -1;
    if (gb_guard_check_session_locked(s, err) < 0)
        return -1; /* by deleted buffers */
    at = 0;
    while (s->adopted > 0 && (b = gb_map_next(&s->buffers, &at)))
        if (b->live && gb_adopted_check_locked(b, "its session cannot go to another node", err) < 0)
            return -1;
    if (s->multiparts_open == 0)
        return 0;
    return gb_error_set(err, GB_ERR_BUFFER_BUSY,
                        "uploads in parts are open in session \"%s\" (%llu): it is moved when they have ended",
                        gb_session_client_name(s)->s, (unsigned long long)s->multiparts_open);
}

static int freeze_locked(struct gb_session *s, const char *claim, unsigned ms, uint64_t *ret, struct gb_error *err) {
    if (s->rec.fleet_epoch == 0 || strcmp(s->rec.fleet_claim, claim) != 0)
        return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "no session \"%s\" is registered by that claim",
                            gb_session_client_name(s)->s);
    if (gb_session_changeable_locked(s, err) < 0 || check_unused_locked(s, err) < 0)
        return -1;
    s->frozen = gb_clock_ns();
    s->frozen_until_ns = s->frozen + ms * GB_NS_PER_MS;
    *ret = s->frozen;
    return 0;
}

int gb_session_freeze(struct gb_core *core, const struct gb_name *name, const char *claim, unsigned ms,
                      uint64_t *ret_freeze, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = freeze_locked(s, claim, ms, ret_freeze, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* A change of the session itself has the fifo lock; the calling one, too. */
static bool is_quiet_locked(struct gb_session *s, bool has_turn) {
    struct gb_buffer *b;
    size_t at = 0;

    if (s->changing > 0 || (s->fifo.taken && !has_turn))
        return false;
    while ((b = gb_map_next(&s->buffers, &at)))
        if (b->in_place)
            return false;
    return true;
}

static int check_number_locked(struct gb_session *s, uint64_t freeze, struct gb_error *err) {
    if (gb_session_alive(s, err) < 0)
        return -1;
    if (is_frozen_locked(s) && s->frozen == freeze)
        return 0;
    return gb_error_set(err, GB_ERR_SESSION_MOVING, "the session \"%s\" is not frozen by that number any more",
                        gb_session_client_name(s)->s);
}

int gb_session_check_frozen_locked(struct gb_session *s, uint64_t freeze, struct gb_error *err) {
    if (check_number_locked(s, freeze, err) < 0)
        return -1;
    if (!is_quiet_locked(s, true))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "changes of session \"%s\" have not ended",
                            gb_session_client_name(s)->s);
    return check_unused_locked(s, err);
}

int gb_session_frozen(struct gb_core *core, const struct gb_name *name, uint64_t freeze, bool *ret_quiet,
                      struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = check_number_locked(s, freeze, err);
    *ret_quiet = r == 0 && is_quiet_locked(s, false);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

void gb_session_thaw(struct gb_core *core, const struct gb_name *name, uint64_t freeze) {
    struct gb_session *s = gb_session_find(core, name, NULL);

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->frozen == freeze && s->frozen_until_ns != UINT64_MAX)
        s->frozen = 0;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}
