#ifndef GB_FLEET_TENANT_H
#define GB_FLEET_TENANT_H

#include "fleet/state.h"

/* A tenant as it was read, for the transaction that depends on it. */
struct gb_tenant_guard {
    int64_t revision;
    uint64_t limit_bytes;
};
/* Add writing, or deleting, the tenant's key of the session. A session without a tenant is accepted. */
void gb_tenant_note(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_fleet_session *session);
void gb_tenant_erase(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const char *session);
/* Adds reading a tenant: its limit and its sessions are two results. */
void gb_tenant_read(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant);
/* Checks that the tenant, as it was read, has room for the session. TENANT_NOT_FOUND, TENANT_QUOTA_EXCEEDED. */
int gb_tenant_check(const struct gb_fleet *fleet, const struct gb_kvs *quota, const struct gb_kvs *sessions,
                    const struct gb_fleet_session *session, struct gb_tenant_guard *ret, struct gb_error *err);
/* Add comparing the tenant with what was read, and the change of it that makes concurrent transactions fail. */
void gb_tenant_guard(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const struct gb_tenant_guard *guard);
void gb_tenant_touch(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const struct gb_tenant_guard *guard);

#endif
