/* The table behind lease.h. */
#ifndef GB_CORE_SHARE_LEASE_TABLE_H
#define GB_CORE_SHARE_LEASE_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "core/public/types.h"
#include "core/util/idlist.h"

struct gb_core;

TAILQ_HEAD(gb_lease_list, gb_lease);
TAILQ_HEAD(gb_adoption_list, gb_adoption);

struct gb_leases {
    pthread_mutex_t lock;   /* a leaf: for the five below, and every holder's */
    struct gb_idlist by_id; /* those being made included */
    int64_t last_id;        /* begins with the clock, so that an id of an earlier process names no lease */
    uint64_t exports;       /* of them, without a connection */
    uint64_t timed;         /* of them, with an end of their own: exports, and leases with a greatest age */
    uint64_t adopted;       /* contents of memory of others, of all holders */
    uint64_t adopted_bytes; /* of them, the CPU's memory */
    atomic_uint_fast64_t last_holder;
    _Atomic uint64_t live; /* granted, not ended */
};

/* NULL when memory is exhausted. gb_leases_free accepts NULL. */
struct gb_leases *gb_leases_new(void);
void gb_leases_free(struct gb_leases *leases);
/* Ends all leases, without new generations. Their memory is freed by way of the lanes. */
void gb_leases_end(struct gb_core *core);
/* Ends the leases whose time is over. The housekeeper's thread. */
void gb_leases_expire(struct gb_core *core);
uint64_t gb_leases_adopted(struct gb_leases *leases);

/* Looks again at the leases that wait for their bytes. True while there are any. On the device's lane. */
struct gb_core_device;
bool gb_lease_again(struct gb_core_device *device);
/* The same for those that wait for their importer's event. */
bool gb_leases_finish(struct gb_core_device *device);

#endif
