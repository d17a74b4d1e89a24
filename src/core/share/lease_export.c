/* Leases without a connection: any process that has the handle maps the memory, for a time. And the leases that end
 * without a request. */
#include "base/clock.h"
#include "core/access/tokens.h"
#include "core/share/lease_internal.h"

void gb_lease_export(struct gb_core *core, const struct gb_export_params *params, struct gb_lease_call *call) {
    struct gb_lease_params map = {.session = params->session,
                                  .name = params->name,
                                  .write = params->write,
                                  .ways = 1u << GB_EXPORT_LEGACY,
                                  .wait_ms = params->wait_ms,
                                  .ttl_s = params->ttl_s,
                                  .caller = params->caller};
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

    if (gb_lease_span_s(lease) == 0)
        return false;
    pthread_mutex_lock(&lease->session->lock);
    is = lease->step == GB_LEASE_LIVE && lease->expires_ns <= now_ns;
    pthread_mutex_unlock(&lease->session->lock);
    return is;
}

/* With a reference, or NULL: there is none after that. timed: or nothing that has an end of its own. */
static struct gb_lease *next(struct gb_leases *table, bool timed, int64_t *id) {
    struct gb_lease *lease = NULL;

    pthread_mutex_lock(&table->lock);
    if (!timed || table->timed > 0)
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

    while ((lease = next(core->leases, true, &id))) {
        if (due(lease, now_ns))
            gb_lease_close(lease, true);
        gb_lease_unref(lease);
    }
}

bool gb_lease_revoked(const struct gb_lease *lease) {
    struct gb_core *core = lease->core;

    return lease->caller > 0 && gb_tokens_required(core) && !gb_tokens_in_force(core, lease->caller);
}

void gb_leases_recheck(struct gb_core *core) {
    struct gb_lease *lease;
    int64_t id = 0;

    while ((lease = next(core->leases, false, &id))) {
        if (gb_lease_revoked(lease))
            gb_lease_close(lease, true);
        gb_lease_unref(lease);
    }
}
