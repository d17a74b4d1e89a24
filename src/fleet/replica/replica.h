/* Copies of sealed buffers at other nodes of the fleet. Each node keeps the copies that owners ask it for. As the owner
 * of sessions it finds nodes that keep copies of its own.
 *
 * An owner writes the holders of a session into the directory and notifies them. Holders pull what they lack. A holder
 * reports the edition (core/public/session.h) that it knows. Names that were given up are free once all holders know
 * that edition. A holder keeps its copies in a session of its own, "NAME.copies", which clients can read. Copies end
 * with the holder's process.
 *
 * If a session permits it (failover_after_s), a holder takes it over while the owner is away. The API and the daemon
 * call these functions. */
#ifndef GB_FLEET_REPLICA_REPLICA_H
#define GB_FLEET_REPLICA_REPLICA_H

#include "fleet/arrival/owner.h"

#define GB_REPLICA_PROBLEM_SIZE 256

struct gb_replicas;

struct gb_replicas_config {
    struct gb_arrival_config arrival; /* borrowed until gb_replicas_close, with all that it points to */
    char who[GB_TICKET_WHO_MAX + 1];  /* in whose name this node asks others */
    uint64_t bytes_max;               /* the most bytes of copies here; 0: this node keeps no copies */
};

/* Starts two threads. Returns 0, or -1 with INTERNAL. */
int gb_replicas_open(const struct gb_replicas_config *config, struct gb_replicas **ret, struct gb_error *err);
/* Stops both threads and waits for them. Call it before the pulls, the fleet and the core are closed. NULL is
 * accepted. */
void gb_replicas_close(struct gb_replicas *replicas);
/* Something has changed: both threads check at once. [any thread; takes a leaf lock] */
void gb_replicas_wake(struct gb_replicas *replicas);

/* --- at a holder -------------------------------------------------------------------------------------------------- */

/* The owner of that session wants copies here, or has new ones. LIMIT_REACHED: this node keeps no copies. */
int gb_replicas_want(struct gb_replicas *replicas, const struct gb_name *session, struct gb_error *err);
/* Finds the local session that has the copies which this node keeps as the holder of that number. False: it has no
 * copies. */
bool gb_replicas_stage(struct gb_replicas *replicas, const struct gb_name *session, uint64_t number,
                       struct gb_name *ret);

/* Whether this node has copies for that session. */
bool gb_replicas_have(struct gb_replicas *replicas, const struct gb_name *session);
/* Makes this node the owner of a session whose owner is away, with the copies that it has. Result: call->session.
 * Errors: SESSION_NOT_FOUND, also without copies here; NODE_ALIVE, SUPERSEDED, DIRECTORY_UNAVAILABLE, DRAINING;
 * SATURATED: a takeover of it is running; those of gb_session_arrive. */
void gb_replicas_take(struct gb_replicas *replicas, const struct gb_name *session, struct gb_session_call *call);

struct gb_replica_copies {
    struct gb_name session;
    struct gb_name owner;
    struct gb_name stage; /* "": nothing has come yet */
    uint64_t buffers;
    uint64_t bytes;
    bool current;                          /* by the owner's last answer */
    char problem[GB_REPLICA_PROBLEM_SIZE]; /* "": none */
};
/* Lists the copies that this node keeps, by session. The caller frees *ret with free(). Returns the count; 0 also when
 * memory is exhausted. */
size_t gb_replicas_list(struct gb_replicas *replicas, struct gb_replica_copies **ret);

/* --- at an owner -------------------------------------------------------------------------------------------------- */

/* The holder begins to compare its copies with the owner's buffers. *ret_edition: the owner's edition. SUPERSEDED: the
 * node is not a holder. */
int gb_replicas_begin(struct gb_replicas *replicas, const struct gb_name *session, const struct gb_name *node,
                      uint64_t number, uint64_t *ret_edition, struct gb_error *err);
/* The holder has dropped everything that the owner did not have at that edition. Without a problem, it has all the
 * rest. */
int gb_replicas_done(struct gb_replicas *replicas, const struct gb_name *session, const struct gb_name *node,
                     uint64_t number, uint64_t edition, uint64_t buffers, uint64_t bytes, const char *problem,
                     struct gb_error *err);

struct gb_replica_holder {
    struct gb_name node;
    uint64_t buffers;
    uint64_t bytes;
    bool current;
    char problem[GB_REPLICA_PROBLEM_SIZE];
};
/* Lists the holders of a session of this node. Returns the count. */
size_t gb_replicas_holders(struct gb_replicas *replicas, const struct gb_name *session,
                           struct gb_replica_holder ret[GB_FLEET_HOLDERS_MAX]);

struct gb_replica_stat {
    uint64_t sessions; /* whose copies this node keeps */
    uint64_t buffers;
    uint64_t bytes;
    uint64_t bytes_max;
    uint64_t pulled_bytes; /* since the start, as the one below */
    uint64_t takeovers;
};
void gb_replicas_stat(struct gb_replicas *replicas, struct gb_replica_stat *ret);

#endif
