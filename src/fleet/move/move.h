/* Sessions of other nodes of the fleet are brought here: their buffers are pulled while their owner serves on, its
 * writers wait for a moment, and the owner gives the session away.
 *
 * Until that is decided, what is brought is in a session of its own, "NAME.arriving-EPOCH", which clients can read. If
 * the process ends before it is decided, the directory says afterwards whose the session is. */
#ifndef GB_FLEET_MOVE_MOVE_H
#define GB_FLEET_MOVE_MOVE_H

#include "fleet/arrival/owner.h"

#define GB_MOVES_MAX 4
#define GB_MOVE_SKIPPED_LISTED 16

struct gb_moves;

/* What config points to is borrowed until gb_moves_close. Returns 0, or -1 with INTERNAL. */
int gb_moves_open(const struct gb_arrival_config *config, struct gb_moves **ret, struct gb_error *err);
/* Ends those that run with DRAINING, and waits for their threads. Before the pulls, the fleet and the core are closed.
 * NULL is accepted. */
void gb_moves_close(struct gb_moves *moves);

struct gb_move_skip {
    struct gb_name name;
    enum gb_code code; /* CONTENT_LOST, BUFFER_PARTIAL, CONTENT_DAMAGED */
};

struct gb_move_call {
    struct gb_call base;
    struct gb_name session;
    struct gb_name former; /* the node that had it; this one: it was here */
    uint64_t former_epoch;
    uint64_t epoch;
    uint64_t buffers;
    uint64_t bytes;        /* of them */
    uint64_t pulled_bytes; /* with those that were pulled again, as they had changed */
    unsigned rounds;
    uint64_t frozen_ns; /* how long writers waited */
    size_t skipped;     /* buffers whose bytes the owner had not */
    size_t listed;      /* of those, the first ones */
    struct gb_move_skip list[GB_MOVE_SKIPPED_LISTED];
};

/* Brings the session here. who: in whose name the owner is asked ("": no tokens are in force). The call can be
 * cancelled until the owner is asked to give the session away. Errors: SESSION_NOT_FOUND, DIRECTORY_UNAVAILABLE,
 * OWNER_ABSENT, NODE_UNREACHABLE; SESSION_MOVING: it is brought already, or its owner did not come to rest;
 * SESSION_EXISTS: this node has a local one of the name; MAPPED, ADOPTED, BUFFER_BUSY: what is done with it at its
 * owner does not permit it; SATURATED; SUPERSEDED; those of gb_pull_start and of what has no room here. */
void gb_move_start(struct gb_moves *moves, const struct gb_name *session, const char *who, struct gb_move_call *call);

/* Whether that session is being brought here at this moment. [any thread] NULL is accepted. */
bool gb_moves_have(struct gb_moves *moves, const struct gb_name *session);

#endif
