/* Tenants: their limits, and the sum of their sessions' quotas, which never exceeds the limit. Each transaction that
 * adds bytes compares the tenant with what was read, and touches it. owner.c adds these parts to its transactions; the
 * API lists and changes tenants. */
#include "fleet/tenant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fleet/directory.h"
#include "fleet/state.h"
#include "model/model.h"

#define TENANTS_MAX 1000
#define SESSIONS_MAX 20000
#define TRIES_MAX 4

/* --- keys --------------------------------------------------------------------------------------------------------- */

void gb_tenant_note(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_fleet_session *session) {
    char bytes[24];

    if (session->tenant.s[0] == '\0')
        return;
    snprintf(bytes, sizeof(bytes), "%" PRIu64, session->quota_bytes);
    gb_fleet_put(fleet, txn, "tenants", session->tenant.s, session->name.s, bytes, 0);
}

void gb_tenant_erase(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const char *session) {
    if (tenant->s[0] == '\0')
        return;
    gb_fleet_delete(fleet, txn, "tenants", tenant->s, session);
}

static void read_range(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                       size_t limit) {
    struct gb_txn_range range = {.limit = limit};

    gb_fleet_get_all(fleet, txn, range, "", kind, name, name[0] != '\0' ? "" : NULL);
}

void gb_tenant_read(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant) {
    gb_fleet_get(fleet, txn, "quota", tenant->s, NULL, false);
    read_range(fleet, txn, "tenants", tenant->s, SESSIONS_MAX);
}

static uint64_t bytes_of(const struct gb_kv *kv) {
    uint64_t bytes = 0;

    return gb_parse_u64(kv->value, kv->bytes, &bytes) == GB_PARSE_OK ? bytes : 0;
}

static uint64_t add(uint64_t a, uint64_t b) {
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

int gb_tenant_check(const struct gb_fleet *fleet, const struct gb_kvs *quota, const struct gb_kvs *sessions,
                    const struct gb_fleet_session *session, struct gb_tenant_guard *ret, struct gb_error *err) {
    struct gb_fleet_tenant tenant = {.name = session->tenant};
    char own[GB_FLEET_KEY_SIZE];
    uint64_t others = 0;
    size_t i;

    if (quota->count == 0)
        return gb_error_set(err, GB_ERR_TENANT_NOT_FOUND,
                            "the fleet has no tenant \"%s\"; PUT /v1/fleet/tenants/%s makes one", session->tenant.s,
                            session->tenant.s);
    if (gb_fleet_tenant_read(quota->items[0].value, quota->items[0].bytes, &tenant, err) < 0)
        return -1;
    gb_fleet_key(fleet, "tenants", session->tenant.s, session->name.s, own);
    for (i = 0; i < sessions->count; i++)
        if (strcmp(sessions->items[i].key, own) != 0)
            others = add(others, bytes_of(&sessions->items[i]));
    if (tenant.limit_bytes != GB_UNLIMITED && add(others, session->quota_bytes) > tenant.limit_bytes)
        return gb_error_set(err, GB_ERR_TENANT_QUOTA_EXCEEDED,
                            "the sessions of tenant \"%s\" may have %" PRIu64 " bytes; the others have %" PRIu64
                            " by their quotas, and this one would have %" PRIu64,
                            session->tenant.s, tenant.limit_bytes, others, session->quota_bytes);
    ret->revision = quota->items[0].mod_revision;
    ret->limit_bytes = tenant.limit_bytes;
    return 0;
}

void gb_tenant_guard(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const struct gb_tenant_guard *guard) {
    gb_fleet_compare(fleet, txn, "quota", tenant->s, NULL, GB_TXN_MODIFIED, guard->revision);
}

void gb_tenant_touch(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_name *tenant,
                     const struct gb_tenant_guard *guard) {
    char *text = gb_fleet_tenant_write(guard->limit_bytes);

    if (text)
        gb_fleet_put(fleet, txn, "quota", tenant->s, NULL, text, 0);
    free(text);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

struct listing {
    struct gb_job job;
    struct gb_name only; /* "": all */
    struct gb_fleet_tenant *items;
    size_t count;
};

static void give_list(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct listing *l = gb_container_of(job, struct listing, job);
    struct gb_fleet_tenants *tenants = gb_container_of(ask, struct gb_fleet_tenants, ask);

    tenants->items = l->items;
    tenants->count = l->count;
    l->items = NULL;
}

static void free_listing(struct gb_job *job) {
    free(gb_container_of(job, struct listing, job)->items);
}

static struct gb_fleet_tenant *tenant_of(struct listing *l, const char *name, size_t n) {
    size_t i;

    for (i = 0; i < l->count; i++)
        if (strlen(l->items[i].name.s) == n && memcmp(l->items[i].name.s, name, n) == 0)
            return &l->items[i];
    return NULL;
}

static void add_session(struct listing *l, const struct gb_kv *kv, size_t prefix) {
    const char *name = kv->key + prefix;
    const char *slash = strchr(name, '/');
    struct gb_fleet_tenant *tenant = slash ? tenant_of(l, name, (size_t)(slash - name)) : NULL;

    if (!tenant)
        return;
    tenant->sessions++;
    tenant->used_bytes = add(tenant->used_bytes, bytes_of(kv));
}

static void on_listed(struct gb_etcd_call *call) {
    struct listing *l = gb_container_of((struct gb_job *)call->arg, struct listing, job);
    const struct gb_kvs *quota = gb_txn_result(&call->txn, 1);
    const struct gb_kvs *sessions = gb_txn_result(&call->txn, 2);
    struct gb_error err = GB_ERROR_INIT;
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (gb_job_check(&l->job) < 0)
        return;
    l->items = calloc(quota->count + 1, sizeof(*l->items));
    gb_fleet_key(l->job.fleet, "quota", "", NULL, prefix);
    for (i = 0; l->items && i < quota->count; i++) {
        struct gb_fleet_tenant *tenant = &l->items[l->count];

        if (gb_fleet_name_of(quota->items[i].key, prefix, &tenant->name) &&
            gb_fleet_tenant_read(quota->items[i].value, quota->items[i].bytes, tenant, NULL) == 0)
            l->count++;
    }
    gb_fleet_key(l->job.fleet, "tenants", "", NULL, prefix);
    for (i = 0; l->items && i < sessions->count; i++)
        add_session(l, &sessions->items[i], strlen(prefix));
    if (!l->items)
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for the list of tenants");
    else if (l->only.s[0] != '\0' && l->count == 0)
        gb_error_set(&err, GB_ERR_TENANT_NOT_FOUND, "the fleet has no tenant \"%s\"", l->only.s);
    if (err.code == GB_OK)
        gb_job_end(&l->job);
    else
        gb_job_fail(&l->job, &err);
}

static void start_listing(struct gb_job *job) {
    struct listing *l = gb_container_of(job, struct listing, job);
    struct gb_txn txn = {0};

    gb_fleet_read_meta(job->fleet, &txn, false);
    if (l->only.s[0] != '\0') {
        gb_tenant_read(job->fleet, &txn, &l->only);
    } else {
        read_range(job->fleet, &txn, "quota", "", TENANTS_MAX);
        read_range(job->fleet, &txn, "tenants", "", SESSIONS_MAX);
    }
    gb_job_txn(job, &txn, GB_ETCD_MAJORITY, on_listed);
}

void gb_fleet_list_tenants(struct gb_fleet *fleet, struct gb_fleet_tenants *tenants) {
    struct listing *l = gb_job_new(fleet, sizeof(*l), start_listing);

    tenants->items = NULL;
    tenants->count = 0;
    if (l) {
        l->only = tenants->only;
        l->job.give = give_list;
        l->job.free = free_listing;
    }
    gb_job_ask(fleet, l ? &l->job : NULL, &tenants->ask);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

struct setting {
    struct gb_job job;
    struct gb_name name;
    uint64_t limit_bytes;
    bool remove;
};

static void on_set(struct gb_etcd_call *call) {
    struct setting *s = gb_container_of((struct gb_job *)call->arg, struct setting, job);
    struct gb_error err = call->error;

    if (err.code == GB_OK && (call->refusal != 0 || !call->txn.succeeded))
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory is not this fleet's; try again");
    if (err.code == GB_OK)
        gb_job_end(&s->job);
    else
        gb_job_fail(&s->job, &err);
}

static void start_setting(struct gb_job *job) {
    struct setting *s = gb_container_of(job, struct setting, job);
    char *text = gb_fleet_tenant_write(s->limit_bytes);
    struct gb_txn txn = {0};

    gb_fleet_compare_meta(job->fleet, &txn);
    if (s->remove)
        gb_fleet_delete(job->fleet, &txn, "quota", s->name.s, NULL);
    else if (text)
        gb_fleet_put(job->fleet, &txn, "quota", s->name.s, NULL, text, 0);
    free(text);
    job->call.done = on_set;
    gb_etcd_send(&job->fleet->etcd, &job->call, GB_ETCD_TXN, gb_txn_finish(&txn), job->deadline_ms, true,
                 GB_ETCD_MAJORITY);
}

void gb_fleet_set_tenant(struct gb_fleet *fleet, struct gb_fleet_tenant_set *set) {
    struct setting *s = gb_job_new(fleet, sizeof(*s), start_setting);

    if (s) {
        s->name = set->name;
        s->limit_bytes = set->limit_bytes;
        s->remove = set->remove;
    }
    gb_job_ask(fleet, s ? &s->job : NULL, &set->ask);
}

/* --- more bytes for a session ------------------------------------------------------------------------------------- */

struct resizing {
    struct gb_job job;
    struct gb_fleet_session session; /* with its new quota */
    unsigned tries;
};

static void read_resized(struct resizing *r);

static void on_resized(struct gb_etcd_call *call) {
    struct resizing *r = gb_container_of((struct gb_job *)call->arg, struct resizing, job);
    struct gb_error err = call->error;

    if (err.code == GB_OK && (call->refusal != 0 || !call->txn.succeeded)) {
        if (++r->tries < TRIES_MAX) {
            read_resized(r);
            return;
        }
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the records change all the time; try again");
    }
    if (err.code == GB_OK)
        gb_job_end(&r->job);
    else
        gb_job_fail(&r->job, &err);
}

static void write_resized(struct resizing *r, struct gb_fleet_session *there, int64_t revision,
                          const struct gb_tenant_guard *guard) {
    struct gb_fleet *fleet = r->job.fleet;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};
    char *text;

    there->quota_bytes = r->session.quota_bytes;
    text = gb_fleet_session_write(there, &err);
    if (!text) {
        gb_job_fail(&r->job, &err);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "sessions", there->name.s, NULL, GB_TXN_MODIFIED, revision);
    gb_tenant_guard(fleet, &txn, &there->tenant, guard);
    gb_fleet_put(fleet, &txn, "sessions", there->name.s, NULL, text, 0);
    gb_tenant_touch(fleet, &txn, &there->tenant, guard);
    gb_tenant_note(fleet, &txn, there);
    free(text);
    r->job.call.done = on_resized;
    gb_etcd_send(&fleet->etcd, &r->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), r->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

static void on_read_resized(struct gb_etcd_call *call) {
    struct resizing *r = gb_container_of((struct gb_job *)call->arg, struct resizing, job);
    const struct gb_kvs *record = gb_txn_result(&call->txn, 1);
    struct gb_fleet_session there;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_tenant_guard guard;

    if (gb_job_check(&r->job) < 0)
        return;
    if (gb_own_record_read(record, &r->session.name, &there, &err) < 0 ||
        gb_own_record_check(r->job.fleet, &there, r->session.claim, &err) < 0 ||
        gb_tenant_check(r->job.fleet, gb_txn_result(&call->txn, 2), gb_txn_result(&call->txn, 3), &r->session, &guard,
                        &err) < 0)
        gb_job_fail(&r->job, &err);
    else
        write_resized(r, &there, record->items[0].mod_revision, &guard);
}

static void read_resized(struct resizing *r) {
    struct gb_fleet *fleet = r->job.fleet;
    struct gb_txn txn = {0};

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "sessions", r->session.name.s, NULL, false);
    gb_tenant_read(fleet, &txn, &r->session.tenant);
    gb_job_txn(&r->job, &txn, GB_ETCD_MAJORITY, on_read_resized);
}

static void start_resizing(struct gb_job *job) {
    read_resized(gb_container_of(job, struct resizing, job));
}

void gb_fleet_resize(struct gb_fleet *fleet, struct gb_fleet_resize *resize) {
    struct resizing *r = gb_job_new(fleet, sizeof(*r), start_resizing);

    if (r)
        r->session = resize->session;
    gb_job_ask(fleet, r ? &r->job : NULL, &resize->ask);
}
