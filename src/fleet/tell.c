/* What alive/N says of the node, and when it is written anew. */
#include <stdlib.h>

#include "fleet/internal.h"

void gb_member_describe(struct gb_fleet *fleet, struct gb_fleet_alive *ret, struct gb_fleet_node *node) {
    size_t i;

    *node = fleet->own;
    node->device_count = fleet->devices ? fleet->devices(fleet->app, node->devices) : 0;
    *ret = (struct gb_fleet_alive){.uuid = fleet->own.uuid, .incarnation = fleet->member.incarnation};
    ret->draining = atomic_load(&fleet->draining);
    ret->count = node->device_count;
    for (i = 0; i < ret->count; i++) {
        ret->free_bytes[i] = node->devices[i].free_bytes;
        ret->committed_bytes[i] = node->devices[i].committed_bytes;
    }
}

/* More than a twentieth of the device. */
static bool differs(uint64_t a, uint64_t b, uint64_t of) {
    return (a > b ? a - b : b - a) > of / 20;
}

static bool worth_telling(const struct gb_fleet *fleet, const struct gb_fleet_alive *now,
                          const struct gb_fleet_node *node) {
    const struct gb_member *m = &fleet->member;
    bool changed = now->count != m->told.count;
    size_t i;

    if (now->draining != m->told.draining)
        return true;
    for (i = 0; i < now->count && !changed; i++)
        changed = differs(now->free_bytes[i], m->told.free_bytes[i], node->devices[i].bytes) ||
                  differs(now->committed_bytes[i], m->told.committed_bytes[i], node->devices[i].bytes);
    return changed && gb_boot_ms() - m->told_ms >= 3 * gb_member_third_ms(fleet) / 2;
}

static void on_told(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;

    if (call->error.code != GB_OK || call->refusal != 0 || !call->txn.succeeded) {
        m->told = (struct gb_fleet_alive){.draining = !atomic_load(&fleet->draining)}; /* with the next renewal */
        return;
    }
    m->alive_revision = call->txn.revision;
    fleet->etcd.full = false;
    if (m->told.draining != atomic_load(&fleet->draining))
        gb_member_tell(fleet);
}

void gb_member_tell(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    struct gb_fleet_alive now;
    struct gb_fleet_node node;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char *text;

    if (!m->held || m->write.open)
        return;
    gb_member_describe(fleet, &now, &node);
    if (!worth_telling(fleet, &now, &node))
        return;
    text = gb_fleet_alive_write(&now, m->old_alive, NULL);
    if (!text)
        return;
    m->told = now;
    m->told_ms = gb_boot_ms();
    gb_fleet_key(fleet, "alive", fleet->own.name.s, NULL, key);
    gb_fleet_compare_meta(fleet, &txn);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, m->alive_revision);
    gb_txn_put(&txn, key, text, (int64_t)fleet->own.uuid);
    m->write.arg = fleet;
    m->write.done = on_told;
    gb_etcd_send(&fleet->etcd, &m->write, GB_ETCD_TXN, gb_txn_finish(&txn), gb_member_deadline(fleet), false,
                 GB_ETCD_PROBE);
    free(text);
}
