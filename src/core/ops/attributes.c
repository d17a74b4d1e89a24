/* What the native layer says of a buffer's memory. It is held meanwhile: memory whose free is queued is never asked
 * about. */
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/memory/kind.h"
#include "core/session/op.h"

struct attr_op {
    struct gb_op base; /* first */
    struct gb_task task;
    struct gb_attributes_call *call;
    struct gb_content *content[2]; /* of a mirrored buffer: host side, device side */
};

static void finish(struct attr_op *op, const struct gb_error *error) {
    gb_content_drop(op->content[0], NULL, NULL);
    gb_content_drop(op->content[1], NULL, NULL);
    gb_op_end(&op->base, error);
}

static int ask(struct gb_content *c, struct gb_mem_attr *ret, struct gb_error *err) {
    struct gb_location place = gb_content_location(c, 0);

    return gb_mem_attributes(c->device->core->backend, &place, c->kind == GB_KIND_DEVICE ? c->pool->pool : NULL, ret,
                             err);
}

/* On the lane. */
static void ask_all(struct gb_task *task) {
    struct attr_op *op = gb_container_of(task, struct attr_op, task);
    struct gb_mem_attr *attr = &op->call->attr;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_mem_attr host;
    struct gb_content *h = op->content[0];
    struct gb_content *d = op->content[1];
    int r = 0;

    if (h && h->ptr)
        r = ask(h, attr, &err);
    host = *attr;
    if (r == 0 && d && d->ptr)
        r = ask(d, attr, &err);
    if (r == 0 && h && h->ptr && d && d->ptr)
        attr->host_address = host.host_address;
    finish(op, r < 0 ? &err : NULL);
}

static int hold_locked(struct attr_op *op, const struct gb_name *name, int *ret_device, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(op->base.session, name, err);
    struct gb_content *c;
    int i;

    if (!b)
        return -1;
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of \"%s\" are lost; upload it again", name->s);
    if (gb_buffer_want_locked(op->base.session, b, err) < 0)
        return -1;
    for (i = 0; i < 2; i++) {
        c = b->rec.mirrored ? b->sides[i] : (i == GB_SIDE_DEVICE ? b->content : NULL);
        op->content[i] = c ? gb_content_ref(c) : NULL;
    }
    gb_buffer_copy_locked(b, &op->call->buffer);
    *ret_device = b->rec.device;
    return 0;
}

static void result_done(struct gb_call *call) {
    gb_buffer_rec_done(&gb_container_of(call, struct gb_attributes_call, base)->buffer);
}

void gb_buffer_attributes(struct gb_core *core, const struct gb_locator *at, struct gb_attributes_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct attr_op *op = gb_op_new(sizeof(*op), gb_op_session(core, &at->session, &err), &call->base, NULL, NULL, &err);
    int device = 0;
    int r;

    if (!op)
        return;
    op->call = call;
    call->base.free_result = result_done;
    call->attr = (struct gb_mem_attr){.type = GB_MEMORY_UNREGISTERED, .device = -1};
    pthread_mutex_lock(&op->base.session->lock);
    r = hold_locked(op, &at->name, &device, &err);
    pthread_mutex_unlock(&op->base.session->lock);
    if (r < 0 || (!op->content[0] && !op->content[1])) {
        finish(op, r < 0 ? &err : NULL);
        return;
    }
    op->task.run = ask_all;
    gb_lane_post(&core->devices[device].lane, &op->task);
}
