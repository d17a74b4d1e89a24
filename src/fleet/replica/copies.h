/* Copies and their holders, as the files of this folder know them. */
#ifndef GB_FLEET_REPLICA_COPIES_H
#define GB_FLEET_REPLICA_COPIES_H

#include "fleet/replica/replica.h"

#define GB_REPLICA_SUFFIX ".copies"
#define GB_REPLICA_CHECK_MS 10000 /* at what has not changed as far as is known */

/* Copies of one session. The thread "gb-replica" alone changes them; told is for all, by the lock of the replicas. */
struct gb_copy {
    struct gb_arrival arrival;
    uint64_t number;              /* of the listing under which they came; 0: none did yet */
    uint64_t edition;             /* that the owner knows to be here, complete; 0: none */
    uint64_t checked_ms;          /* when the owner was asked last */
    uint64_t shed_ms;             /* when it gave way to something else; 0: it did not */
    uint64_t taken;               /* the epoch at which this node has taken the session over; 0: it has not */
    struct gb_session_call *take; /* an operator wants it taken over; NULL: none does. By the lock, as told */
    struct gb_replica_copies published;
    uint64_t published_number;
};

/* A holder of a session of this node. */
struct gb_holder_state {
    struct gb_fleet_holder is;
    uint64_t begun;       /* the edition that was told when it began; 0: it has not */
    uint64_t known;       /* the edition that it knows */
    bool complete;        /* and has all of */
    uint64_t heard_ms;    /* when it said something last */
    uint64_t notified_ms; /* when it was called last */
    uint64_t notified;    /* for that edition */
    uint64_t buffers;
    uint64_t bytes;
    char problem[GB_REPLICA_PROBLEM_SIZE];
};

/* A session of this node that has holders, or is to have. By the lock but for what the thread "gb-holders" alone
 * uses. */
struct gb_replicated {
    struct gb_name session;
    char claim[GB_FLEET_CLAIM_SIZE];
    struct gb_holder_state holders[GB_FLEET_HOLDERS_MAX];
    size_t count;
    bool written;       /* the directory has these holders */
    unsigned round;     /* in which the session was seen last */
    uint64_t chosen_ms; /* when nodes were looked for last; of the thread */
};

/* A node that has refused. */
struct gb_refusal {
    struct gb_name node;
    uint64_t at_ms;
};
#define GB_REFUSALS_MAX 32

struct gb_replicas {
    struct gb_replicas_config config;
    pthread_t holder;
    pthread_t owner;
    struct gb_arrival waiter;    /* of the owner's thread: what it waits for */
    struct gb_arrival list_wait; /* of the holder's */

    pthread_mutex_t lock; /* a leaf, for the rest */
    pthread_cond_t woken;
    bool stopping;
    uint64_t needed_bytes;    /* of a device, for something else than copies; 0: none */
    unsigned wakes;           /* rise */
    struct gb_map copies;     /* by name: struct gb_copy */
    struct gb_map replicated; /* by name: struct gb_replicated */
    struct gb_map wanted;     /* by name: struct gb_name */
    struct gb_replica_stat stat;

    uint64_t listed_ms;          /* of the holder's thread: when it read what it is to keep; 0: never */
    bool cleaned;                /* nothing is left of the process before this one */
    struct gb_fleet_node *nodes; /* of the owner's thread, as they were listed last; NULL: never */
    size_t node_count;
    uint64_t nodes_ms;
    struct gb_refusal refusals[GB_REFUSALS_MAX]; /* of the owner's thread, oldest first */
    size_t refusal_count;
    unsigned round;
};

uint64_t gb_replicas_now_ms(void);

/* Looks at all that this node keeps. [gb-replica] */
void gb_copies_update(struct gb_replicas *replicas);
/* How long until the next look. */
unsigned gb_copies_pause_ms(struct gb_replicas *replicas);
void gb_copies_free(struct gb_replicas *replicas);

/* The owner is away. Returns GB_TAKEN if the session is this node's from now on, 0 if it stays as it is, -1.
 * [gb-replica] */
#define GB_TAKEN 2

#endif
