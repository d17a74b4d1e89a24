/* The beginning of an upload: every refusal that needs no bytes comes before the first byte is read. */
#include "core/upload/upload.h"

#include <stdlib.h>
#include <string.h>

#include "core/stored/disks.h"

/* Adds to a refusal for lack of room what this client may do instead. A host side is pinned always. */
static void advise(const struct gb_upload_draft *draft, struct gb_error *err) {
    static const char in_place[] = "; a write in place needs no second copy";

    if (draft->mirrored)
        return;
    if (draft->buffer) {
        gb_error_append(err, GB_ERR_QUOTA_EXCEEDED, in_place);
        gb_error_append(err, GB_ERR_PINNED_LIMIT, in_place);
    } else {
        gb_error_append(err, GB_ERR_PINNED_LIMIT, GB_QUOTA_OTHER_KIND);
    }
}

static int check_quota_locked(struct gb_session *s, const struct gb_upload_params *params,
                              const struct gb_upload_draft *draft, struct gb_error *err) {
    bool tell = !params->asked_before;
    int r = gb_quota_check_locked(s, draft->place ? 0 : draft->bytes, draft->buffer ? 0 : 1, tell, err);

    if (r == 0 && !draft->place && draft->kind == GB_KIND_PINNED)
        r = gb_quota_check_pinned_locked(s, draft->bytes, tell, err);
    if (r == 0 && draft->durability == GB_DURABILITY_SYNC)
        r = gb_quota_check_stored_locked(
            s, draft->buffer ? gb_buffer_more_stored(draft->buffer, draft->bytes) : draft->bytes, tell, err);
    if (r < 0 && err && tell)
        gb_quota_denied(s, err);
    if (r < 0)
        advise(draft, err);
    return r;
}

int gb_upload_check(struct gb_core *core, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_core_stream *stream = NULL;
    struct gb_session *s;
    struct gb_upload_draft draft;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use_held(core, params->session, &params->buffer.session, err);
    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_core_stream_use_locked(s, &params->buffer.stream, &stream, err);
    if (r == 0)
        r = gb_upload_draft_locked(s, params, &gb_upload_plain, NULL, &draft, err);
    if (r == 0)
        r = check_quota_locked(s, params, &draft, err);
    pthread_mutex_unlock(&s->lock);
    if (r == 0)
        r = gb_disks_check_room(core, draft.durability, draft.bytes, err);
    gb_core_stream_unuse(stream);
    gb_session_unref(s);
    return r;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

struct gb_upload *gb_upload_new(size_t size, const struct gb_upload_role *role) {
    struct gb_upload *u = calloc(1, size);

    if (!u)
        return NULL;
    u->role = role;
    gb_upload_pipeline_init(u);
    return u;
}

struct gb_upload_plan *gb_upload_plan_of(struct gb_upload *u) {
    return (struct gb_upload_plan *)(uintptr_t)&u->plan; /* constant for everyone else */
}

/* Reserves what the draft needs; nothing when it fails. */
static int reserve_locked(struct gb_upload *u, const struct gb_name *name, const struct gb_upload_draft *draft,
                          struct gb_error *err) {
    struct gb_session *s = u->t.session;
    struct gb_buffer *b = draft->buffer;

    if (!b && gb_quota_take_locked(s, 0, 1, err) < 0)
        return -1;
    if (draft->place) {
        u->content = gb_content_ref(draft->place);
        b->in_place = draft->in_place;
        b->overwritten = draft->place;
        u->marked = draft->in_place;
    } else if (gb_content_new_locked(s, draft->pool, draft->kind, u->t.stream, name, draft->bytes, &u->content, err) <
               0) {
        advise(draft, err);
        if (!b)
            gb_quota_give_locked(s, 0, 1);
        return -1;
    }
    u->counted = !b;
    if (draft->base)
        u->base = gb_content_ref(draft->base);
    return 0;
}

static void plan_params(struct gb_upload_plan *plan, const struct gb_upload_params *params) {
    plan->buffer = params->buffer;
    plan->view = params->view;
    plan->check = params->check;
    plan->wait_ms = params->wait_ms;
    plan->scattered = params->scattered;
}

static void plan_draft_locked(struct gb_upload_plan *plan, const struct gb_upload_params *params,
                              const struct gb_upload_draft *draft) {
    const struct gb_buffer *b = draft->buffer;

    plan->pool_name = draft->pool_name;
    plan->bytes = draft->bytes;
    plan->at = draft->at;
    plan->payload = draft->payload;
    plan->open_ended = draft->open_ended;
    plan->partial = params->partial && b;
    plan->merge = draft->merge;
    plan->zero = draft->zero;
    plan->placed = draft->place != NULL;
    plan->in_place = draft->in_place;
    plan->mirrored = draft->mirrored;
    plan->has_crc32c = draft->has_crc32c;
    plan->side = draft->side;
    plan->head = draft->head;
    plan->kind = draft->kind;
    if (!b)
        return;
    plan->was = draft->mirrored ? b->sides[draft->side] : NULL;
    plan->base_id = b->id;
    plan->base_generation = b->rec.generation;
}

static int plan_locked(struct gb_upload *u, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_upload_plan *plan = gb_upload_plan_of(u);
    struct gb_upload_draft draft;

    if (gb_core_stream_use_locked(u->t.session, &params->buffer.stream, &u->t.stream, err) < 0 ||
        gb_upload_draft_locked(u->t.session, params, u->role, u->owner, &draft, err) < 0 ||
        reserve_locked(u, &params->buffer.name, &draft, err) < 0)
        return -1;
    u->t.device = u->content->device;
    plan_draft_locked(plan, params, &draft);
    u->segments.until = draft.bytes;
    plan->direct = !draft.by_device && gb_kind_direct_in(u->t.device, draft.kind);
    u->crc = draft.crc32c;
    gb_write_through_begin_locked(u, &draft);
    return 0;
}

struct gb_upload *gb_upload_make(struct gb_core *core, const struct gb_upload_params *params,
                                 const struct gb_upload_role *role, void *owner, struct gb_error *err) {
    struct gb_session *s;
    struct gb_upload *u;
    int r;

    if (gb_core_alive(core, err) < 0)
        return NULL;
    s = gb_session_use_held(core, params->session,
                            role->upkeep ? gb_session_name(params->session) : &params->buffer.session, err);
    if (!s)
        return NULL;
    u = gb_upload_new(sizeof(*u), role);
    if (!u) {
        gb_session_unref(s);
        gb_no_memory(err);
        return NULL;
    }
    u->owner = owner;
    u->pending = 1; /* the preparation */
    plan_params(gb_upload_plan_of(u), params);
    gb_text_ref(params->buffer.labels);
    gb_core_transfer_init(&u->t, s, params->waker, gb_upload_destroy);
    pthread_mutex_lock(&s->lock);
    r = plan_locked(u, params, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (r < 0) {
        gb_core_transfer_done(&u->t);
        gb_text_unref(u->plan.buffer.labels);
        free(u);
        return NULL;
    }
    return u;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

void gb_upload_count_running(struct gb_upload *u, _Atomic uint64_t *running) {
    u->running = running;
    if (running)
        atomic_fetch_add(running, 1);
    gb_core_changed(u->t.core);
}

void gb_upload_run(struct gb_upload *u, _Atomic uint64_t *running) {
    gb_upload_count_running(u, running);
    gb_core_transfer_ref(&u->t); /* the lane's */
    if (u->plan.placed) {
        u->task.run = gb_upload_prepare;
        gb_lane_post(&u->t.device->lane, &u->task);
        return;
    }
    gb_upload_allocate(u);
}

void gb_upload_start(struct gb_upload *u, _Atomic uint64_t *running) {
    (void)gb_upload_step(u, GB_UPLOAD_ALLOCATING);
    gb_upload_run(u, running);
}

int gb_upload_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_upload **ret,
                    struct gb_error *err) {
    bool grows = params->open_ended && !params->partial;
    struct gb_upload_params p = *params;
    struct gb_upload *u;

    p.fresh = p.fresh || grows; /* no memory that is there has the size */
    u = gb_upload_make(core, &p, grows ? &gb_upload_growing : &gb_upload_plain, NULL, err);
    if (!u)
        return -1;
    gb_upload_start(u, &core->uploads_running);
    *ret = u;
    return 0;
}
