/* Buffers over memory that a client's process owns. The import runs on the slow lane, because it may take long. An
 * adoption ends with its owner, and its buffer is lost then. Handlers of adoptions call this, and holders when they
 * end. */
#include "core/share/adopt.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/memory/alloc.h"
#include "core/public/share.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"

static void adoption_over(void *arg);

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void adoption_unref(struct gb_adoption *adoption) {
    if (atomic_fetch_sub(&adoption->refs, 1) != 1)
        return;
    gb_holder_unref(adoption->holder);
    gb_session_unref(adoption->session);
    free(adoption);
}

/* The table's lock is held. */
static int enter(struct gb_leases *table, struct gb_adoption *adoption, struct gb_error *err) {
    const struct gb_core_config *config = &adoption->core->config;
    struct gb_holder *holder = adoption->holder;
    uint64_t max = config->adopted_max ? config->adopted_max : GB_ADOPTED_MAX;
    uint64_t bytes = config->adopted_bytes_max ? config->adopted_bytes_max : GB_ADOPTED_BYTES_MAX;
    uint64_t mine = config->holder_adopted_max ? config->holder_adopted_max : GB_HOLDER_ADOPTED_MAX;

    if (holder->ended)
        return gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended, and with it what it would own");
    if (holder->adopted >= mine)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "this connection has %llu adopted buffers, the permitted number; delete one first, or use "
                            "another connection",
                            (unsigned long long)holder->adopted);
    if (table->adopted >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "there are %llu adopted buffers, the permitted number (--max-adopted)",
                            (unsigned long long)table->adopted);
    if (adoption->host_bytes > bytes || table->adopted_bytes > bytes - adoption->host_bytes) {
        gb_error_set(err, GB_ERR_LIMIT_REACHED,
                     "%llu bytes of other processes' memory are adopted, and %llu is the permitted number "
                     "(--max-adopted-bytes); delete adopted buffers first",
                     (unsigned long long)table->adopted_bytes, (unsigned long long)bytes);
        gb_error_numbers(err, bytes, table->adopted_bytes, adoption->host_bytes);
        return -1;
    }
    TAILQ_INSERT_TAIL(&holder->adoptions, adoption, of_holder);
    adoption->listed = true;
    holder->adopted++;
    table->adopted++;
    table->adopted_bytes += adoption->host_bytes;
    return 0;
}

/* Makes the holder the owner of content's memory and enters it into the holder's list; content tells it of its end
 * (on_freed). host_bytes: of the CPU's memory that is to be mapped. LIMIT_REACHED, CANCELLED. The session's lock is
 * held. */
static int adoption_new_locked(struct gb_session *session, struct gb_holder *holder, const struct gb_name *buffer,
                               uint64_t host_bytes, struct gb_content *content, struct gb_error *err) {
    struct gb_adoption *adoption = calloc(1, sizeof(*adoption));
    struct gb_leases *table = session->core->leases;
    int r;

    if (!adoption)
        return gb_no_memory(err);
    atomic_init(&adoption->refs, 2);
    adoption->core = session->core;
    adoption->holder = holder;
    adoption->buffer = *buffer;
    adoption->host_bytes = host_bytes;
    pthread_mutex_lock(&table->lock);
    r = enter(table, adoption, err);
    pthread_mutex_unlock(&table->lock);
    if (r < 0) {
        free(adoption);
        return -1;
    }
    gb_holder_ref(holder);
    adoption->session = gb_session_ref(session);
    session->adopted++;
    content->owner = adoption;
    content->on_freed = adoption_over;
    return 0;
}

uint64_t gb_leases_adopted(struct gb_leases *leases) {
    uint64_t n;

    pthread_mutex_lock(&leases->lock);
    n = leases->adopted;
    pthread_mutex_unlock(&leases->lock);
    return n;
}

/* Whether the list's reference is the caller's now. */
static bool unlist(struct gb_adoption *adoption) {
    bool listed = adoption->listed;

    if (listed)
        TAILQ_REMOVE(&adoption->holder->adoptions, adoption, of_holder);
    adoption->listed = false;
    return listed;
}

/* Frees an adoption whose import has ended or never began. Without locks; NULL is accepted. */
static void adoption_over(void *arg) {
    struct gb_adoption *adoption = arg;
    struct gb_leases *table;
    bool listed;

    if (!adoption)
        return;
    table = adoption->core->leases;
    pthread_mutex_lock(&adoption->session->lock);
    adoption->session->adopted--;
    pthread_mutex_unlock(&adoption->session->lock);
    gb_session_touch(adoption->session); /* until now it was in use */
    pthread_mutex_lock(&table->lock);
    listed = unlist(adoption);
    adoption->holder->adopted--;
    table->adopted--;
    table->adopted_bytes -= adoption->host_bytes;
    pthread_mutex_unlock(&table->lock);
    gb_core_changed(adoption->core);
    if (listed)
        adoption_unref(adoption);
    adoption_unref(adoption);
}

/* --- the owner goes ----------------------------------------------------------------------------------------------- */

/* An adoption that the holder's end has not reached yet, with the list's reference. */
static struct gb_adoption *next_of(struct gb_holder *holder) {
    struct gb_leases *table = holder->core->leases;
    struct gb_adoption *adoption;

    pthread_mutex_lock(&table->lock);
    holder->ended = true;
    adoption = TAILQ_FIRST(&holder->adoptions);
    if (adoption)
        unlist(adoption);
    pthread_mutex_unlock(&table->lock);
    return adoption;
}

/* Takes the owner's memory from the buffer. Returns the contents to be dropped. */
static struct gb_content *take_locked(struct gb_session *s, struct gb_buffer *b, const struct gb_adoption *adoption) {
    int side;

    for (side = 0; side < GB_SIDES; side++) {
        if (b->sides[side] && b->sides[side]->owner == adoption)
            return gb_buffer_lose_side_locked(s, b, side);
    }
    return b->content && b->content->owner == adoption ? gb_buffer_lose_locked(s, b) : NULL;
}

static void adoption_cut(struct gb_adoption *adoption) {
    struct gb_session *s = adoption->session;
    struct gb_content *lost = NULL;
    struct gb_content *next;
    struct gb_buffer_rec rec;
    struct gb_notice notice;
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    adoption->cut = true;
    b = gb_map_get(&s->buffers, adoption->buffer.s);
    if (b && b->live)
        lost = take_locked(s, b, adoption);
    if (lost) {
        gb_buffer_look_locked(b, &rec);
        notice = gb_notice_of_buffer(s, &rec,
                                     rec.state == GB_BUFFER_LOST ? GB_NOTICE_BUFFER_LOST : GB_NOTICE_BUFFER_CHANGED);
        gb_notice_post(s->core, &notice);
    }
    pthread_mutex_unlock(&s->lock);
    for (; lost; lost = next) { /* this may be a thread that must not wait for a device */
        next = lost->next;
        gb_content_drop_later(lost);
    }
    gb_core_changed(adoption->core);
    adoption_unref(adoption);
}

void gb_adoptions_end(struct gb_holder *holder) {
    struct gb_adoption *adoption;

    while ((adoption = next_of(holder)))
        adoption_cut(adoption);
}

/* --- adopt -------------------------------------------------------------------------------------------------------- */

/* Adopting, from the call to the buffer. The device is asked on its slow lane, because that may take long. */

struct adopt_op {
    struct gb_buffer_op base; /* first */
    struct gb_task task;
    struct gb_core_device *device;
    struct gb_adopt_params params;
    struct gb_content *content; /* until the buffer has it, then what it replaced; it owns its adoption */
    bool counted;               /* a new buffer's place in the quota is reserved; the session's lock */
};

static struct adopt_op *op_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct adopt_op, base);
}

/* Closes a client's descriptor, which may take as long as the client likes. */
static void put_fd(struct gb_core *core, int fd) {
    if (fd >= 0 && core->config.closer)
        gb_closer_put(core->config.closer, fd);
    else if (fd >= 0)
        close(fd);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void finish(void *arg) {
    struct adopt_op *op = arg;

    gb_buffer_op_end(&op->base, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct adopt_op *op = op_of(transaction);
    struct gb_content *c = op->content;

    if (op->counted) {
        pthread_mutex_lock(&op->base.base.session->lock);
        gb_quota_give_locked(op->base.base.session, 0, 1);
        pthread_mutex_unlock(&op->base.base.session->lock);
    }
    op->content = NULL;
    gb_content_drop_list(c, finish, op);
}

/* --- the record --------------------------------------------------------------------------------------------------- */

static int cut(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended, and with it what it would own");
}

static int check_side(const struct gb_adopt_params *p, const struct gb_buffer *b, struct gb_error *err) {
    if (!b->rec.mirrored)
        return gb_error_set(err, GB_ERR_BUFFER_EXISTS,
                            "the buffer \"%s\" is there and has no sides: delete it, or choose another name", b->name);
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (p->has_device && p->import.device != b->rec.device)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the buffer \"%s\" is on device %d and stays there", b->name,
                            b->rec.device);
    return gb_guard_check_unsealed_locked(b, err);
}

/* b: the buffer that has the name, or NULL. */
static int check_name(const struct gb_adopt_params *p, const struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_check_locked(&p->check, b, err) < 0)
        return -1;
    if (!b)
        return 0;
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_guard_check_unsealed_locked(b, err);
    if (p->has_side)
        return check_side(p, b, err);
    return gb_error_set(err, GB_ERR_BUFFER_EXISTS,
                        "there is a buffer named \"%s\", and its bytes are not lost: delete it first, or choose "
                        "another name",
                        b->name);
}

static void describe_place(const struct adopt_op *op, struct gb_buffer_rec *rec) {
    const struct gb_adopt_params *p = &op->params;
    bool stays = p->has_side && rec->mirrored && rec->device == op->device->index;

    rec->device = op->device->index;
    rec->kind = p->has_side ? gb_core_usual_kind(op->device) : op->content->kind;
    if (!stays)
        rec->pool = rec->kind == GB_KIND_DEVICE ? op->device->pool->rec.name : (struct gb_name){""};
    rec->mirrored = p->has_side;
    rec->head = p->has_side ? gb_mirror_move(rec->head, gb_mirror_write(p->side, false)).next : GB_HEAD_UNINITIALIZED;
}

static void describe(const struct adopt_op *op, struct gb_buffer_rec *rec) {
    describe_place(op, rec);
    rec->bytes = op->params.import.bytes;
    rec->dtype = op->params.dtype;
    rec->shape = op->params.shape;
    rec->stream = op->base.base.session->standard->name;
    rec->state = GB_BUFFER_READY;
    rec->adopted = true;
    rec->durability = GB_DURABILITY_NONE; /* the owner writes without a word */
    rec->generation++;
    rec->version++;
    rec->has_crc32c = false;
    rec->crc32c = 0;
    rec->updated_at_us = gb_wall_us();
}

static const struct gb_adoption *adoption_of(const struct gb_content *content) {
    return content->owner;
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct adopt_op *op = op_of(transaction);

    if (adoption_of(op->content)->cut)
        return cut(err);
    if (check_name(&op->params, b, err) < 0)
        return -1;
    /* The side was imported for the device that the buffer was on. */
    if (b && op->params.has_side && b->rec.state != GB_BUFFER_LOST && b->rec.device != op->device->index)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    /* The lost buffer may have been deleted since. */
    if (!b && !op->counted) {
        if (gb_quota_take_locked(op->base.base.session, 0, 1, err) < 0)
            return -1;
        op->counted = true;
    }
    gb_buffer_rec_done(&transaction->rec);
    if (b)
        gb_buffer_copy_locked(b, &transaction->rec);
    else
        transaction->rec = (struct gb_buffer_rec){.name = op->params.name, .created_at_us = gb_wall_us()};
    describe(op, &transaction->rec);
    return 0;
}

/* If the owner ended while the database was busy, the buffer is lost as after any other end. */
static void take_all_locked(struct adopt_op *op, struct gb_buffer *b) {
    struct gb_buffer_rec *rec = &op->base.transaction.rec;
    bool cut = adoption_of(op->content)->cut;

    if (cut)
        rec->state = GB_BUFFER_LOST;
    gb_buffer_set_locked(op->base.base.session, b, rec, cut ? NULL : op->content);
    if (!cut)
        op->content = NULL;
}

static void take_side_locked(struct adopt_op *op, struct gb_buffer *b) {
    struct gb_session *s = op->base.base.session;
    bool cut = adoption_of(op->content)->cut;

    gb_buffer_set_locked(s, b, &op->base.transaction.rec, NULL);
    op->content = gb_buffer_set_side_locked(b, op->params.side, op->content);
    if (cut)
        gb_content_list_add(&op->content, gb_buffer_lose_side_locked(s, b, op->params.side));
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct adopt_op *op = op_of(transaction);

    op->base.call->created = !b->live;
    if (b->live && op->counted)
        gb_quota_give_locked(op->base.base.session, 0, 1);
    op->counted = false;
    if (op->params.has_side)
        take_side_locked(op, b);
    else
        take_all_locked(op, b);
    gb_buffer_copy_locked(b, &op->base.call->buffer);
}

/* --- the memory --------------------------------------------------------------------------------------------------- */

/* The CPU's memory is page-locked if the device can. */
static bool may_be_locked(const struct gb_adopt_params *p) {
    return p->import.way == GB_EXPORT_MEMFD;
}

static int lock_bytes(struct adopt_op *op, struct gb_error *err) {
    if (!may_be_locked(&op->params))
        return 0;
    if (gb_pinned_take(&op->device->core->pinned, op->params.import.bytes, err) < 0) {
        gb_quota_denied(op->base.base.session, err);
        return -1;
    }
    op->content->locked_bytes = op->params.import.bytes;
    return 0;
}

static void unlock_bytes(struct adopt_op *op) {
    gb_pinned_give(&op->device->core->pinned, op->content->locked_bytes);
    op->content->locked_bytes = 0;
}

/* On the slow lane. */
static void import(struct gb_task *task) {
    struct adopt_op *op = gb_container_of(task, struct adopt_op, task);
    struct gb_core *core = op->base.base.session->core;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_location place;
    int r = gb_mem_import(core->backend, &op->params.import, &place, &err);

    put_fd(core, op->params.import.fd);
    if (r < 0) {
        op->base.transaction.error = err;
        end(&op->base.transaction);
        return;
    }
    if (place.kind != GB_KIND_PINNED)
        unlock_bytes(op);
    op->content->kind = place.kind;
    op->content->ptr = place.ptr;
    gb_transaction_start(&op->base.transaction);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static int check(struct gb_core *core, const struct gb_adopt_params *p, struct gb_error *err) {
    const struct gb_import *what = &p->import;
    const struct gb_core_device *device;

    if (what->device < 0 || what->device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", what->device,
                            core->device_count);
    device = &core->devices[what->device];
    if (p->has_side && gb_core_offers(device, gb_core_usual_kind(device), err) < 0)
        return -1; /* the other side would be of no memory */
    if (p->has_side && (what->way == GB_EXPORT_MEMFD) != (p->side == GB_SIDE_HOST))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s",
                            p->side == GB_SIDE_HOST
                                ? "the host side is host memory: it is adopted by the way memfd"
                                : "the device side is memory of a GPU, and the way memfd brings host memory");
    if (what->bytes == 0)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "an adopted buffer has at least one byte; with a 'side', 0 bytes take the memory of that side of a "
            "mirrored buffer away");
    if (what->offset % GB_ADOPT_ALIGN != 0 || what->offset > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the offset %llu is no multiple of %d",
                            (unsigned long long)what->offset, GB_ADOPT_ALIGN);
    return gb_core_alive(core, err);
}

int gb_adopt_check(struct gb_core *core, const struct gb_adopt_params *p, struct gb_error *err) {
    struct gb_session *s = check(core, p, err) == 0 ? gb_session_use(core, &p->session, err) : NULL;
    const struct gb_buffer *b;
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &p->name, NULL);
    r = check_name(p, b, err);
    if (r == 0)
        r = gb_quota_check_locked(s, 0, b ? 0 : 1, true, err);
    if (r == 0 && may_be_locked(p))
        r = gb_pinned_check(&core->pinned, p->import.bytes, err);
    if (r < 0 && err)
        gb_quota_denied(s, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* Everything that the call will need, or nothing. */
static int reserve_locked(struct adopt_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    const struct gb_buffer *b = gb_buffer_find_locked(s, &op->params.name, NULL);

    if (gb_session_changeable_locked(s, err) < 0 || check_name(&op->params, b, err) < 0 ||
        (!b && gb_quota_take_locked(s, 0, 1, err) < 0))
        return -1;
    op->counted = !b;
    if (b && op->params.has_side && !op->params.has_device && b->rec.mirrored &&
        b->rec.device < s->core->device_count) {
        op->device = &s->core->devices[b->rec.device];
        op->params.import.device = b->rec.device;
    }
    op->content = gb_content_foreign_new(s, op->device, op->params.import.bytes);
    if (!op->content)
        return gb_no_memory(err);
    if (lock_bytes(op, err) < 0)
        return -1;
    return adoption_new_locked(s, op->params.holder, &op->params.name,
                               op->params.import.way == GB_EXPORT_MEMFD ? op->params.import.bytes : 0, op->content,
                               err);
}

/* NULL: the call has ended. */
static struct adopt_op *begin(struct gb_core *core, const struct gb_adopt_params *p, struct gb_buffer_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct adopt_op *op;

    if (check(core, p, &err) < 0) {
        if (p->check.free_arg)
            p->check.free_arg(p->check.arg);
        gb_call_finish(&call->base, &err);
        return NULL;
    }
    op = gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){p->session, p->name}, &p->check, call);
    if (!op)
        return NULL;
    op->params = *p;
    op->device = &core->devices[p->import.device];
    op->base.transaction.validate_locked = validate_locked;
    op->base.transaction.publish_locked = publish_locked;
    op->base.transaction.end = end;
    return op;
}

void gb_buffer_adopt(struct gb_core *core, const struct gb_adopt_params *params, struct gb_buffer_call *call) {
    struct adopt_op *op = begin(core, params, call);
    struct gb_session *s;
    int r;

    if (!op) {
        put_fd(core, params->import.fd);
        return;
    }
    s = op->base.base.session;
    pthread_mutex_lock(&s->lock);
    r = reserve_locked(op, &op->base.transaction.error);
    pthread_mutex_unlock(&s->lock);
    if (r == 0) {
        op->task.run = import;
        gb_lane_post(&op->device->slow, &op->task);
        return;
    }
    put_fd(core, params->import.fd);
    end(&op->base.transaction);
}
