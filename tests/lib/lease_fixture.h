/* Blocking helpers for leases in the core's tests, and the importer's side of them. */
#ifndef LEASE_FIXTURE_H
#define LEASE_FIXTURE_H

#include "device_write_fixture.h"

/* A mapping in the importer. bytes is NULL for a way of sharing that the fixture does not map. */
struct core_mapping {
    int64_t id;
    enum gb_export_way way;
    enum gb_kind kind;
    struct gb_buffer_rec rec;
    char *bytes; /* of the buffer */
    void *base;
    size_t length;
    unsigned passed;
    char reason[384]; /* the reason of the last way that was not possible */
};

struct gb_holder *core_holder(struct gb_core *core); /* this process's pid and uid */

struct gb_lease_params core_map_params(struct gb_holder *holder, const char *session, const char *name, bool write);

/* Takes a lease and waits without a time limit. If ret is NULL, the memory is not mapped, but the lease exists. */
int core_map(struct gb_core *core, const struct gb_lease_params *params, struct core_mapping *ret,
             struct gb_error *err);
/* The same for a call that was begun with core_call_begin and gb_lease_map. */
int core_map_end(struct core_call *pending, struct core_mapping *ret, struct gb_error *err);
void core_mapping_done(struct core_mapping *mapping); /* unmaps the importer's memory and keeps the lease */

/* Ends a lease. holder NULL: not by its holder. */
int core_lease_end(struct gb_core *core, int64_t id, struct gb_holder *holder, struct gb_error *err);
int core_seal(struct gb_core *core, const char *session, const char *name, struct gb_error *err);
/* ret_held may be NULL. */
int core_delete_when_unmapped(struct gb_core *core, const char *session, const char *name, uint64_t *ret_held,
                              struct gb_error *err);

/* Uploads bytes that depend on seed to memory of that kind in the session "default". */
void core_put_kind(struct core_fixture *f, const char *name, enum gb_kind kind, uint64_t bytes, unsigned seed,
                   void *out);

/* An upload in place over such a buffer of kind pageable. */
struct gb_upload_params core_in_place(const char *name, uint64_t bytes);

/* Looks a lease up in the lists. */
unsigned core_leases(struct gb_core *core, struct gb_lease_view *ret, unsigned max);
struct gb_lease_view core_lease(struct gb_core *core, int64_t id); /* ends the test without one */

/* Asserts that no lease exists and that none holds memory. */
void core_until_unmapped(struct core_fixture *f);

#endif
