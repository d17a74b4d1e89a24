/* Several daemons as one fleet: its nodes, and which of them has a session. Part of <gpubuf/gpubuf.h>.
 *
 * Any node answers these calls. A call with a session that is at another node is redirected there, and the library
 * follows: at most three times, with the ticket that the node gave in place of the token, which is sent to no other
 * host or port. No redirect from https to http is followed (BAD_ANSWER). The bytes of an upload are sent again from
 * their begin; those of a pipe cannot be once they were read (INPUT_FAILED). Mappings are never redirected (NOT_HERE).
 * A client that is opened with the owner_url of gpubuf_fleet_find() asks the owner at once.
 *
 * Each time that a session gets another owner its epoch rises. Answers tell it, and a client remembers the highest of
 * each session, of at most 64, and sends it along. A former owner that does not know of the other one refuses such a
 * request, and nothing is done (SUPERSEDED): find the owner again. The memory is of one client; gpubuf_fleet_expect()
 * gives it to another. */
#ifndef GPUBUF_FLEET_H
#define GPUBUF_FLEET_H

#include <gpubuf/calls.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUBUF_URL_SIZE 256

/* The node that was asked, within its fleet. */
struct gpubuf_fleet {
    char state[GPUBUF_WORD_SIZE]; /* joined, alone, expired, duplicate; none: it is in no fleet, and all below is "" */
    char since[GPUBUF_TIME_SIZE]; /* it is in that state */
    char why[256];                /* unless joined */
    char fleet[GPUBUF_NAME_SIZE]; /* name of the fleet */
    char node[GPUBUF_NAME_SIZE];  /* name of the node */
    char cluster_id[24];          /* of the directory */
    uint64_t incarnation;         /* of the daemon's process */
    bool draining;                /* no new session is placed there */
    char fleet_uuid[40];          /* of the fleet; "": the node does not know it yet */
    uint64_t room[4];
};

struct gpubuf_node {
    char name[GPUBUF_NAME_SIZE];
    char version[32];
    bool alive;           /* its lease is in force */
    bool draining;        /* no new session is placed there */
    uint64_t incarnation; /* 0 unless it is alive */
    uint64_t devices;     /* how many; the three below are sums over them, free and committed 0 unless it is alive */
    uint64_t bytes;       /* of memory */
    uint64_t free_bytes;  /* of them */
    uint64_t committed_bytes;  /* quotas of its sessions; those without one count by what they use */
    char url[GPUBUF_URL_SIZE]; /* in the network "default", else in the first; the JSON has all */
    uint64_t room[4];
};

/* A session that is registered in the fleet. */
struct gpubuf_fleet_session {
    char name[GPUBUF_NAME_SIZE];
    char node[GPUBUF_NAME_SIZE];     /* its owner */
    uint64_t epoch;                  /* rises each time that the owner changes */
    char on_partition[8];            /* serve, stop */
    struct gpubuf_opt quota_bytes;   /* of lists; not set: no limit */
    char url[GPUBUF_URL_SIZE];       /* of the session at its owner, "http://host:7070/v1/sessions/s"; not of lists */
    char owner_url[GPUBUF_URL_SIZE]; /* of its owner, as gpubuf_open() takes it; not of lists */
    bool owner_alive;                /* not of lists */
    bool stale;                      /* the directory is silent: this is what the node remembers */
    uint64_t absent_s;               /* how long the owner has not been alive */
    uint64_t room[4];
};

GPUBUF_LIST(node);
GPUBUF_LIST(fleet_session);

/* Reads what the daemon is in its fleet. Returns 0 or -1. Errors: those of every request. */
int gpubuf_fleet_get(gpubuf_client *client, struct gpubuf_fleet *ret, struct gpubuf_error *err);

/* Lists the nodes of the fleet, those that are not alive included. The caller frees *ret with
 * gpubuf_node_list_done(). Returns 0 or -1. Errors: DIRECTORY_UNAVAILABLE, UNSUPPORTED (there is no fleet). */
int gpubuf_node_list(gpubuf_client *client, struct gpubuf_node_list *ret, struct gpubuf_error *err);

/* Reads one node. node: its name. Returns 0 or -1. Errors: NODE_NOT_FOUND, DIRECTORY_UNAVAILABLE, UNSUPPORTED. */
int gpubuf_node_get(gpubuf_client *client, const char *node, struct gpubuf_node *ret, struct gpubuf_error *err);

/* Takes a node that is not alive, and its sessions, out of the directory. node: its name. Scope admin. Returns 0 or
 * -1. Errors: NODE_NOT_FOUND, NODE_ALIVE, DIRECTORY_UNAVAILABLE, UNSUPPORTED. */
int gpubuf_node_forget(gpubuf_client *client, const char *node, struct gpubuf_error *err);

/* Has new sessions placed elsewhere, or with draining false here again. node: its name; another node than that of the
 * client is asked by a redirect. Scope admin. Returns 0 or -1. Errors: NODE_NOT_FOUND, NODE_UNREACHABLE,
 * DIRECTORY_UNAVAILABLE, UNSUPPORTED. */
int gpubuf_node_drain(gpubuf_client *client, const char *node, bool draining, struct gpubuf_node *ret,
                      struct gpubuf_error *err);

/* Lists the sessions that are registered in the fleet. node: only those of that one; NULL: all. The caller frees *ret
 * with gpubuf_fleet_session_list_done(). Returns 0 or -1. Errors: DIRECTORY_UNAVAILABLE, UNSUPPORTED. */
int gpubuf_fleet_session_list(gpubuf_client *client, const char *node, const struct gpubuf_page *page,
                              struct gpubuf_fleet_session_list *ret, struct gpubuf_error *err);

/* Finds the owner of a session. Returns 0 or -1. Errors: SESSION_NOT_FOUND (the directory confirms it),
 * DIRECTORY_UNAVAILABLE, NODE_UNREACHABLE, UNSUPPORTED. */
int gpubuf_fleet_find(gpubuf_client *client, const char *session, struct gpubuf_fleet_session *ret,
                      struct gpubuf_error *err);

/* Which nodes may get a new session. */
struct gpubuf_place {
    const char *select;       /* a JSON object of labels that the node has; NULL: any node */
    const char *on_partition; /* serve, stop: what the owner does while it is cut off; NULL: serve */
    const char *tenant;       /* whose it is: of the fleet's tenants; NULL: of none */
    uint64_t room[3];
};

/* Makes a session at a node that has room for its quota, and registers it. params, place may be NULL; params->pool and
 * params->fleet are not for it. Returns 0 or -1. Errors: NO_NODE_FITS, SESSION_EXISTS, DIRECTORY_UNAVAILABLE,
 * INVALID_NAME, INVALID_ARGUMENT, UNSUPPORTED. */
int gpubuf_fleet_place(gpubuf_client *client, const char *session, const struct gpubuf_session_params *params,
                       const struct gpubuf_place *place, const struct gpubuf_how *how, struct gpubuf_fleet_session *ret,
                       struct gpubuf_error *err);

/* Tells a client the epoch of a session, as gpubuf_fleet_find() of another client said it. One that is not higher than
 * what the client knows changes nothing. Any thread. */
void gpubuf_fleet_expect(gpubuf_client *client, const char *session, uint64_t epoch);

/* Makes the client's node the owner of a session whose owner is not alive. The session is empty: bytes stay with the
 * former owner, which sets its session aside when it is back. Scope admin. ret: url and owner_url are "", node too
 * unless the answer names it. Returns 0 or -1. Errors: SESSION_NOT_FOUND, NODE_ALIVE (ask the owner itself),
 * SESSION_EXISTS (one of that name is at the node), SUPERSEDED (another node was faster), DIRECTORY_UNAVAILABLE,
 * UNSUPPORTED. */
int gpubuf_fleet_take(gpubuf_client *client, const char *session, struct gpubuf_fleet_session *ret,
                      struct gpubuf_error *err);

/* How a session went to another node. */
struct gpubuf_moved {
    char name[GPUBUF_NAME_SIZE];
    char node[GPUBUF_NAME_SIZE];        /* that has it now */
    uint64_t epoch;                     /* there */
    char url[GPUBUF_URL_SIZE];          /* of the session there */
    char former_node[GPUBUF_NAME_SIZE]; /* that had it; the same: it was there already */
    uint64_t former_epoch;
    uint64_t buffers;
    uint64_t bytes;           /* of them */
    uint64_t pulled_bytes;    /* with those that were brought again, as they had changed */
    uint64_t rounds;          /* how often the list of buffers was gone through; 0: it was there already */
    double frozen_ms;         /* how long writers waited */
    uint64_t skipped_buffers; /* whose bytes the former node had not; the JSON names the first ones */
    uint64_t room[4];
};

/* Brings a session to another node, with pools, streams and buffers. Its owner serves on meanwhile; writers wait for a
 * moment, five seconds at most (SESSION_MOVING), and entity tags begin anew. to: the node; NULL: the fleet chooses one
 * that is not draining. select: a JSON object of labels that the node must have, which does not go with to; NULL: any.
 * Blocks until the session is there, which may take minutes; a node that has no address is told to bring it, and ret
 * has its name and epoch 0 then. Scope admin. Returns 0 or -1. Errors: SESSION_NOT_FOUND,
 * OWNER_ABSENT, NODE_NOT_FOUND, NODE_UNREACHABLE, NO_NODE_FITS; MAPPED, ADOPTED, BUFFER_BUSY (what is done with its
 * buffers does not permit it); SESSION_MOVING (it is moved already, or its writers did not pause); SESSION_EXISTS (the
 * node has a local one of that name); QUOTA_EXCEEDED, OUT_OF_MEMORY, SOURCE_UNREACHABLE, DIRECTORY_UNAVAILABLE,
 * UNSUPPORTED. After an error the session is where it was, unless the connection broke. */
int gpubuf_fleet_move(gpubuf_client *client, const char *session, const char *to, const char *select,
                      struct gpubuf_moved *ret, struct gpubuf_error *err);

/* Takes a session whose owner is not alive out of the directory for good: the owner sets it aside when it is back. A
 * new one of that name may be made at once. Scope admin. Returns 0 or -1. Errors: SESSION_NOT_FOUND, NODE_ALIVE,
 * DIRECTORY_UNAVAILABLE, UNSUPPORTED. */
int gpubuf_fleet_delete(gpubuf_client *client, const char *session, struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
