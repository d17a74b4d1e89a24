/* Leases as clients see them. */
#include "core/share/lease_internal.h"

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
        gb_lease_not_found(id, err);
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
            gb_lease_ref(lease);
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
