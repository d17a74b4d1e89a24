/* Leases and their holders as the files of this folder know them, and the table of them. */
#ifndef GB_CORE_SHARE_LEASE_H
#define GB_CORE_SHARE_LEASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/container.h"
#include "core/buffer/transaction.h"
#include "core/memory/alloc.h"
#include "core/public/share.h"
#include "core/public/types.h"
#include "core/util/sets.h"

/* The table behind public/share.h. */

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
/* Ends the leases whose time has ended. The housekeeper's thread. */
void gb_leases_expire(struct gb_core *core);
uint64_t gb_leases_adopted(struct gb_leases *leases);

/* Polls the leases that wait for their bytes. Returns true while any wait. On the device's lane. */
struct gb_core_device;
bool gb_lease_again(struct gb_core_device *device);
/* As above, for leases that wait for their importer's event. */
bool gb_leases_finish(struct gb_core_device *device);

/* A lease. lease.c keeps leases and ends them, map.c grants one. */

struct gb_holder {
    atomic_uint refs; /* the caller's until gb_holder_end, and each lease's */
    struct gb_core *core;
    uint64_t id;
    pid_t pid;
    uid_t uid;
    gid_t gid;

    /* The table's lock: */
    bool ended;
    uint64_t count;
    struct gb_lease_list leases; /* leases that the holder's end has not reached yet */
    uint64_t adopted;            /* contents of memory that it owns */
    struct gb_adoption_list adoptions;
};

void gb_holder_ref(struct gb_holder *holder);
void gb_holder_unref(struct gb_holder *holder); /* NULL is accepted */

enum gb_lease_step {
    GB_LEASE_MAKING, /* it holds the bytes, and was not granted yet */
    GB_LEASE_LIVE,
    GB_LEASE_FINISHING, /* it ends when its importer's event is complete */
    GB_LEASE_LEAVING,   /* the database stores the end */
    GB_LEASE_OVER
};

/* The durable part of a lease for writing, at its beginning and at its end. */
struct gb_lease_change {
    struct gb_transaction transaction; /* first */
    struct gb_lease *lease;
    bool decided; /* a failure after that is the database's */
};

struct gb_lease {
    struct gb_task task; /* first */
    atomic_uint refs;    /* its life's, and each lookup's */
    struct gb_core *core;
    struct gb_holder *holder;   /* a reference */
    struct gb_session *session; /* a reference */
    struct gb_content *content; /* a reference until the end */
    struct gb_pin pin;          /* on the content */
    struct gb_name buffer;
    int64_t buffer_id;
    unsigned ways;
    bool wants_finished;
    uint64_t max_age_s;                  /* 0: none */
    uint64_t caller;                     /* 0: none */
    uint64_t deadline_ns;                /* to be granted; then for its importer's event */
    struct gb_lease_change *transaction; /* NULL: it reads */
    struct gb_export export;             /* until it is granted */
    struct gb_event *event;              /* exported with the memory; NULL: none */
    struct gb_event *finished;           /* the importer records it; NULL: none */
    struct gb_lease *next_waiting;       /* the lane's */
    struct gb_lease_call *map;           /* the call that asked for it, until it is granted */
    struct gb_call *call;                /* to be finished: the same, then that of the end; NULL: none */
    struct gb_error error;               /* the error that the call is finished with */

    /* The session's lock: */
    enum gb_lease_step step;
    bool granted;
    bool cut; /* it ends as soon as it is made */
    enum gb_export_way way;
    int64_t since_us;
    uint64_t expires_ns; /* monotonic, from the grant on; 0: with its holder */
    int64_t expires_at_us;
    int64_t generation;

    /* The table's lock: */
    bool listed; /* in its holder's list */
    TAILQ_ENTRY(gb_lease) of_holder;
};

void gb_lease_unref(struct gb_lease *lease); /* without locks; NULL is accepted */

/* lease.c. Enters the lease into the table, its holder's list and its content's pins. LIMIT_REACHED, CANCELLED. The
 * session's lock is held. */
int gb_lease_enroll_locked(struct gb_lease *lease, struct gb_error *err);

/* The same, and readers get that content. *ret_head: the head of a mirrored buffer after a write to it. */
struct gb_buffer *gb_lease_current_locked(const struct gb_lease *lease, enum gb_head *ret_head);

void gb_notice_post_lease(const struct gb_lease *lease, enum gb_notice_type type);

/* Gives the importer an event of its own, or says why not. On the lane. */
void gb_lease_share_finished(struct gb_lease *lease);

/* Whether the grant that it was made under is no longer in force. */
bool gb_lease_revoked(const struct gb_lease *lease);

/* With a reference, or NULL with LEASE_NOT_FOUND. */
struct gb_lease *gb_lease_find(struct gb_core *core, int64_t id, struct gb_error *err);

/* lease.c. The caller names it no more, its leases live on. NULL is accepted. */
void gb_holder_unref(struct gb_holder *holder);

/* Withdraws a lease that has ended or was not granted, releases what it holds and finishes its call. Without locks;
 * drops the reference of its life. */
void gb_lease_dispose(struct gb_lease *lease);

/* Starts the transaction of a lease for writing: how->validate_locked and the steps that follow it. */
void gb_lease_commit(struct gb_lease *lease, const struct gb_transaction *how);
/* The new record of the buffer: other bytes than before, of unknown checksum. */
void gb_lease_describe(const struct gb_buffer *buffer, enum gb_head head, struct gb_buffer_rec *ret);
void gb_lease_apply_locked(struct gb_transaction *transaction, struct gb_buffer *buffer);

/* The longest time that it lives, from the grant on; 0: as long as its holder. */
static inline uint64_t gb_lease_span_s(const struct gb_lease *lease) {
    return lease->pin.ttl_s > 0 ? lease->pin.ttl_s : lease->max_age_s;
}

static inline struct gb_lease *gb_lease_of_pin(const struct gb_pin *pin) {
    return gb_container_of((struct gb_pin *)(uintptr_t)pin, struct gb_lease, pin);
}

static inline struct gb_lease *gb_lease_of(struct gb_transaction *transaction) {
    return ((struct gb_lease_change *)transaction)->lease;
}

#endif
