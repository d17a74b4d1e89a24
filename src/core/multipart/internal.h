/* An intake, for the files that make it up: multipart.c keeps the list, target.c its memory and its end, complete.c
 * what comes before its commit, part.c what comes in any order, append.c what comes one after the other.
 *
 * The bytes belong to a gb_upload that is never fed, the carrier: it reserves, allocates and commits as any upload does. A
 * part is a gb_upload too, one that writes into the carrier's memory and whose end marks its range instead of committing.
 * Locks: the session's, then the intake's, then a transfer's; wakes run under the intake's. */
#ifndef GB_CORE_INTAKE_INTERNAL_H
#define GB_CORE_INTAKE_INTERNAL_H

#include "core/download/hash_reader.h"
#include "core/upload/upload.h"

enum gb_intake_state {
    GB_INTAKE_LEAD,    /* not yet known what it becomes */
    GB_INTAKE_OPENING, /* memory is being got */
    GB_INTAKE_OPEN,
    GB_INTAKE_READING, /* everything arrived, and its digests are computed */
    GB_INTAKE_COMPLETING,
    GB_INTAKE_DONE, /* remembered for those who did not hear the answer */
    GB_INTAKE_ENDED
};

struct gb_intake_waiter {
    struct gb_intake_waiter *next;
    struct gb_call *call;
};

struct gb_intake {
    atomic_uint refs; /* the list's, the carrier's, each part's, each append's */
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    int64_t number;
    struct gb_name buffer;
    bool appends;
    int64_t created_at_us;
    bool listed;         /* these three: the session's lock */
    bool counted;        /* as one of its open ones */
    uint64_t held_bytes; /* counted in session and core */

    pthread_mutex_t lock; /* for all below */
    enum gb_intake_state state;
    bool sealed; /* a commit was tried: nothing but that is left */
    struct gb_upload *carrier;
    struct gb_ranges ranges;
    struct gb_upload *parts; /* under way */
    unsigned running;        /* of them, those that have not arrived */
    uint64_t touched_ns;
    uint64_t bytes; /* of the payload; from OPENING on */
    bool has_length;
    uint64_t length;
    char *lead;
    size_t lead_used;
    size_t lead_size;
    uint64_t skip;
    void *app;
    void (*free_app)(void *app);
    bool turn;                /* somebody appends, or what he brought is still being copied */
    struct gb_append *append; /* whom to wake; NULL when that one has gone */
    struct gb_call *call;     /* begins or completes */
    struct gb_reading *reading;
    struct gb_intake_waiter *settlers;
    struct gb_intake_waiter *enders; /* wait for the memory to be free */
    struct gb_error why;             /* it ended */
    struct gb_task task;
};

struct gb_append {
    struct gb_intake *intake;
    struct gb_upload *part;
    void (*wake)(void *arg);
    void *arg;
    bool cut; /* the intake's lock */
    size_t room;
};

/* --- multipart.c --------------------------------------------------------------------------------------------------------------- */

/* In the session's list, with two references: the list's and the caller's. */
int gb_intake_new(struct gb_core *core, const struct gb_name *session, const struct gb_name *buffer, bool appends,
                  struct gb_intake **ret, struct gb_error *err);
void gb_intake_unref(struct gb_intake *intake); /* NULL is accepted; without locks */
struct gb_intake *gb_intake_ref(struct gb_intake *intake);

/* With a reference; NULL with SESSION_NOT_FOUND or UPLOAD_NOT_FOUND. use: a sign of life for the session. */
struct gb_intake *gb_intake_find(struct gb_core *core, const struct gb_name *session, const char *id, bool use,
                                 struct gb_error *err);
int gb_intake_not_found(struct gb_error *err);
void gb_intake_view_locked(struct gb_intake *intake, struct gb_intake_view *ret);
uint64_t gb_intake_offset_locked(const struct gb_intake *intake);
int gb_intake_check_locked(struct gb_intake *intake, struct gb_error *err); /* open for bytes? */

/* Out of the list; the list's reference goes. */
void gb_intake_withdraw(struct gb_intake *intake);
/* What it holds, against the bound on all. LIMIT_REACHED. */
int gb_intake_hold(struct gb_intake *intake, uint64_t bytes, struct gb_error *err);
void gb_intake_release(struct gb_intake *intake);
/* It is completed: no longer one of the open ones. The oldest that are remembered are forgotten. */
void gb_intake_remember(struct gb_intake *intake);

/* --- target.c ----------------------------------------------------------------------------------------------------------- */

int gb_intake_carry(struct gb_intake *intake, const struct gb_upload_params *params, struct gb_error *err);
/* Ends it whatever it does. Nothing happens when it has ended. */
void gb_intake_end(struct gb_intake *intake, const struct gb_error *why);
/* Something may have happened to the carrier. */
void gb_intake_look(struct gb_intake *intake);
void gb_intake_finish_call(struct gb_intake *intake, struct gb_call *call, const struct gb_error *error);
/* Waits in a list; the call fails when memory is exhausted. */
bool gb_intake_wait_locked(struct gb_intake_waiter **list, struct gb_call *call);
void gb_intake_settled_locked(struct gb_intake *intake, struct gb_intake_waiter **ret);
void gb_intake_tell(struct gb_intake *intake, struct gb_intake_waiter *list, const struct gb_error *error);
/* From abort.c: its memory is given back behind what stands on the lane. Drops its reference. */
void gb_intake_carrier_gone(struct gb_intake *intake, struct gb_core_device *device);

/* --- part.c ------------------------------------------------------------------------------------------------------------- */

/* Links a new part; the intake is open. keeps: what came of it counts even when its end does not come. */
struct gb_upload *gb_part_new_locked(struct gb_intake *intake, uint64_t at, uint64_t bytes, bool keeps,
                                     void (*wake)(void *arg), void *arg, struct gb_error *err);
void gb_part_arrived(struct gb_upload *part); /* instead of a commit; drops the reference that goes with it */
void gb_part_gone(struct gb_upload *part);    /* nothing uses it any more; the carrier's reference stays */

#endif
