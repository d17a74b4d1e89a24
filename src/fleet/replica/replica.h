/* Copies of sealed buffers at other nodes of the fleet: each node keeps the copies that owners ask it for, and, as the
 * owner of sessions, finds nodes that keep some of its own.
 *
 * An owner writes the holders of a session into the directory and tells them; they come and bring what they lack. What
 * they have is told by the editions of core/public/session.h: when all holders have told that they know an edition,
 * names that were given up by then are free. A holder keeps its copies in a session of its own, "NAME.copies", which
 * clients can read. They end with its process.
 *
 * A holder takes a session over whose owner is away if the session says so (failover_after_s). */
#ifndef GB_FLEET_REPLICA_REPLICA_H
#define GB_FLEET_REPLICA_REPLICA_H

#include "fleet/arrival/owner.h"

#define GB_REPLICA_PROBLEM_SIZE 256

struct gb_replicas;

struct gb_replicas_config {
    struct gb_arrival_config arrival; /* borrowed until gb_replicas_close, as what it points to */
    char who[GB_TICKET_WHO_MAX + 1];  /* in whose name other nodes are asked */
    uint64_t bytes_max;               /* of copies that this node keeps; 0: it keeps none */
};

/* Starts two threads. Returns 0, or -1 with INTERNAL. */
int gb_replicas_open(const struct gb_replicas_config *config, struct gb_replicas **ret, struct gb_error *err);
/* Ends what they do, and waits for them. Before the pulls, the fleet and the core are closed. NULL is accepted. */
void gb_replicas_close(struct gb_replicas *replicas);
/* Something has changed: it is looked at now. [any thread; takes a leaf lock] */
void gb_replicas_wake(struct gb_replicas *replicas);

/* --- at a holder -------------------------------------------------------------------------------------------------- */

/* The owner of that session wants copies here, or has others. LIMIT_REACHED: this node keeps none. */
int gb_replicas_want(struct gb_replicas *replicas, const struct gb_name *session, struct gb_error *err);
/* The session here in which the copies are that this node has as the holder of that number. Returns false if it has
 * none. */
bool gb_replicas_stage(struct gb_replicas *replicas, const struct gb_name *session, uint64_t number,
                       struct gb_name *ret);

/* Whether this node has copies for that session. */
bool gb_replicas_have(struct gb_replicas *replicas, const struct gb_name *session);
/* Makes this node the owner of a session whose owner is away, with the copies that it has. Result: call->session.
 * Errors: SESSION_NOT_FOUND, also without copies here; NODE_ALIVE, SUPERSEDED, DIRECTORY_UNAVAILABLE, SATURATED (one is
 * asked for already), DRAINING; those of gb_session_arrive. */
void gb_replicas_take(struct gb_replicas *replicas, const struct gb_name *session, struct gb_session_call *call);

struct gb_replica_copies {
    struct gb_name session;
    struct gb_name owner;
    struct gb_name stage; /* "": nothing has come yet */
    uint64_t buffers;
    uint64_t bytes;
    bool current;                          /* as the owner has said last */
    char problem[GB_REPLICA_PROBLEM_SIZE]; /* "": none */
};
/* What this node keeps, by the names of the sessions; the caller frees *ret with free(). Returns the number; 0 also
 * when memory is exhausted. */
size_t gb_replicas_list(struct gb_replicas *replicas, struct gb_replica_copies **ret);

/* --- at an owner -------------------------------------------------------------------------------------------------- */

/* That holder begins to compare what it has with what there is. *ret_edition: of what there is. SUPERSEDED: it is no
 * holder. */
int gb_replicas_begin(struct gb_replicas *replicas, const struct gb_name *session, const struct gb_name *node,
                      uint64_t number, uint64_t *ret_edition, struct gb_error *err);
/* It has nothing any more that there was not at that edition; and all that there was, unless it tells of a problem. */
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
/* The holders of a session of this node. Returns their number. */
size_t gb_replicas_holders(struct gb_replicas *replicas, const struct gb_name *session,
                           struct gb_replica_holder ret[GB_FLEET_HOLDERS_MAX]);

struct gb_replica_stat {
    uint64_t sessions; /* of which this node keeps copies */
    uint64_t buffers;
    uint64_t bytes;
    uint64_t bytes_max;
    uint64_t pulled_bytes; /* since the start, as the one below */
    uint64_t takeovers;
};
void gb_replicas_stat(struct gb_replicas *replicas, struct gb_replica_stat *ret);

#endif
