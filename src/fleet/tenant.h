#ifndef GB_FLEET_TENANT_H
#define GB_FLEET_TENANT_H

#include "fleet/state.h"

/* What was read of a tenant, for the transaction that depends on it. */
struct gb_tenant_guard {
    int64_t revision;
    uint64_t limit_bytes;
};
/* Adds the session to its tenant's, or takes it out; one without a tenant is accepted. */
void gb_tenant_note(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_fleet_session *session);
void gb_tenant_erase(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const char *session);
/* Reads a tenant: two results. */
void gb_tenant_read(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant);
/* Whether its tenant has room for the session, by what was read. TENANT_NOT_FOUND, TENANT_QUOTA_EXCEEDED. */
int gb_tenant_check(const struct gb_fleet *fleet, const struct gb_kvs *quota, const struct gb_kvs *sessions,
                    const struct gb_fleet_session *session, struct gb_tenant_guard *ret, struct gb_error *err);
/* Adds the comparison to a transaction, and the change that others compare. */
void gb_tenant_guard(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const struct gb_tenant_guard *guard);
void gb_tenant_touch(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const struct gb_tenant_guard *guard);

#endif
