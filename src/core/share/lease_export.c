/* Leases without a connection: any process that has the handle maps the memory, for a time. */
#include "base/clock.h"
#include "core/share/lease_internal.h"

void gb_lease_export(struct gb_core *core, const struct gb_export_params *params, struct gb_lease_call *call) {
    struct gb_lease_params map = {.session = params->session,
                                  .name = params->name,
                                  .write = params->write,
                                  .ways = 1u << GB_EXPORT_LEGACY,
                                  .wait_ms = params->wait_ms,
                                  .ttl_s = params->ttl_s};
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

    if (lease->pin.ttl_s == 0)
        return false;
    pthread_mutex_lock(&lease->session->lock);
    is = lease->step == GB_LEASE_LIVE && lease->expires_ns <= now_ns;
    pthread_mutex_unlock(&lease->session->lock);
    return is;
}

/* With a reference, or NULL: there is none after that, or nothing that has an end. */
static struct gb_lease *next(struct gb_leases *table, int64_t *id) {
    struct gb_lease *lease = NULL;

    pthread_mutex_lock(&table->lock);
    if (table->exports > 0)
        lease = gb_idlist_after(&table->by_id, *id, id);
    if (lease)
        gb_lease_ref(lease);
    pthread_mutex_unlock(&table->lock);
    return lease;
}

void gb_leases_expire(struct gb_core *core) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_lease *lease;
    int64_t id = 0;

    while ((lease = next(core->leases, &id))) {
        if (due(lease, now_ns))
            gb_lease_close(lease, true);
        gb_lease_unref(lease);
    }
}
