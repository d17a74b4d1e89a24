/* An arrival: a session of another node that comes here. It knows the owner and the local session ("stage") in which
 * the buffers arrive while the owner continues to serve. A move brings a session once; a holder of copies brings it
 * again and again.
 *
 * An arrival belongs to one thread, which may block. Any thread may call gb_arrival_stop. */
#ifndef GB_FLEET_ARRIVAL_OWNER_H
#define GB_FLEET_ARRIVAL_OWNER_H

#include <jansson.h>
#include <pthread.h>

#include "base/map.h"
#include "core/core.h"
#include "fleet/fleet.h"
#include "fleet/pull/pull.h"

#define GB_ARRIVAL_PULLS 8 /* of one session, at a time */

/* What an arrival needs; all borrowed. */
struct gb_arrival_config {
    struct gb_core *core;
    struct gb_fleet *fleet;
    struct gb_pulls *pulls;
    struct gb_name node;             /* this one */
    const struct gb_fleet_url *urls; /* of this node: the networks on which it may reach others */
    size_t url_count;
};

struct gb_arrival {
    struct gb_arrival_config config;
    struct gb_name session;
    char who[GB_TICKET_WHO_MAX + 1]; /* in whose name the owner is asked; "": no tokens are in force */
    char suffix[48];                 /* of the stage's name, after the session's name */
    bool only_sealed;                /* other buffers stay at the owner */
    uint64_t bytes_max;              /* the most bytes of its buffers here */

    pthread_mutex_t lock; /* for the four below */
    pthread_cond_t woken;
    bool stopped;
    enum gb_code why; /* why it was stopped: CANCELLED or DRAINING */
    bool decides;     /* it can no longer be cancelled */

    struct gb_fleet_session there; /* as the directory has it */
    struct gb_fleet_node owner;
    uint64_t absent_s;            /* for how long the owner has been away; 0: it is alive */
    char base[GB_FLEET_URL_SIZE]; /* the owner's URL; "": no common network */
    char origin[GB_PULL_ORIGIN_SIZE];
    struct gb_name stage; /* the session here; "": not made yet */
    int64_t stage_id;
    char claim[GB_FLEET_CLAIM_SIZE];
    char *described;     /* the owner's record of the session, as it was applied */
    json_t *listed;      /* while pools or streams are listed: the owner's, by name */
    struct gb_map items; /* by name: struct gb_arrival_item */
    uint64_t keys_after; /* keys that changed before this are here */
    bool keyless;        /* the owner does not list keys */
    unsigned round;
    uint64_t here;                      /* items whose bytes are here */
    uint64_t bytes;                     /* of those */
    uint64_t changed_bytes;             /* pulled in this round */
    uint64_t pulled_bytes;              /* in all */
    struct gb_error problem;            /* only_sealed: why a buffer did not come in this round */
    struct gb_arrival_pulling *pulling; /* while buffers are pulled */
};

struct gb_arrival_item {
    struct gb_name name;
    char *facts; /* fields of the record, as they are here */
    char made[40];
    uint64_t generation;      /* of the bytes here; 0: not here */
    struct gb_name link;      /* "": none; it is to get the bytes of that sealed buffer */
    uint64_t link_generation; /* of the owner's link */
    uint64_t bytes;
    unsigned round; /* in which the owner listed it last */
    bool sealed;    /* here */
    bool to_seal;   /* sealed at the owner */
    enum gb_code skipped;
};

/* Waits for a call of the core or an ask of the fleet. */
struct gb_arrival_wait {
    struct gb_arrival *arrival;
    bool done;
};
bool gb_arrival_is_stopped(struct gb_arrival *arrival);
/* Makes a call of that size to be waited for. NULL with err. */
void *gb_arrival_call_new(struct gb_arrival *arrival, size_t size, struct gb_arrival_wait *wait, struct gb_error *err);
/* Waits until the call has ended. If the arrival is stopped, the call is cancelled. Returns 0, or -1 with its error.
 * The caller unrefs the call. */
int gb_arrival_call_wait(struct gb_arrival_wait *wait, struct gb_call *call, struct gb_error *err);
/* Waits until one of the waits has ended, or the arrival is stopped. */
void gb_arrival_wait_any(struct gb_arrival *arrival, const struct gb_arrival_wait *waits, size_t count);
/* An ask to be waited for. */
struct gb_fleet_ask gb_arrival_ask(struct gb_arrival_wait *wait);
/* Waits until that ask has ended, or the arrival is stopped. Returns 0 or -1. */
int gb_arrival_ask_wait(struct gb_fleet_ask *ask, struct gb_error *err);
/* Waits for ms. Returns false if the arrival is stopped. */
bool gb_arrival_pause(struct gb_arrival *arrival, unsigned ms);
int gb_arrival_stopped_error(struct gb_arrival *arrival, struct gb_error *err);
/* Asks a majority of the directory for the session. */
int gb_arrival_find(struct gb_arrival *arrival, struct gb_fleet_find *ret, struct gb_error *err);
/* Sends a small request to the owner. ret has the status and the body, which the caller frees. -1: NODE_UNREACHABLE, or
 * the arrival is stopped. */
int gb_arrival_request(struct gb_arrival *arrival, struct gb_fleet_call *ret, struct gb_error *err);

/* The URL of that node in the first network that both nodes share; NULL: no common network. */
const char *gb_arrival_url(const struct gb_arrival_config *config, const struct gb_fleet_node *node);
/* Finds the owner and sets there, owner and base. Returns 1 if the session is this node's, 0 if it is another node's,
 * or -1 with OWNER_ABSENT, NODE_UNREACHABLE, SESSION_NOT_FOUND, DIRECTORY_UNAVAILABLE. */
int gb_arrival_locate(struct gb_arrival *arrival, struct gb_error *err);
/* GET of that path and query. Returns the object of an answer with status 200, which the caller unrefs, or NULL. */
json_t *gb_arrival_get(struct gb_arrival *arrival, const char *path, const char *query, struct gb_error *err);
/* POST of the body, which is taken; a NULL body means that memory was exhausted. *ret_answered: the owner has
 * answered. */
json_t *gb_arrival_post(struct gb_arrival *arrival, const char *path, json_t *body, bool *ret_answered,
                        struct gb_error *err);

/* The text of that member; "" if it is absent or not a text. */
const char *gb_arrival_text(const json_t *object, const char *key);
/* Visits all items of a list of the session, such as "pools". */
typedef int gb_arrival_each_fn(struct gb_arrival *arrival, const json_t *item, struct gb_error *err);
int gb_arrival_each(struct gb_arrival *arrival, const char *list, gb_arrival_each_fn *each, struct gb_error *err);

/* Brings the answers to requests with an Idempotency-Key that are new since the last call. last: the owner is frozen;
 * after the call, this node's database has the answer of everything that was carried out there. */
int gb_arrival_bring_keys(struct gb_arrival *arrival, bool last, struct gb_error *err);

#endif
