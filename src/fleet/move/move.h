/* Moves bring sessions of other nodes here. Their buffers are pulled while the owner continues to serve. Then its
 * writers wait for a moment, and the owner transfers the session.
 *
 * Until the transfer is decided, the buffers are in a session of their own, "NAME.arriving-EPOCH", which clients can
 * read. If this process ends before that, the directory says who owns the session. The API starts moves, the daemon
 * opens and closes them. */
#ifndef GB_FLEET_MOVE_MOVE_H
#define GB_FLEET_MOVE_MOVE_H

#include "fleet/arrival/owner.h"

#define GB_MOVES_MAX 4
#define GB_MOVE_SKIPPED_LISTED 16

struct gb_moves;

/* Borrows what config points to until gb_moves_close. Returns 0, or -1 with INTERNAL. */
int gb_moves_open(const struct gb_arrival_config *config, struct gb_moves **ret, struct gb_error *err);
/* Ends running moves with DRAINING and waits for their threads. Call it before the pulls, the fleet and the core are
 * closed. NULL is accepted. */
void gb_moves_close(struct gb_moves *moves);

struct gb_move_skip {
    struct gb_name name;
    enum gb_code code; /* CONTENT_LOST, BUFFER_PARTIAL, CONTENT_DAMAGED */
};

struct gb_move_call {
    struct gb_call base;
    struct gb_name session;
    struct gb_name former; /* the former owner; this node, if the session was here already */
    uint64_t former_epoch;
    uint64_t epoch;
    uint64_t buffers;
    uint64_t bytes;        /* of them */
    uint64_t pulled_bytes; /* including bytes that were pulled again after a change */
    unsigned rounds;
    uint64_t frozen_ns; /* how long writers waited */
    size_t skipped;     /* buffers whose bytes the owner did not have */
    size_t listed;      /* how many of them are in list */
    struct gb_move_skip list[GB_MOVE_SKIPPED_LISTED];
};

/* Brings the session here. who: in whose name the owner is asked ("": no tokens are in force). The call can be
 * cancelled until the owner is asked to transfer the session. Errors: SESSION_NOT_FOUND, DIRECTORY_UNAVAILABLE,
 * OWNER_ABSENT, NODE_UNREACHABLE, SATURATED, SUPERSEDED; SESSION_MOVING: a move of it is running, or its changes did
 * not end; SESSION_EXISTS: this node has a local session of the name; MAPPED, ADOPTED, BUFFER_BUSY: a buffer is in use
 * at the owner; those of gb_pull_start, and of memory that is short here. */
void gb_move_start(struct gb_moves *moves, const struct gb_name *session, const char *who, struct gb_move_call *call);

/* Whether a move of that session is running. NULL is accepted. [any thread] */
bool gb_moves_have(struct gb_moves *moves, const struct gb_name *session);

#endif
