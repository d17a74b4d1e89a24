/* Uploads: what can be refused is refused before a byte was read. */
#include "core/upload/upload.h"

#include <stdlib.h>
#include <string.h>

static int check_quota_locked(struct gb_session *s, const struct gb_upload_params *params, const struct gb_plan *plan,
                              struct gb_error *err) {
    bool tell = !params->asked_before;
    int r = gb_quota_check_locked(s, plan->place ? 0 : plan->bytes, plan->buffer ? 0 : 1, tell, err);

    if (r == 0 && !plan->place && plan->kind == GB_KIND_PINNED)
        r = gb_quota_check_pinned_locked(s, plan->bytes, tell, err);
    if (r < 0 && err && tell)
        gb_quota_denied(s, err);
    return r;
}

int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_core_stream *stream = NULL;
    struct gb_session *s;
    struct gb_plan plan;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, &params->buffer.session, err);
    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_core_stream_use_locked(s, &params->buffer.stream, &stream, err);
    if (r == 0)
        r = gb_plan_make_locked(s, params, NULL, &plan, err);
    if (r == 0)
        r = check_quota_locked(s, params, &plan, err);
    pthread_mutex_unlock(&s->lock);
    gb_core_stream_unuse(stream);
    gb_session_unref(s);
    return r;
}

/* Takes what the plan needs: nothing when it fails. */
static int reserve_locked(struct gb_upload *u, const struct gb_plan *plan, struct gb_error *err) {
    struct gb_session *s = u->t.session;
    struct gb_buffer *b = plan->buffer;

    if (!b && gb_quota_take_locked(s, 0, 1, err) < 0)
        return -1;
    if (plan->place) {
        u->content = gb_content_ref(plan->place);
        b->in_place = plan->in_place;
    } else if (gb_content_new_locked(s, plan->pool, plan->kind, u->t.stream, &u->params.buffer.name, plan->bytes,
                                     &u->content, err) < 0) {
        if (b && !plan->mirrored && err && err->code == GB_ERR_QUOTA_EXCEEDED)
            strncat(err->detail, "; a write in place needs no second copy",
                    sizeof(err->detail) - strlen(err->detail) - 1);
        if (!b)
            gb_quota_give_locked(s, 0, 1);
        return -1;
    }
    u->counted = !b;
    if (plan->base)
        u->base = gb_content_ref(plan->base);
    return 0;
}

static int begin_locked(struct gb_upload *u, struct gb_error *err) {
    struct gb_plan plan;

    if (gb_core_stream_use_locked(u->t.session, &u->params.buffer.stream, &u->t.stream, err) < 0 ||
        gb_plan_make_locked(u->t.session, &u->params, u->write, &plan, err) < 0 || reserve_locked(u, &plan, err) < 0)
        return -1;
    u->t.device = u->content->device;
    u->params.partial = u->params.partial && plan.buffer;
    u->params.bytes = plan.payload;
    u->bytes = plan.bytes;
    u->at = plan.at;
    u->merge = plan.merge;
    u->zero = plan.zero;
    u->kind = plan.kind;
    u->in_place = plan.in_place;
    u->placed = plan.place != NULL;
    u->mirrored = plan.mirrored;
    u->side = plan.side;
    u->head = plan.head;
    u->was = plan.mirrored && plan.buffer ? plan.buffer->sides[plan.side] : NULL;
    u->pool_name = plan.pool_name;
    u->direct = !u->write && gb_kind_direct_in(u->t.device, plan.kind);
    if (plan.buffer) {
        u->base_id = plan.buffer->id;
        u->base_generation = plan.buffer->rec.generation;
    }
    return 0;
}

void gb_upload_start(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    unsigned i;

    for (i = 0; i < GB_UPLOAD_COPIES; i++)
        u->copies[i].transfer = &u->t;
    u->unstarted = false;
    if (!u->multipart)
        atomic_fetch_add(u->write ? &core->writes_running : &core->uploads_running, 1);
    gb_core_changed(core);
    gb_core_transfer_ref(&u->t); /* the lane's */
    if (u->placed) {
        u->task.run = gb_upload_prepare;
        gb_lane_post(&u->t.device->lane, &u->task);
        return;
    }
    u->alloc.content = u->content;
    u->alloc.done = gb_upload_allocated;
    u->alloc.anywhere = !u->base && !u->zero && !u->write && !u->direct;
    gb_alloc_start(&u->alloc, u->params.wait_ms);
}

struct gb_upload *gb_upload_make(struct gb_core *core, const struct gb_upload_params *params,
                                 struct gb_device_write *write, struct gb_error *err) {
    struct gb_session *s;
    struct gb_upload *u;
    int r;

    if (gb_core_alive(core, err) < 0)
        return NULL;
    s = gb_session_use(core, &params->buffer.session, err);
    if (!s)
        return NULL;
    u = calloc(1, sizeof(*u));
    if (!u) {
        gb_session_unref(s);
        gb_no_memory(err);
        return NULL;
    }
    u->params = *params;
    u->write = write;
    gb_core_transfer_init(&u->t, s, params->wake, params->arg, gb_upload_destroy);
    pthread_mutex_lock(&s->lock);
    r = begin_locked(u, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (r < 0) {
        gb_core_transfer_done(&u->t);
        free(u);
        return NULL;
    }
    return u;
}

int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err) {
    struct gb_upload *u = gb_upload_make(core, params, NULL, err);

    if (!u)
        return -1;
    gb_upload_start(u);
    *ret = u;
    return 0;
}

static bool hold(void *arg) {
    atomic_uint *refs = &((struct gb_upload *)arg)->t.refs;
    unsigned n = atomic_load(refs);

    while (n > 0 && !atomic_compare_exchange_weak(refs, &n, n + 1))
        ;
    return n > 0; /* else it is being taken down */
}

static bool cancel(void *arg, bool act) {
    struct gb_upload *u = arg;
    bool r = gb_upload_cancel(u, act);

    gb_core_transfer_unref(&u->t);
    return r;
}

int gb_upload_open_target(struct gb_core *core, const struct gb_upload_params *params, struct gb_multipart *multipart,
                          struct gb_upload **ret, struct gb_error *err) {
    struct gb_upload *u = gb_upload_make(core, params, NULL, err);

    if (!u)
        return -1;
    u->multipart = multipart;
    u->t.want_wake = true;
    gb_core_transfer_silence(&u->t);
    gb_upload_start(u);
    *ret = u;
    return 0;
}

int gb_upload_open(struct gb_core *core, const struct gb_upload_params *params, struct gb_device_write *write,
                   struct gb_error *err) {
    struct gb_upload *u = gb_upload_make(core, params, write, err);

    if (!u)
        return -1;
    write->upload = u;
    u->ended = true;
    u->t.want_wake = true;
    gb_core_transfer_ref(&u->t); /* it may come to its end meanwhile */
    gb_call_offer(&write->call->base, hold, cancel, u);
    gb_upload_start(u);
    gb_core_transfer_unref(&u->t);
    return 0;
}
