/* Copies and their holders, as the files of this folder share them. "gb-replica" is the thread that keeps copies for
 * other nodes; "gb-holders" is the one that finds nodes for copies of this node's sessions. */
#ifndef GB_FLEET_REPLICA_COPIES_H
#define GB_FLEET_REPLICA_COPIES_H

#include "fleet/replica/replica.h"

#define GB_REPLICA_SUFFIX ".copies"
#define GB_REPLICA_CHECK_MS 10000 /* between two checks of what seems unchanged */

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Copies of one session. Only the thread "gb-replica" changes them. Any thread reads `published`, with the lock. */
struct gb_copy {
    struct gb_arrival arrival;
    uint64_t number;              /* of the listing that they came under; 0: no copy has come */
    uint64_t edition;             /* that the owner knows to be complete here; 0: none */
    uint64_t checked_ms;          /* when the owner was asked last */
    uint64_t shed_ms;             /* when they were dropped because memory was short; 0: never */
    uint64_t taken;               /* the epoch at which this node took the session over; 0: it did not */
    struct gb_session_call *take; /* of an operator who asked for a takeover, or NULL. By the lock */
    struct gb_replica_copies published;
    uint64_t published_number;
};

/* --- holders ------------------------------------------------------------------------------------------------------ */

/* A holder of a session of this node. */
struct gb_holder_state {
    struct gb_fleet_holder is;
    uint64_t begun;       /* the edition that it was given when it began; 0: it has not begun */
    uint64_t known;       /* the edition that it knows */
    bool complete;        /* and of which it has everything */
    uint64_t heard_ms;    /* when it reported last */
    uint64_t notified_ms; /* when it was notified last */
    uint64_t notified;    /* of that edition */
    uint64_t buffers;
    uint64_t bytes;
    char problem[GB_REPLICA_PROBLEM_SIZE];
};

/* A session of this node that has holders, or is to have some. By the lock, except what only the thread "gb-holders"
 * uses. */
struct gb_replicated {
    struct gb_name session;
    char claim[GB_FLEET_CLAIM_SIZE];
    struct gb_holder_state holders[GB_FLEET_HOLDERS_MAX];
    size_t count;
    bool written;       /* the directory has these holders */
    unsigned round;     /* in which the session was listed last */
    uint64_t chosen_ms; /* when nodes were chosen last; of the thread */
};

/* A node that has refused. */
struct gb_refusal {
    struct gb_name node;
    uint64_t at_ms;
};
#define GB_REFUSALS_MAX 32

/* --- both threads ------------------------------------------------------------------------------------------------- */

struct gb_replicas {
    struct gb_replicas_config config;
    pthread_t replica_thread;    /* gb-replica */
    pthread_t holders_thread;    /* gb-holders */
    struct gb_arrival waiter;    /* waits on gb-holders */
    struct gb_arrival list_wait; /* waits on gb-replica */

    pthread_mutex_t lock; /* a leaf, for the rest */
    pthread_cond_t woken;
    bool stopping;
    uint64_t needed_bytes;    /* device memory that something else than copies needs; 0: none */
    unsigned wakes;           /* counts wakes */
    struct gb_map copies;     /* by name: struct gb_copy */
    struct gb_map replicated; /* by name: struct gb_replicated */
    struct gb_map wanted;     /* by name: struct gb_name */
    struct gb_replica_stat stat;

    uint64_t listed_ms;          /* of gb-replica: when it read the list of sessions; 0: never */
    bool cleaned;                /* the copies of the process before this one are deleted */
    struct gb_fleet_node *nodes; /* of gb-holders: the last list; NULL: no list yet */
    size_t node_count;
    uint64_t nodes_ms;
    struct gb_refusal refusals[GB_REFUSALS_MAX]; /* of gb-holders, oldest first */
    size_t refusal_count;
    unsigned round;
};

uint64_t gb_replicas_now_ms(void);

/* Checks and updates all copies that this node keeps. [gb-replica] */
void gb_copies_update(struct gb_replicas *replicas);
/* How long until the next check. */
unsigned gb_copies_pause_ms(struct gb_replicas *replicas);
void gb_copies_free(struct gb_replicas *replicas);

/* --- holders of copies -------------------------------------------------------------------------------------------- */

/* Reconciles the holders of all sessions of this node with their `replicas`. Returns the milliseconds until the next
 * time. [gb-holders] */
unsigned gb_holders_reconcile(struct gb_replicas *replicas);
void gb_holders_free(struct gb_replicas *replicas);

/* Chooses a node as one more holder of the session: alive, reachable, with room for the bytes, and in a new zone if
 * possible. Of two random ones that fit it takes the one with more memory. NULL: no node fits. Pure. */
const struct gb_fleet_node *gb_holder_choose(const struct gb_fleet_node *nodes, size_t count,
                                             const struct gb_arrival_config *is, const struct gb_replicated *replicated,
                                             const struct gb_refusal *refusals, size_t refusal_count, uint64_t bytes,
                                             uint32_t (*random)(void *arg), void *arg);

#endif
