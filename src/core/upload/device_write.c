/* Copies, fills and syncs: uploads whose payload the device brings. They go the way of uploads from quota to commit; what
 * differs is planned and queued here. */
#include <stdlib.h>

#include "base/parse.h"
#include "core/upload/upload.h"

/* --- planning ------------------------------------------------------------------------------------------------------------------ */

static int out_of_bounds(const char *which, uint64_t offset, uint64_t bytes, uint64_t all, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "%llu bytes at offset %llu of the %s do not lie within its %llu bytes",
                        (unsigned long long)bytes, (unsigned long long)offset, which, (unsigned long long)all);
}

static bool within(uint64_t offset, uint64_t bytes, uint64_t all) {
    return offset <= all && bytes <= all - offset;
}

/* How many bytes, before anything is known of the destination. Of a fill without a number: not known yet. */
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

/* A copy makes what is not there. */
static int plan_new(struct gb_device_write *w, const struct gb_upload_params *p, struct gb_plan *plan,
                    struct gb_error *err) {
    if (w->what != GB_DEVICE_WRITE_COPY || w->offset > 0)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "session \"%s\" has no buffer named \"%s\" to write into",
                            p->buffer.session.s, p->buffer.name.s);
    plan->bytes = plan->payload = w->bytes;
    return 0;
}

int gb_device_write_plan(struct gb_device_write *w, const struct gb_upload_params *p, struct gb_plan *plan,
                         struct gb_error *err) {
    const struct gb_buffer *b = plan->buffer;

    if (!b)
        return plan_new(w, p, plan, err);
    if (w->what == GB_DEVICE_WRITE_SYNC &&
        (!b->rec.mirrored || b->id != w->source_rec.id || b->rec.generation != w->source_rec.generation ||
         b->rec.state != GB_BUFFER_READY))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    if (!w->has_bytes && w->what == GB_DEVICE_WRITE_FILL)
        w->bytes = w->offset <= b->rec.bytes ? b->rec.bytes - w->offset : 0;
    if (!within(w->offset, w->bytes, b->rec.bytes))
        return out_of_bounds("buffer", w->offset, w->bytes, b->rec.bytes, err);
    if (check_grain(w, err) < 0)
        return -1;
    plan->bytes = b->rec.bytes;
    plan->at = w->offset;
    plan->payload = w->bytes;
    plan->merge = w->bytes != b->rec.bytes;
    return gb_plan_mergeable(plan, err);
}

int gb_device_write_check_overlap(const struct gb_device_write *w, const struct gb_plan *plan, struct gb_error *err) {
    if (!w || !w->source || w->source != plan->place || w->what != GB_DEVICE_WRITE_COPY)
        return 0;
    if (w->bytes == 0 || w->from + w->bytes <= plan->at || plan->at + w->bytes <= w->from)
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "the source's %llu bytes at offset %llu and the destination's at offset %llu overlap in the same "
        "memory: choose others, or copy without in_place",
        (unsigned long long)w->bytes, (unsigned long long)w->from, (unsigned long long)plan->at);
}

/* --- on the lane ----------------------------------------------------------------------------------------------------------------- */

static int fill(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    struct gb_device_write *w = u->write;
    struct gb_location place = gb_content_location(u->content, u->at);

    w->way = GB_WAY_NONE;
    if (w->bytes == 0)
        return 0;
    if (w->what != GB_DEVICE_WRITE_FILL) /* the source is a mirrored buffer that nobody has written yet */
        return gb_content_zero(u->content, u->at, w->bytes, stream, err);
    return gb_location_fill(u->t.core->backend, &place, w->pattern, w->width, w->bytes / w->width, stream, err);
}

static void written(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *f = arg;
    struct gb_upload *u = gb_upload_of(f->transfer);

    gb_core_report_error(u->t.core, error);
    if (!error)
        gb_staged_copy_account(f);
    gb_content_drop_later(u->base);
    u->base = NULL;
    if (u->write->what == GB_DEVICE_WRITE_COPY) {
        gb_content_drop_later(u->write->source);
        u->write->source = NULL;
    }
    pthread_mutex_lock(&u->t.lock);
    u->pending--;
    if (error && u->t.error.code == GB_OK)
        u->t.error = *error;
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

int gb_device_write_queue(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_device_write *w = u->write;
    struct gb_staged_copy *f = &u->copies[0];

    if (gb_content_materialize(w->source, err) < 0)
        return -1;
    if (w->source && w->source->ready && gb_stream_wait(be, stream, w->source->ready->event, err) < 0)
        return -1;
    u->touched = true;
    if (w->source ? gb_content_move(u->content, u->at, w->source, w->from, w->bytes, stream, &w->way, err) < 0
                  : fill(u, stream, err) < 0)
        return -1;
    if (gb_staged_copy_close(f, err) < 0)
        return -1;
    pthread_mutex_lock(&u->t.lock);
    u->pending++;
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_ref(&u->t);
    if (gb_watch(be, f->end->event, written, f, err) == 0)
        return 0;
    pthread_mutex_lock(&u->t.lock);
    u->pending--;
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_unref(&u->t); /* never the last: the lane has one */
    return -1;
}

/* --- the call ---------------------------------------------------------------------------------------------------------------------- */

/* The upload has come to its end: it finishes the call when all of it is cleaned up. */
static void wake(void *arg) {
    struct gb_device_write *w = arg;
    struct gb_buffer_call *call = w->call;
    struct gb_upload *u = w->upload;
    int r;

    if (w->ended)
        return;
    r = gb_upload_result(u, &call->buffer, &call->created, &call->times, &w->error);
    if (r == 0)
        return;
    if (r > 0) /* one that was cancelled may be on its way still */
        call->way = w->way;
    call->copied = r > 0 && w->what == GB_DEVICE_WRITE_SYNC;
    w->ended = true;
    gb_upload_free(u);
}

void gb_device_write_end(struct gb_device_write *w) {
    struct gb_buffer_call *call = w->call;
    struct gb_error error = w->error;

    gb_content_drop_later(w->source); /* this may be a backend's thread */
    free(w);
    if (call)
        gb_call_finish(&call->base, error.code == GB_OK ? NULL : &error);
}

void gb_device_write_fail(const struct gb_buffer_check *check, struct gb_device_write *w, struct gb_buffer_call *call,
                          const struct gb_error *error) {
    if (check->free_arg)
        check->free_arg(check->arg);
    if (w) {
        w->error = *error;
        gb_device_write_end(w);
    } else {
        gb_call_finish(&call->base, error);
    }
}

struct gb_device_write *gb_device_write_new(enum gb_device_write_what what, struct gb_buffer_call *call) {
    struct gb_device_write *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->what = what;
    w->call = call;
    return w;
}

void gb_device_write_start(struct gb_core *core, struct gb_upload_params *p, struct gb_device_write *w) {
    struct gb_error err = GB_ERROR_INIT;

    p->wake = wake;
    p->arg = w;
    if (gb_upload_open(core, p, w, &err) < 0)
        gb_device_write_fail(&p->check, w, w->call, &err);
}

/* The source as it is now. */
static int hold(struct gb_core *core, const struct gb_device_write_params *p, struct gb_device_write *w,
                struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, &p->from_session, err);
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_buffer_hold_locked(s, &p->from, &w->source_rec, &w->source, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* What a destination that is not there would be like. */
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

void gb_buffer_write(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call) {
    struct gb_device_write *w = gb_device_write_new(params->copy ? GB_DEVICE_WRITE_COPY : GB_DEVICE_WRITE_FILL, call);
    struct gb_upload_params p = {.partial = true, .in_place = params->in_place, .wait_ms = params->wait_ms};
    struct gb_error err = GB_ERROR_INIT;

    if (!w) {
        gb_no_memory(&err);
        gb_device_write_fail(&params->check, NULL, call, &err);
        return;
    }
    if (gb_core_alive(core, &err) < 0 || (params->copy && hold(core, params, w, &err) < 0) ||
        measure(w, params, &err) < 0) {
        gb_device_write_fail(&params->check, w, call, &err);
        return;
    }
    w->from = params->from_offset;
    w->pattern = params->pattern;
    w->width = params->width;
    w->offset = params->offset;
    w->has_bytes = params->has_bytes;
    if (params->copy)
        describe_new(params, w, &p.buffer);
    p.buffer.session = params->session;
    p.buffer.name = params->name;
    p.buffer.stream = params->stream;
    p.to_device_side = !params->to_host_side;
    p.side_named = params->side_named;
    p.holder = params->holder;
    p.check = params->check;
    gb_device_write_start(core, &p, w);
}
