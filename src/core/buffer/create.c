/* Buffers are made: of zeros, with their first bytes, or as links to the bytes of another one. Handlers call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/durable/stored.h"
#include "core/memory/alloc.h"
#include "core/public/buffer.h"
#include "core/public/upload.h"
#include "core/session/quota.h"
#include "core/session/session.h"
#include "core/util/lane.h"

struct create {
    struct gb_buffer_op base; /* first */
    struct gb_buffer_params params;
    unsigned wait_ms; /* for memory */
    struct gb_alloc alloc;
    struct gb_core_stream *stream; /* used */
    struct gb_core_pool *pool;     /* a reference */
    struct gb_content *content;    /* until the buffer has it */
    bool counted;                  /* a place in the quota is reserved */
    char *head;                    /* params.head, owned; NULL: all zeros */
    struct gb_ev *end;             /* of its copy */
};

static struct create *create_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct create, base);
}

/* error may be part of op; GB_OK in it is success. */
static void finish(struct create *op, const struct gb_error *error) {
    if (op->end)
        gb_event_pool_give(&op->pool->device->events, op->end);
    gb_core_stream_unuse(op->stream);
    gb_core_pool_unref(op->pool);
    gb_text_unref(op->params.labels);
    free(op->head);
    gb_buffer_op_end(&op->base, error);
}

/* --- the record --------------------------------------------------------------------------------------------------- */

static int decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct create *op = create_of(transaction);
    struct gb_buffer_rec *rec = &transaction->rec;
    const struct gb_buffer_params *p = &op->params;

    const struct gb_session *s = op->base.base.session;

    (void)b;
    if (gb_kind_check_source(p->kind, op->pool, err) < 0)
        return -1;
    gb_buffer_rec_done(rec);
    *rec = (struct gb_buffer_rec){.name = p->name,
                                  .bytes = p->bytes,
                                  .dtype = p->dtype,
                                  .shape = p->shape,
                                  .kind = p->kind,
                                  .device = op->pool->device->index,
                                  .mirrored = p->mirrored,
                                  .durability = p->has_durability ? p->durability : s->rec.durability,
                                  .spill = p->has_spill ? p->spill : s->rec.spill,
                                  .resident = p->resident,
                                  .stream = op->stream->name,
                                  .state = GB_BUFFER_READY,
                                  .generation = 1,
                                  .version = 1,
                                  .labels = gb_text_ref(p->labels),
                                  .created_at_us = gb_wall_us()};
    rec->updated_at_us = rec->created_at_us;
    if (p->kind == GB_KIND_DEVICE)
        rec->pool = op->pool->rec.name;
    if (p->lost)
        rec->state = GB_BUFFER_LOST;
    rec->layout = p->dtype == GB_DTYPE_TENSORS ? rec->generation : 0;
    transaction->content = op->content;
    return gb_disks_check_durability(s->core, rec->durability, err);
}

static void apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct create *op = create_of(transaction);

    gb_buffer_set_locked(op->base.base.session, b, &transaction->rec, op->content);
    op->content = NULL;
    op->counted = false;
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
    op->base.call->created = true;
}

static void content_gone(void *arg) {
    struct create *op = arg;

    finish(op, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct create *op = create_of(transaction);

    if (op->counted) {
        pthread_mutex_lock(&op->base.base.session->lock);
        gb_quota_give_locked(op->base.base.session, 0, 1);
        pthread_mutex_unlock(&op->base.base.session->lock);
    }
    gb_content_drop(op->content, content_gone, op);
}

/* Runs on the lane. Most buffers are written before they are read. Memory that the CPU cannot access is therefore
 * zeroed only when its bytes are needed. */
static int zero(struct gb_content *c, struct gb_error *err) {
    if (c->bytes == 0)
        return 0;
    atomic_store(&c->blank, true);
    return c->kind == GB_KIND_DEVICE && !c->device->rec.cpu_access ? 0 : gb_content_materialize(c, err);
}

/* --- the first bytes ---------------------------------------------------------------------------------------------- */

static void proceed(struct create *op, const struct gb_error *error) {
    if (error->code == GB_OK)
        gb_transaction_proceed(&op->base.transaction);
    else
        gb_transaction_abandon(&op->base.transaction, error);
}

static void head_written(void *arg, const struct gb_error *error) {
    struct create *op = arg;
    struct gb_error err = GB_ERROR_INIT;

    gb_core_report_error(op->content->device->core, error);
    if (error)
        err = *error;
    proceed(op, &err);
}

/* Queues the first bytes behind the zeros of the others, and watches for their end. Runs on the lane. */
static int write_head(struct create *op, struct gb_stream *stream, struct gb_error *err) {
    struct gb_content *c = op->content;
    struct gb_backend *be = c->device->core->backend;
    struct gb_location from = {GB_KIND_PAGEABLE, c->device->index, op->head};
    struct gb_location to = gb_content_location(c, 0);
    enum gb_copy_way way;

    op->end = gb_event_pool_take(&c->device->events, err);
    if (!op->end || gb_content_materialize(c, err) < 0 ||
        (c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0))
        return -1;
    if (gb_mem_move(be, &to, &from, op->params.head_bytes, stream, &way, err) == 0 &&
        gb_event_record(be, op->end->event, stream, err) == 0 &&
        gb_poll_watch(be, op->end->event, head_written, op, err) == 0)
        return 0;
    gb_stream_sync(be, stream, NULL); /* a part may be queued, and reads from head */
    return -1;
}

static void allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct create *op = gb_container_of(alloc, struct create, alloc);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream *stream;

    if (gb_call_withdraw(op->base.base.call, &err) == 0 && error)
        err = *error;
    if (err.code == GB_OK)
        zero(op->content, &err);
    if (err.code == GB_OK && op->head &&
        gb_core_stream_part_make(op->stream, op->content->device->index, &stream, &err) == 0 &&
        write_head(op, stream, &err) == 0)
        return;
    proceed(op, &err);
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

/* Cancels a creation that waits for memory. */
static bool cancel(void *arg, bool act) {
    struct create *op = arg;

    if (act)
        atomic_store(&op->alloc.cancelled, true);
    return true;
}

/* Everything that the call will need, or nothing. */
static int reserve_locked(struct create *op, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    struct gb_core_pool *pool;

    if (gb_session_changeable_locked(s, err) < 0 ||
        gb_core_stream_use_locked(s, &op->params.stream, &op->stream, err) < 0)
        return -1;
    pool = gb_kind_pool_locked(s, &op->params, err);
    if (!pool || gb_kind_check_source(op->params.kind, pool, err) < 0 ||
        gb_core_offers(pool->device, op->params.kind, err) < 0 ||
        (op->params.mirrored && gb_kind_check_mirrored(pool->device, op->params.kind, err) < 0) ||
        gb_transaction_reserve_locked(&op->base.transaction, err) < 0)
        return -1;
    op->pool = gb_core_pool_ref(pool);
    if (gb_quota_take_locked(s, 0, 1, err) == 0) {
        if (op->params.mirrored || op->params.lost ||
            gb_content_new_locked(s, pool, op->params.kind, op->stream, &op->params.name, op->params.bytes,
                                  &op->content, err) == 0) {
            op->counted = true;
            return 0;
        }
        gb_error_append(err, GB_ERR_PINNED_LIMIT, GB_QUOTA_OTHER_KIND);
        gb_quota_give_locked(s, 0, 1);
    }
    return -1;
}

static int start(struct create *op, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    int r;

    op->params.kind = gb_kind_choose(s->core, &op->params);
    if (gb_kind_check_pool(op->params.kind, &op->params.pool, err) < 0)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = reserve_locked(op, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0)
        return -1;
    if (!op->content) { /* one without bytes, or a mirrored one, whose sides come when they are needed */
        gb_transaction_proceed(&op->base.transaction);
        return 0;
    }
    op->alloc.content = op->content;
    op->alloc.done = allocated;
    op->alloc.anywhere = !op->head;
    gb_call_offer(op->base.base.call, NULL, cancel, op);
    gb_alloc_start(&op->alloc, op->wait_ms);
    return 0;
}

static void run(struct create *op) {
    struct gb_error err = GB_ERROR_INIT;

    if (start(op, &err) == 0)
        return;
    if (op->base.transaction.buffer)
        gb_transaction_abandon(&op->base.transaction, &err);
    else
        finish(op, &err);
}

static void turned(struct gb_after *after) {
    run(after->owner);
}

/* What had the name is gone, or the creation is refused. */
static bool waits(struct create *op) {
    struct gb_session *s = op->base.base.session;
    struct gb_after *after = &op->base.turn->after;
    bool waits;

    pthread_mutex_lock(&s->lock);
    after->until = GB_TURN_ENDED;
    after->go = turned;
    after->owner = op;
    waits = gb_after_wait_locked(after);
    pthread_mutex_unlock(&s->lock);
    return waits;
}

void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call) {
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct create *op =
        gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){params->session, params->name}, NULL, call);
    struct gb_error err = GB_ERROR_INIT;

    if (!op) {
        gb_turn_free(turn);
        return;
    }
    op->params = *params;
    op->wait_ms = wait_ms;
    gb_text_ref(op->params.labels);
    if (params->head_bytes > 0 && !(op->head = malloc(params->head_bytes))) {
        gb_turn_free(turn);
        gb_no_memory(&err);
        finish(op, &err);
        return;
    }
    if (op->head)
        memcpy(op->head, params->head, params->head_bytes);
    op->base.transaction.validate_locked = decide_locked;
    op->base.transaction.publish_locked = apply_locked;
    op->base.transaction.end = end;
    op->base.turn = gb_turn_of_call(op->base.base.session, turn, &params->name, NULL, &params->stream, &err);
    op->base.transaction.turn = op->base.turn;
    if (!op->base.turn)
        finish(op, &err);
    else if (!waits(op))
        run(op);
}

/* --- links -------------------------------------------------------------------------------------------------------- */

/* A link writes nothing: the buffer gets the content of a sealed one, and a name of its own for the same file. */
struct link {
    struct gb_buffer_op base; /* first */
    struct gb_device_write_params params;
    struct gb_content *content; /* the source's: a reference, until the buffer has it. NULL: it is on disk alone */
    struct gb_stored *stored;   /* the source's, whose file is linked: a reference. NULL: none is */
    struct gb_content *gone;    /* what the buffer had */
    bool counted;               /* a place in the quota is reserved */
    struct gb_task task;
};

static struct link *link_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct link, base);
}

/* --- links: the file ---------------------------------------------------------------------------------------------- */

static int link_file(const struct link *op, struct gb_persist *p, struct gb_error *err) {
    const struct gb_stored *from = op->stored;
    struct gb_core *core = from->core;
    const struct gb_disk_name name = {p->rec->id, p->rec->generation | GB_DISK_LINKED,
                                      atomic_fetch_add(&core->file_tags, 1)};
    struct gb_stored_rec rec = from->rec;

    rec.buffer_id = p->rec->id;
    rec.generation = p->rec->generation;
    rec.run = p->rec->run;
    rec.file_generation = name.generation;
    rec.file_tag = name.run;
    if (gb_disk_link(core->config.disk, &from->name, rec.bytes, &name, err) < 0)
        return -1;
    p->stored = gb_stored_new(core, &rec);
    if (p->stored) {
        gb_stored_look_file(op->stored);
        gb_stored_look_file(p->stored);
        return 0;
    }
    gb_disk_remove(core->config.disk, &name);
    return gb_no_memory(err);
}

/* On a thread of the disk. Bytes in memory are written where no link can be made. */
static void bring(struct gb_task *task) {
    struct link *op = gb_container_of(task, struct link, task);
    struct gb_persist *p = &op->base.transaction.persist;
    struct gb_error err = GB_ERROR_INIT;

    if (link_file(op, p, &err) == 0) {
        p->done(p);
    } else if (op->content) {
        p->content = gb_content_ref(op->content);
        op->stored->core->persist(op->stored->core, p);
    } else {
        p->error = err;
        p->done(p);
    }
}

/* As core->persist. */
static void bring_start(struct gb_core *core, struct gb_persist *p) {
    struct link *op = link_of(gb_container_of(p, struct gb_transaction, persist));

    op->task.run = bring;
    gb_disks_post(core, &op->task);
}

/* --- links: the record -------------------------------------------------------------------------------------------- */

/* There is a file, which outlives the process and has what the buffer has. */
static bool has_file(const struct gb_buffer *b) {
    const struct gb_stored *stored = b->stored;

    return stored && stored->rec.generation == b->rec.generation && !stored->spilled && gb_stored_has_file(stored) &&
           !atomic_load(&stored->damaged);
}

static int check_source_locked(const struct link *op, struct gb_buffer *source, struct gb_error *err) {
    const struct gb_device_write_params *p = &op->params;
    struct gb_buffer_rec rec;

    if (gb_name_equal(&p->from, &p->name))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "\"%s\" cannot be a link to itself", p->name.s);
    if (!source->rec.sealed)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "\"%s\" is not sealed, and only bytes that never change are shared: seal it first (POST "
                            ".../seal), or copy it without share",
                            source->name);
    if (source->rec.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "\"%s\" is mirrored, and its sides are its own: copy it without share", source->name);
    if (gb_guard_check_complete_locked(source, "they are not shared: copy them without share", err) < 0)
        return -1;
    if (!p->from_check)
        return 0;
    gb_buffer_look_locked(source, &rec);
    return p->from_check((void *)(uintptr_t)p->from_tag, &rec, err);
}

static int check_target_locked(const struct link *op, const struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_check_locked(&op->base.check, b, err) < 0)
        return -1;
    if (!b)
        return 0;
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.mirrored)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "\"%s\" is mirrored, and its sides are its own: delete it first", b->name);
    return gb_guard_check_unsealed_locked(b, err) < 0
               ? -1
               : gb_adopted_check_locked(b, "it cannot become a link: delete it first", err);
}

/* What the buffer itself has stays: its labels, its durability. A new one is as durable as the source. */
static void describe(const struct gb_buffer *source, struct gb_buffer *b, struct gb_buffer_rec *rec,
                     const struct gb_name *name) {
    struct gb_buffer_rec from;

    gb_buffer_look_locked(source, &from);
    if (b) {
        gb_buffer_copy_locked(b, rec);
    } else {
        gb_buffer_rec_done(rec);
        *rec = (struct gb_buffer_rec){.name = *name,
                                      .durability = from.durability,
                                      .spill = from.spill,
                                      .resident = from.resident,
                                      .created_at_us = gb_wall_us()};
    }
    rec->bytes = from.bytes;
    rec->dtype = from.dtype;
    rec->shape = from.shape;
    rec->kind = from.kind;
    rec->device = from.device;
    rec->pool = from.pool;
    rec->stream = from.stream;
    rec->has_crc32c = from.has_crc32c;
    rec->crc32c = from.crc32c;
    rec->state = from.state;
    rec->head = from.head;
    rec->adopted = false;
    rec->generation++;
    rec->version++;
    rec->layout = rec->dtype == GB_DTYPE_TENSORS ? rec->generation : 0;
    rec->link_id = source->id;
    rec->link_generation = rec->generation;
    rec->updated_at_us = gb_wall_us();
}

static void give_up_source(struct link *op) {
    if (op->content)
        gb_content_drop_later(op->content);
    gb_stored_unref(op->stored);
    op->content = NULL;
    op->stored = NULL;
}

/* A link of that durability needs no bytes in memory. */
static bool takes_file(const struct gb_buffer *source, enum gb_durability durability) {
    return durability != GB_DURABILITY_NONE && has_file(source);
}

int gb_buffer_link_load(struct gb_core *core, const struct gb_device_write_params *p, struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, &p->session, NULL);
    struct gb_buffer *source;
    struct gb_buffer *b;
    int r = 0;

    if (!s)
        return 0;
    pthread_mutex_lock(&s->lock);
    source = gb_session_alive(s, NULL) == 0 ? gb_buffer_find_locked(s, &p->from, NULL) : NULL;
    b = source ? gb_buffer_find_locked(s, &p->name, NULL) : NULL;
    if (source && source->rec.sealed && !takes_file(source, b ? b->rec.durability : source->rec.durability))
        r = gb_buffer_want_locked(s, source, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* Holds what is linked, and plans the file. */
static int hold_source_locked(struct link *op, struct gb_buffer *source, struct gb_error *err) {
    struct gb_transaction *transaction = &op->base.transaction;
    bool file = takes_file(source, transaction->rec.durability);

    if (!file && gb_buffer_want_locked(op->base.base.session, source, err) < 0)
        return -1;
    op->content = source->content ? gb_content_ref(source->content) : NULL;
    op->stored = file ? gb_stored_ref(source->stored) : NULL;
    transaction->content = op->content;
    transaction->brings = file ? bring_start : NULL;
    return 0;
}

static int link_decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct link *op = link_of(transaction);
    struct gb_session *s = transaction->session;
    struct gb_buffer *source = gb_buffer_find_locked(s, &op->params.from, err);

    if (!source || check_target_locked(op, b, err) < 0 || check_source_locked(op, source, err) < 0)
        return -1;
    describe(source, b, &transaction->rec, &transaction->name);
    give_up_source(op);
    if (gb_disks_check_durability(s->core, transaction->rec.durability, err) < 0 ||
        hold_source_locked(op, source, err) < 0)
        return -1;
    if (!b && !op->counted) {
        if (gb_quota_take_locked(s, 0, 1, err) < 0)
            return -1;
        op->counted = true;
    }
    return 0;
}

static void link_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct link *op = link_of(transaction);
    struct gb_session *s = transaction->session;
    /* One that has the content still: the source may be gone. */
    struct gb_buffer *with = op->content ? op->content->of : NULL;
    bool has = b->live && b->content && b->content == op->content;

    op->base.call->created = !b->live;
    op->counted = op->counted && b->live;
    op->gone = gb_buffer_set_locked(s, b, &transaction->rec, op->content);
    if (!has) {
        op->content = NULL;
        if (with)
            gb_buffer_share_locked(b, with);
    }
    gb_buffer_copy_locked(b, &op->base.call->buffer);
}

static void link_finish(void *arg) {
    struct link *op = arg;

    gb_buffer_op_end(&op->base, &op->base.transaction.error);
}

static void link_end(struct gb_transaction *transaction) {
    struct link *op = link_of(transaction);

    if (op->counted) {
        pthread_mutex_lock(&op->base.base.session->lock);
        gb_quota_give_locked(op->base.base.session, 0, 1);
        pthread_mutex_unlock(&op->base.base.session->lock);
    }
    give_up_source(op);
    gb_content_drop(op->gone, link_finish, op);
}

void gb_buffer_link(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call) {
    struct gb_turn *turn = gb_call_take_turn(&call->base);
    struct link *op =
        gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){params->session, params->name}, &params->check, call);
    struct gb_error err = GB_ERROR_INIT;

    if (!op) {
        gb_turn_free(turn);
        return;
    }
    op->params = *params;
    op->base.transaction.validate_locked = link_decide_locked;
    op->base.transaction.publish_locked = link_apply_locked;
    op->base.transaction.end = link_end;
    op->base.transaction.whole = true;
    op->base.turn = gb_turn_of_call(op->base.base.session, turn, &params->name, &params->from, &params->stream, &err);
    op->base.transaction.turn = op->base.turn;
    if (op->base.turn) {
        op->base.turn->writes = true;
        gb_transaction_start(&op->base.transaction);
        return;
    }
    op->base.transaction.error = err;
    link_end(&op->base.transaction);
}
