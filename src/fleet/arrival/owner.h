/* A session of another node of the fleet that comes here: where it is, what is asked of its owner, and the session of
 * its own in which its buffers arrive while the owner serves on. A move brings a session once, for good; a holder of
 * copies brings it again and again.
 *
 * An arrival belongs to one thread, which may block; gb_arrival_stop alone is for all. */
#ifndef GB_FLEET_ARRIVAL_OWNER_H
#define GB_FLEET_ARRIVAL_OWNER_H

#include <jansson.h>
#include <pthread.h>

#include "base/container.h"
#include "base/map.h"
#include "core/core.h"
#include "fleet/fleet.h"
#include "fleet/pull/pull.h"

#define GB_ARRIVAL_PULLS 8 /* of one session, at a time */

/* What an arrival works with; all borrowed. */
struct gb_arrival_config {
    struct gb_core *core;
    struct gb_fleet *fleet;
    struct gb_pulls *pulls;
    struct gb_name node;             /* this one */
    const struct gb_fleet_url *urls; /* of this node: by which networks it may reach others */
    size_t url_count;
};

struct gb_arrival {
    struct gb_arrival_config config;
    struct gb_name session;
    char who[GB_TICKET_WHO_MAX + 1]; /* in whose name the owner is asked; "": no tokens are in force */
    char suffix[48];                 /* of the name under which it arrives, behind the session's */
    bool only_sealed;                /* the others stay where they are */
    uint64_t bytes_max;              /* of its buffers here */

    pthread_mutex_t lock; /* for the four below */
    pthread_cond_t woken;
    bool stopped;
    enum gb_code why; /* it was stopped: CANCELLED or DRAINING */
    bool decides;     /* from now on it is not cancelled */

    struct gb_fleet_session there; /* as the directory has it */
    struct gb_fleet_node owner;
    uint64_t absent_s;            /* for how long the owner has not been alive; 0: it is */
    char base[GB_FLEET_URL_SIZE]; /* "": it is in no network of this node */
    char origin[GB_PULL_ORIGIN_SIZE];
    struct gb_name stage; /* the session here; "": there is none */
    int64_t stage_id;
    char claim[GB_FLEET_CLAIM_SIZE];
    char *described;     /* the owner's record of the session, as it was taken over */
    json_t *listed;      /* while pools or streams are listed: those of the owner, by name */
    struct gb_map items; /* by name: struct gb_arrival_item */
    uint64_t keys_after; /* those that came to their state before are here */
    bool keyless;        /* its owner tells none */
    unsigned round;
    uint64_t here;                      /* items that are */
    uint64_t bytes;                     /* of those */
    uint64_t changed_bytes;             /* pulled in this round */
    uint64_t pulled_bytes;              /* in all */
    struct gb_error problem;            /* only_sealed: why something did not come in this round */
    struct gb_arrival_pulling *pulling; /* while buffers come */
};

struct gb_arrival_item {
    struct gb_name name;
    char *facts; /* of the record, besides its bytes, as they are here */
    char made[40];
    uint64_t generation; /* that is here; 0: none */
    uint64_t bytes;
    unsigned round; /* in which the owner listed it last */
    bool sealed;    /* here */
    bool to_seal;   /* the owner's is */
    enum gb_code skipped;
};

/* What is waited for: a call of the core, or an ask of the fleet. */
struct gb_arrival_wait {
    struct gb_arrival *arrival;
    bool done;
};
/* For gb_call_new: arg is the wait. */
void gb_arrival_wake(void *wait);
bool gb_arrival_is_stopped(struct gb_arrival *arrival);
/* A call of that size whose end is waited for. NULL with err. */
void *gb_arrival_call_new(struct gb_arrival *arrival, size_t size, struct gb_arrival_wait *wait, struct gb_error *err);
/* Waits for its end; an arrival that is stopped cancels it. Returns 0 or -1 with its error; the caller drops it. */
int gb_arrival_call_wait(struct gb_arrival_wait *wait, struct gb_call *call, struct gb_error *err);
/* Waits until one of the waits is over, or the arrival is stopped. */
void gb_arrival_wait_any(struct gb_arrival *arrival, const struct gb_arrival_wait *waits, size_t count);
/* Waits until the ask has ended or the arrival is stopped. Returns 0 or -1. */
int gb_arrival_ask_wait(struct gb_arrival_wait *wait, struct gb_fleet_ask *ask, struct gb_error *err);
/* Lets time pass. Returns false if the arrival is stopped. */
bool gb_arrival_pause(struct gb_arrival *arrival, unsigned ms);
int gb_arrival_stopped_error(struct gb_arrival *arrival, struct gb_error *err);
/* Where the directory has the session, by a majority of it. */
int gb_arrival_find(struct gb_arrival *arrival, struct gb_fleet_find *ret, struct gb_error *err);
/* A small request to the owner; the answer's status and body are in ret, whose answer the caller frees. -1:
 * NODE_UNREACHABLE, or it is stopped. */
int gb_arrival_request(struct gb_arrival *arrival, struct gb_fleet_call *ret, struct gb_error *err);

/* Where this node reaches that one: its URL in the first network that both know; NULL: in none. */
const char *gb_arrival_url(const struct gb_arrival_config *config, const struct gb_fleet_node *node);
/* Learns where the session is: there, owner, base. Returns 1 if it is this node's, 0 or -1 with OWNER_ABSENT,
 * NODE_UNREACHABLE, SESSION_NOT_FOUND, DIRECTORY_UNAVAILABLE. */
int gb_arrival_locate(struct gb_arrival *arrival, struct gb_error *err);
/* GET of that path and query, answered with 200 and an object, which the caller gives back. */
json_t *gb_arrival_get(struct gb_arrival *arrival, const char *path, const char *query, struct gb_error *err);
/* POST of the body, which is taken over; NULL: there was no memory for it. *ret_answered: the owner has refused. */
json_t *gb_arrival_post(struct gb_arrival *arrival, const char *path, json_t *body, bool *ret_answered,
                        struct gb_error *err);

/* "" if it has no such text. */
const char *gb_arrival_text(const json_t *object, const char *key);
/* Visits all items of a list of the session: "pools". */
typedef int gb_arrival_each_fn(struct gb_arrival *arrival, const json_t *item, struct gb_error *err);
int gb_arrival_each(struct gb_arrival *arrival, const char *list, gb_arrival_each_fn *each, struct gb_error *err);

/* Brings what requests in the session with an Idempotency-Key were answered since it was asked last. last: nothing of
 * the session changes any more at its owner; what was carried out there is known here afterwards, in the database. */
int gb_arrival_bring_keys(struct gb_arrival *arrival, bool last, struct gb_error *err);

#endif
