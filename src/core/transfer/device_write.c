/* Device writes: uploads whose payload the device itself brings, as a copy from another buffer, a fill, or the update
 * of one side of a mirrored buffer. The lane queues the payload, and a call reports the end. Handlers and the core's
 * mirrored buffers call this. */
#include "core/transfer/upload.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/text.h"
#include "core/buffer/buffer.h"
#include "core/buffer/order.h"
#include "core/durable/stored.h"
#include "core/public/buffer.h"

/* --- planning ----------------------------------------------------------------------------------------------------- */

static int out_of_bounds(const char *which, uint64_t offset, uint64_t bytes, uint64_t all, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "%llu bytes at offset %llu of the %s do not lie within its %llu bytes",
                        (unsigned long long)bytes, (unsigned long long)offset, which, (unsigned long long)all);
}

static bool within(uint64_t offset, uint64_t bytes, uint64_t all) {
    return offset <= all && bytes <= all - offset;
}

/* Sets the number of bytes by the source. A fill without a number gets it from its destination later. Returns 0 or
 * -1. */
static int measure(struct gb_device_write *w, const struct gb_device_write_params *p, struct gb_error *err) {
    w->bytes = p->bytes;
    if (p->copy) {
        if (!p->has_bytes && p->from_offset <= w->source_rec.bytes)
            w->bytes = w->source_rec.bytes - p->from_offset;
        if (!within(p->from_offset, w->bytes, w->source_rec.bytes))
            return out_of_bounds("source", p->from_offset, w->bytes, w->source_rec.bytes, err);
        return 0;
    }
    if (p->width != 1 && p->width != 2 && p->width != 4 && p->width != 8)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pattern has 1, 2, 4 or 8 bytes, not %u", p->width);
    if (p->width < 8 && p->pattern >> (8 * p->width) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the pattern %llu does not fit into %u bytes",
                            (unsigned long long)p->pattern, p->width);
    return 0;
}

static int check_grain(const struct gb_device_write *w, struct gb_error *err) {
    if (w->what != GB_DEVICE_WRITE_FILL || (w->offset % w->width == 0 && w->bytes % w->width == 0))
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "a pattern of %u bytes goes with bytes and offset that are multiples of it, and these are %llu and %llu",
        w->width, (unsigned long long)w->bytes, (unsigned long long)w->offset);
}

/* Plans a write to a buffer that does not exist. A copy to offset 0 creates it. Returns 0 or -1. */
static int plan_new(const struct gb_device_write *w, const struct gb_upload_params *p, struct gb_upload_draft *draft,
                    struct gb_error *err) {
    if (w->what == GB_DEVICE_WRITE_COPY && w->offset == 0) {
        draft->bytes = draft->payload = w->bytes;
        return 0;
    }
    if (gb_after_check_locked(&w->turn->after, err) < 0)
        return -1;
    return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\" to write into",
                        p->buffer.session.s, p->buffer.name.s);
}

/* Returns true if the buffer is as it was when the call read it; the lock was released since. */
static bool is_as_seen(const struct gb_device_write *w, const struct gb_upload_params *p, const struct gb_buffer *b) {
    const struct gb_content *side = b->sides[p->to_device_side ? GB_SIDE_DEVICE : GB_SIDE_HOST];

    return b->rec.mirrored && b->id == w->source_rec.id && b->rec.generation == w->source_rec.generation &&
           b->rec.state == GB_BUFFER_READY &&
           (w->what != GB_DEVICE_WRITE_RESERVE || !side || side->bytes < w->capacity);
}

static int plan_existing(struct gb_device_write *w, const struct gb_upload_params *p, struct gb_upload_draft *draft,
                         struct gb_error *err) {
    const struct gb_buffer *b = draft->buffer;

    if (!draft->sync && gb_guard_check_unsealed_locked(b, err) < 0)
        return -1;
    if (w->turn->after.on && (!draft->chained || w->fixed))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY,
                            "an earlier operation of the batch writes \"%s\" where its bytes are; put this one into a "
                            "later batch",
                            b->name);
    if (draft->sync && !is_as_seen(w, p, b))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    if (!w->has_bytes && w->what == GB_DEVICE_WRITE_FILL)
        w->bytes = w->offset <= b->rec.bytes ? b->rec.bytes - w->offset : 0;
    if (!within(w->offset, w->bytes, b->rec.bytes))
        return out_of_bounds("buffer", w->offset, w->bytes, b->rec.bytes, err);
    if (check_grain(w, err) < 0)
        return -1;
    draft->bytes = draft->reserve ? w->capacity : b->rec.bytes;
    draft->kept = w->kept;
    draft->at = w->offset;
    draft->payload = w->bytes;
    draft->merge = !draft->reserve && w->bytes != b->rec.bytes;
    draft->remakes = draft->chained && w->what == GB_DEVICE_WRITE_COPY && !draft->merge;
    if (draft->merge && gb_after_check_locked(&w->turn->after, err) < 0)
        return -1;
    return gb_upload_check_merge(draft, err);
}

static int plan(struct gb_session *s, void *owner, const struct gb_upload_params *p, struct gb_upload_draft *draft,
                struct gb_error *err) {
    struct gb_device_write *w = owner;

    (void)s;
    draft->by_device = true;
    draft->reserve = w->what == GB_DEVICE_WRITE_RESERVE;
    draft->sync = draft->reserve || w->what == GB_DEVICE_WRITE_SYNC;
    draft->all_or_nothing = gb_transaction_batch_atomic(w->call->base.batch);
    draft->source = w->source;
    draft->from = w->from;
    if ((draft->buffer ? plan_existing(w, p, draft, err) : plan_new(w, p, draft, err)) < 0)
        return -1;
    draft->has_table = w->what == GB_DEVICE_WRITE_COPY && w->source_rec.dtype == GB_DTYPE_TENSORS;
    draft->has_crc32c = w->what == GB_DEVICE_WRITE_COPY && w->bytes == w->source_rec.bytes && w->source_rec.has_crc32c;
    draft->crc32c = draft->has_crc32c ? w->source_rec.crc32c : 0;
    return 0;
}

/* --- on the lane -------------------------------------------------------------------------------------------------- */

static int fill(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    struct gb_device_write *w = u->owner;
    struct gb_location place = gb_content_location(u->content, u->plan.at);

    w->way = GB_WAY_NONE;
    if (w->bytes == 0)
        return 0;
    if (w->what != GB_DEVICE_WRITE_FILL) /* the source is a mirrored buffer that was never written */
        return gb_content_zero(u->content, u->plan.at, w->bytes, stream, err);
    return gb_location_fill(u->t.core->backend, &place, w->pattern, w->width, w->bytes / w->width, stream, err);
}

static void written(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *f = arg;
    struct gb_upload *u = gb_upload_of(f->transfer);
    struct gb_device_write *w = u->owner;

    gb_core_report_error(u->t.core, error);
    if (!error)
        gb_staged_copy_account(f);
    gb_content_drop_later(u->base);
    u->base = NULL;
    if (w->what == GB_DEVICE_WRITE_COPY) {
        gb_content_drop_later(w->source);
        w->source = NULL;
    }
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

static int queue(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_device_write *w = u->owner;
    struct gb_staged_copy *f = &u->pipe.copies[0];

    if (gb_content_materialize(w->source, err) < 0)
        return -1;
    if (w->source && w->source->ready && gb_stream_wait(be, stream, w->source->ready->event, err) < 0)
        return -1;
    u->touched = true;
    if (w->source ? gb_content_move(u->content, u->plan.at, w->source, w->from, w->bytes, stream, &w->way, err) < 0
                  : fill(u, stream, err) < 0)
        return -1;
    if (gb_staged_copy_close(f, err) < 0)
        return -1;
    return gb_upload_watch(u, f->end, written, f, err);
}

/* --- the commit --------------------------------------------------------------------------------------------------- */

/* Returns true if the written bytes are still right. Zeros are, while no side has bytes. Copied bytes must still be
 * those of the other side, or of the side that grows. */
static bool same_source(const struct gb_device_write *w, const struct gb_buffer *b, enum gb_side side) {
    if (w->what == GB_DEVICE_WRITE_RESERVE)
        return b->sides[side] == w->source || !gb_side_current(b->rec.head, side);
    return w->source ? b->sides[gb_other_side(side)] == w->source : b->rec.head == GB_HEAD_UNINITIALIZED;
}

/* A sync does not change the bytes that readers see, so both sides must be as they were. Returns 0 or -1. */
static int validate_sync_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);
    const struct gb_upload_plan *p = &u->plan;
    const struct gb_device_write *w = u->owner;
    struct gb_buffer_rec *rec = &transaction->rec;

    if (!b || b->in_place || b->id != p->base_id || b->rec.generation != p->base_generation ||
        b->rec.state != GB_BUFFER_READY || !same_source(w, b, p->side) || b->sides[p->side] != p->was)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    gb_buffer_copy_locked(b, rec);
    if (w->what == GB_DEVICE_WRITE_SYNC)
        rec->head = p->head;
    if (u->content->owner)
        rec->has_crc32c = false; /* its owner may write at any time */
    rec->kind = gb_core_usual_kind(u->t.device);
    rec->pool = p->pool_name; /* another one if the buffer's was removed */
    rec->version++;
    rec->updated_at_us = gb_wall_us();
    return 0;
}

static void complete(struct gb_upload *u) {
    const struct gb_device_write *w = u->owner;

    (void)gb_upload_ready(u, NULL, gb_upload_commit_end);
    u->transaction.call = &w->call->base;
    if (w->what == GB_DEVICE_WRITE_SYNC || w->what == GB_DEVICE_WRITE_RESERVE)
        u->transaction.validate_locked = validate_sync_locked;
    gb_transaction_start(&u->transaction);
}

static void committed(struct gb_upload *u) {
    const struct gb_device_write *w = u->owner;
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    switch (w->what) {
    case GB_DEVICE_WRITE_COPY:
        GB_COUNT(core, s, device_copies, 1);
        GB_COUNT(core, s, device_copy_bytes, u->plan.payload);
        GB_COUNT(core, s, device_copy_ns, u->t.copy_ns);
        GB_COUNT(core, s, device_copy_queue_ns, u->t.queue_ns);
        break;
    case GB_DEVICE_WRITE_FILL:
        GB_COUNT(core, s, fills, 1);
        GB_COUNT(core, s, fill_bytes, u->plan.payload);
        break;
    case GB_DEVICE_WRITE_SYNC:
        GB_COUNT(core, s, mirror_copies, w->source != NULL);
        GB_COUNT(core, s, mirror_copy_bytes, w->source ? u->plan.payload : 0);
        break;
    case GB_DEVICE_WRITE_RESERVE:
        break;
    }
}

/* Says why a side's growth needs its old memory too, and whether both can ever be had at once. */
static void explain_kept(const struct gb_device_write *w, struct gb_error *error) {
    uint64_t limit = error->has_numbers ? error->limit_bytes : UINT64_MAX;
    char text[200];

    if (error->code == GB_ERR_PINNED_LIMIT)
        limit -= w->source->device->core->pinned.slots_bytes;
    error->hopeless = w->capacity > limit || w->kept > limit - w->capacity;
    if (w->capacity > limit)
        return;
    snprintf(
        text, sizeof(text),
        "; the side's %llu bytes are current and are copied, so that both memories are needed at once, %llu bytes: "
        "sync the other side and release this one before",
        (unsigned long long)w->kept, (unsigned long long)(w->kept + w->capacity));
    gb_error_append(error, error->code, text);
}

/* Adds to the failure of a side's growth what became of its old memory. */
static void explain_growth(const struct gb_device_write *w, struct gb_error *error) {
    bool room = error->code == GB_ERR_OUT_OF_MEMORY || error->code == GB_ERR_QUOTA_EXCEEDED ||
                error->code == GB_ERR_PINNED_LIMIT;
    char text[80];

    if (w->kept > 0 && w->source && room)
        explain_kept(w, error);
    if (w->freed == 0 || error->code == GB_ERR_BUFFER_NOT_FOUND || error->code == GB_ERR_BUFFER_BUSY)
        return;
    snprintf(text, sizeof(text), "; the side is empty: its %llu bytes were freed before", (unsigned long long)w->freed);
    gb_error_append(error, error->code, text);
}

/* Finishes the call and frees the write. */
static void end(struct gb_device_write *w) {
    struct gb_buffer_call *call = w->call;
    struct gb_error error = w->error;

    if (error.code != GB_OK)
        explain_growth(w, &error);
    gb_turn_end(w->turn, error.code == GB_OK ? NULL : &error);
    gb_content_drop_later(w->source); /* this may be a backend's thread */
    gb_turn_free(w->turn);
    if (w->params.check.free_arg)
        w->params.check.free_arg(w->params.check.arg);
    gb_buffer_rec_done(&w->source_rec);
    gb_core_stream_unuse(w->stream);
    gb_session_unref(w->session);
    free(w);
    gb_call_finish(&call->base, error.code == GB_OK ? NULL : &error);
}

static void gone(struct gb_upload *u) {
    struct gb_device_write *w = u->owner;

    gb_call_withdraw(&w->call->base, NULL);
    gb_turn_end(w->turn, w->error.code == GB_OK ? NULL : &w->error);
    gb_staged_copy_release(&u->pipe.copies[0]);
    gb_upload_dispose(u);
    end(w);
}

static const struct gb_upload_role device_write = {
    .plan = plan, .queue = queue, .complete = complete, .committed = committed, .gone = gone};

int gb_device_write_check_locked(struct gb_device_write *w, struct gb_error *err) {
    struct gb_upload_draft draft;

    return gb_upload_draft_locked(w->session, &w->params, &device_write, w, w->turn, &draft, err);
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

/* The upload's wake. At its end the upload is freed, and its clean-up finishes the call. */
static void wake(void *arg) {
    struct gb_device_write *w = arg;
    struct gb_buffer_call *call = w->call;
    struct gb_upload *u = w->upload;
    int r;

    if (w->ended)
        return;
    gb_buffer_rec_done(&call->buffer);
    r = gb_upload_result(u, &call->buffer, &call->created, &call->times, &w->error);
    if (r == 0)
        return;
    if (r > 0) /* the lane may still write w->way of a cancelled write */
        call->way = w->way;
    call->copied = r > 0 && w->what == GB_DEVICE_WRITE_SYNC && w->source;
    w->ended = true;
    gb_upload_free(u);
}

/* One that is refused at once was never going to write: its client knows. One of a batch that is refused is so to the
 * others of the batch, but not to later requests, which were accepted while it waited. */
static void refuse_turn(struct gb_device_write *w) {
    if (!w->turn || !w->turn->session || (w->waited && w->turn->batch_number == 0))
        return;
    pthread_mutex_lock(&w->turn->session->lock);
    w->turn->writes = w->turn->batch_number > 0;
    w->turn->skipped = true;
    pthread_mutex_unlock(&w->turn->session->lock);
}

static void load_ended(void *arg) {
    struct gb_device_write *w = arg;

    gb_lane_post(&w->core->devices[0].lane, &w->task);
}

static void run_task(struct gb_task *task);

/* Bytes that are on disk alone are being loaded: the write keeps its turn and runs again when a load has ended. */
static void wait_for_load(struct gb_device_write *w) {
    w->error = GB_ERROR_INIT;
    w->again = true;
    w->task.run = run_task;
    w->loading.waker = (struct gb_waker){load_ended, w};
    if (!gb_loads_wait(w->core, w->loads, &w->loading))
        gb_lane_post(&w->core->devices[0].lane, &w->task);
}

void gb_device_write_fail(struct gb_device_write *w, const struct gb_error *error) {
    if (error->code == GB_ERR_NOT_LOADED && w->running) {
        wait_for_load(w);
        return;
    }
    w->error = *error;
    refuse_turn(w);
    end(w);
}

struct gb_device_write *gb_device_write_new(struct gb_core *core, enum gb_device_write_what what,
                                            struct gb_buffer_call *call) {
    struct gb_device_write *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->core = core;
    w->loads = gb_loads_sequence(core);
    w->what = what;
    w->call = call;
    call->base.free_result = gb_buffer_call_done;
    return w;
}

/* Takes a reference for a cancellation. Returns false if the upload is being destroyed. */
static bool hold_upload(void *arg) {
    atomic_uint *refs = &((struct gb_upload *)arg)->t.refs;
    unsigned n = atomic_load(refs);

    while (n > 0 && !atomic_compare_exchange_weak(refs, &n, n + 1))
        ;
    return n > 0;
}

static bool cancel(void *arg, bool act) {
    struct gb_upload *u = arg;
    struct gb_device_write *w = u->owner;
    struct gb_error why = GB_ERROR_INIT;
    bool r = gb_upload_cancel(u, act);

    if (r && act) { /* before its client learns of it */
        gb_cancelled(&why);
        gb_turn_end(w->turn, &why);
    }
    gb_core_transfer_unref(&u->t);
    return r;
}

void gb_device_write_start(struct gb_device_write *w) {
    struct gb_upload_params *p = &w->params;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *u;

    p->session = w->session;
    p->turn = w->turn;
    p->stream = w->stream;
    p->waker = (struct gb_waker){wake, w};
    u = gb_upload_make(w->core, p, &device_write, w, &err);
    if (!u) {
        gb_device_write_fail(w, &err);
        return;
    }
    p->check = (struct gb_buffer_check){.check = NULL}; /* the upload's now */
    w->upload = u;
    (void)gb_upload_step(u, GB_UPLOAD_ALLOCATING);
    (void)gb_upload_step(u, GB_UPLOAD_ENDED);
    u->t.want_wake = true;
    gb_core_transfer_ref(&u->t); /* a cancellation may drop the other ones before this returns */
    gb_call_offer(&w->call->base, hold_upload, cancel, u);
    gb_upload_run(u, &w->core->writes_running);
    gb_core_transfer_unref(&u->t);
}

/* --- the source --------------------------------------------------------------------------------------------------- */

/* Holds the source as it is now, if it passes from_check. The session's lock is held. Returns 0 or -1. */
static int resolve_locked(struct gb_session *s, const struct gb_device_write_params *p, struct gb_copy_source *ret,
                          struct gb_error *err) {
    struct gb_buffer_check check = {.check = p->from_check, .arg = (char *)p->from_tag};
    const struct gb_buffer *b = gb_buffer_find_locked(s, &p->from, err);

    /* The check precedes the hold, which may load bytes. */
    if (!b || gb_buffer_check_locked(&check, b, err) < 0)
        return -1;
    return gb_buffer_hold_locked(s, &p->from, &ret->rec, &ret->content, err);
}

/* Resolves the source of the first write, and of later writes whose source is in the same session. */
static void resolve_session(struct gb_core *core, const struct gb_device_write_params *writes, size_t count) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_session_use(core, &writes->from_session, &err);
    size_t i;

    if (s)
        pthread_mutex_lock(&s->lock);
    for (i = 0; i < count; i++) {
        struct gb_copy_source *source = writes[i].source;

        if (!source || source->resolved || !gb_name_equal(&writes[i].from_session, &writes->from_session))
            continue;
        source->resolved = true;
        if (s)
            resolve_locked(s, &writes[i], source, &source->error);
        else
            source->error = err;
    }
    if (s)
        pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}

void gb_copy_sources_resolve(struct gb_core *core, const struct gb_device_write_params *writes, size_t count) {
    size_t i;

    for (i = 0; i < count; i++) {
        if (writes[i].source && !writes[i].source->resolved)
            resolve_session(core, &writes[i], count - i);
    }
}

void gb_copy_source_done(struct gb_copy_source *source) {
    if (!source)
        return;
    gb_content_drop_later(source->content);
    gb_buffer_rec_done(&source->rec);
    source->content = NULL;
}

static void take_source(struct gb_device_write *w, struct gb_copy_source *source) {
    if (source->error.code != GB_OK && w->error.code == GB_OK)
        gb_error_move(&w->error, &source->error);
    w->source = source->content;
    w->source_rec = source->rec;
    w->has_source = source->error.code == GB_OK && w->error.code == GB_OK;
    source->content = NULL;
    source->rec.labels = NULL;
}

/* One that was resolved when its batch was accepted. Bytes that were not in memory then may be there now. */
static bool is_resolved(const struct gb_copy_source *source) {
    return source && source->resolved && source->error.code != GB_ERR_NOT_LOADED;
}

static int check_source(struct gb_device_write *w, const struct gb_buffer_rec *rec) {
    return w->asked.from_check ? w->asked.from_check(w->asked.from_tag, rec, &w->error) : 0;
}

/* The source in the write's own session, as the write sees it. */
static void hold_source_locked(struct gb_device_write *w) {
    const struct gb_after *after = &w->turn->source;
    struct gb_device_write_params *p = &w->asked;
    struct gb_copy_source now = {.resolved = false};

    if (gb_after_check_locked(after, &w->error) < 0)
        return;
    if (gb_after_chained(after) && !w->fixed) {
        const struct gb_buffer_rec *rec = gb_turn_rec_locked(after->on);

        if (!rec)
            gb_no_memory(&w->error);
        if (!rec || check_source(w, rec) < 0)
            return;
        gb_buffer_rec_set(&w->source_rec, rec);
        w->source = gb_content_ref(after->on->content);
        w->has_source = true;
    } else if (after->on) {
        gb_error_set(&w->error, GB_ERR_BUFFER_BUSY,
                     "an earlier operation of the batch writes \"%s\" where its bytes are; put this one into a later "
                     "batch",
                     p->from.s);
    } else if (is_resolved(p->source)) {
        if (p->source->error.code != GB_OK || check_source(w, &p->source->rec) == 0)
            take_source(w, p->source);
    } else {
        (void)resolve_locked(w->session, p, &now, &now.error);
        take_source(w, &now);
    }
}

static void find_source_locked(struct gb_device_write *w) {
    hold_source_locked(w);
    if (w->has_source)
        gb_turn_read_locked(w->turn);
}

static void source_reached_locked(struct gb_after *after) {
    find_source_locked(after->owner);
}

static bool reads_here(const struct gb_device_write *w) {
    return w->what == GB_DEVICE_WRITE_COPY && gb_name_equal(&w->asked.session, &w->asked.from_session);
}

/* A source of another session, where the stream has no order. */
static void hold_now(struct gb_core *core, struct gb_device_write *w) {
    struct gb_copy_source now = {.resolved = false};
    struct gb_device_write_params one = w->asked;

    if (w->what != GB_DEVICE_WRITE_COPY || reads_here(w))
        return;
    if (!is_resolved(one.source)) {
        one.source = &now;
        gb_copy_sources_resolve(core, &one, 1);
    }
    take_source(w, one.source);
}

/* --- the turn ----------------------------------------------------------------------------------------------------- */

/* The source may have come from the disk since. */
static void hold_source_again(struct gb_device_write *w) {
    if (w->what != GB_DEVICE_WRITE_COPY) { /* run looks at the sides again */
        gb_content_drop_later(w->source);
        gb_buffer_rec_done(&w->source_rec);
        gb_buffer_rec_done(&w->call->buffer);
        w->source = NULL;
        return;
    }
    if (w->has_source)
        return;
    if (!reads_here(w)) {
        hold_now(w->core, w);
        return;
    }
    pthread_mutex_lock(&w->session->lock);
    find_source_locked(w);
    pthread_mutex_unlock(&w->session->lock);
}

static void run(struct gb_device_write *w) {
    struct gb_error err = GB_ERROR_INIT;

    if (gb_call_withdraw(&w->call->base, &err) < 0) {
        gb_device_write_fail(w, &err);
        return;
    }
    w->running = true;
    if (w->error.code == GB_OK && w->again) {
        w->loads = gb_loads_sequence(w->core);
        hold_source_again(w);
    }
    if (w->error.code != GB_OK)
        gb_device_write_fail(w, &w->error);
    else
        w->run(w);
}

static void turned(struct gb_after *after) {
    struct gb_device_write *w = after->owner;
    bool last;

    pthread_mutex_lock(&w->session->lock);
    last = --w->waiting == 0;
    pthread_mutex_unlock(&w->session->lock);
    if (last)
        run(w);
}

static void run_task(struct gb_task *task) {
    run(gb_container_of(task, struct gb_device_write, task));
}

/* A write that waits for its turn, and that no lane is about to run. */
static bool cancel_waiting(void *arg, bool act) {
    struct gb_device_write *w = arg;
    struct gb_session *s = w->session;
    bool waits;

    pthread_mutex_lock(&s->lock);
    waits = w->waiting > 0;
    if (act && waits) {
        w->waiting -= gb_after_stop_locked(&w->turn->after);
        w->waiting -= gb_after_stop_locked(&w->turn->source);
        if (w->waiting == 0) {
            w->task.run = run_task;
            gb_lane_post(&w->core->devices[0].lane, &w->task);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return waits;
}

/* The device part of a stream keeps its own order; other parts and streams do not follow it. */
static enum gb_turn_stage stage_seen(const struct gb_device_write *w, const struct gb_after *after, bool any_device) {
    bool same = after->on && after->on->stream == w->turn->stream && (!any_device || w->core->device_count == 1);

    return same ? GB_TURN_QUEUED : GB_TURN_READY;
}

static bool waits_locked(struct gb_device_write *w, struct gb_after *after, enum gb_turn_stage until) {
    after->sees = until < GB_TURN_ENDED;
    after->until = until;
    after->batch = w->turn->batch;
    after->go = turned;
    after->owner = w;
    return gb_after_wait_locked(after);
}

static int take_turn_locked(struct gb_device_write *w, const struct gb_name *name, const struct gb_name *stream,
                            struct gb_error *err) {
    w->turn->writes = w->what != GB_DEVICE_WRITE_RESERVE;
    if (!w->stream && gb_core_stream_use_locked(w->session, stream, &w->stream, err) < 0)
        return -1;
    if (w->turn->session)
        return 0;
    return gb_turn_take_locked(w->session, w->turn, name, reads_here(w) ? &w->asked.from : NULL, w->stream, err);
}

/* Memory that is written where it is: it must have no other user, and get no bytes that may still fail. */
static bool is_fixed_locked(const struct gb_device_write *w) {
    const struct gb_buffer *b = gb_buffer_find_locked(w->session, &w->params.buffer.name, NULL);

    return w->asked.in_place || (b && (b->rec.mirrored || b->rec.adopted));
}

/* Returns true if the write waits. */
static bool wait_locked(struct gb_device_write *w) {
    bool side = w->what == GB_DEVICE_WRITE_SYNC || w->what == GB_DEVICE_WRITE_RESERVE;
    struct gb_after *after = &w->turn->after;
    struct gb_after *source = &w->turn->source;

    w->fixed = is_fixed_locked(w);
    after->late = true;
    w->waiting = waits_locked(w, after, side || w->asked.in_place ? GB_TURN_ENDED : stage_seen(w, after, false));
    if (!reads_here(w))
        return w->waiting > 0;
    source->reached_locked = source_reached_locked;
    w->waiting += waits_locked(w, source, w->fixed ? GB_TURN_ENDED : stage_seen(w, source, true));
    return w->waiting > 0;
}

void gb_device_write_accept(const struct gb_locator *at, const struct gb_name *stream, struct gb_turn *turn,
                            struct gb_device_write *w) {
    struct gb_error err = GB_ERROR_INIT;
    bool waits = false;
    int r;

    w->turn = turn ? turn : gb_turn_new();
    w->session = w->turn ? gb_op_session(w->core, &at->session, &err) : NULL;
    if (!w->session) {
        if (!w->turn)
            gb_no_memory(&err);
        gb_device_write_fail(w, &err);
        return;
    }
    gb_call_offer(&w->call->base, NULL, cancel_waiting, w);
    pthread_mutex_lock(&w->session->lock);
    r = take_turn_locked(w, &at->name, stream, &err);
    if (r == 0)
        waits = wait_locked(w);
    w->waited = waits;
    pthread_mutex_unlock(&w->session->lock);
    if (r < 0)
        w->error = err;
    if (!waits)
        run(w);
}

/* --- copy and fill ------------------------------------------------------------------------------------------------ */

/* The parameters of a destination that does not exist yet. */
static void describe_new(const struct gb_device_write_params *p, const struct gb_device_write *w,
                         struct gb_buffer_params *b) {
    const struct gb_buffer_rec *src = &w->source_rec;
    bool all = w->bytes == src->bytes;

    b->bytes = w->bytes;
    b->dtype = all ? src->dtype : GB_DTYPE_UINT8;
    b->shape = all ? src->shape : (struct gb_shape){.dims = 1, .dim = {w->bytes}};
    b->kind = src->kind;
    b->has_kind = true;
    b->device = src->device;
    b->has_device = true;
    if (src->kind == GB_KIND_DEVICE && gb_name_equal(&p->session, &p->from_session))
        b->pool = src->pool;
}

static void run_write(struct gb_device_write *w) {
    const struct gb_device_write_params *p = &w->asked;
    struct gb_error err = GB_ERROR_INIT;

    if (measure(w, p, &err) < 0) {
        gb_device_write_fail(w, &err);
        return;
    }
    w->from = p->from_offset;
    w->pattern = p->pattern;
    w->width = p->width;
    w->offset = p->offset;
    w->has_bytes = p->has_bytes;
    if (p->copy)
        describe_new(p, w, &w->params.buffer);
    gb_device_write_start(w);
}

void gb_buffer_write(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call) {
    enum gb_device_write_what what = params->copy ? GB_DEVICE_WRITE_COPY : GB_DEVICE_WRITE_FILL;
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct gb_device_write *w = gb_device_write_new(core, what, call);
    struct gb_error err = GB_ERROR_INIT;

    if (!w) {
        gb_turn_free(turn);
        if (params->check.free_arg)
            params->check.free_arg(params->check.arg);
        gb_no_memory(&err);
        gb_call_finish(&call->base, &err);
        return;
    }
    w->asked = *params;
    w->params = (struct gb_upload_params){.partial = true,
                                          .in_place = params->in_place,
                                          .wait_ms = params->wait_ms,
                                          .to_device_side = !params->to_host_side,
                                          .side_named = params->side_named,
                                          .holder = params->holder,
                                          .check = params->check};
    w->params.buffer.session = params->session;
    w->params.buffer.name = params->name;
    w->params.buffer.stream = params->stream;
    w->run = run_write;
    w->turn = turn;
    hold_now(core, w);
    gb_device_write_accept(&(struct gb_locator){params->session, params->name}, &params->stream, turn, w);
}
