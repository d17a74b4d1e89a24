/* A lease, for the files that make it up: lease.c keeps them, lease_map.c grants one, lease_end.c ends it. */
#ifndef GB_CORE_SHARE_LEASE_INTERNAL_H
#define GB_CORE_SHARE_LEASE_INTERNAL_H

#include "core/buffer/transaction.h"
#include "core/memory/kind.h"

struct gb_holder {
    atomic_uint refs; /* the caller's until gb_holder_end, and each lease's */
    struct gb_core *core;
    uint64_t id;
    pid_t pid;
    uid_t uid;
    gid_t gid;

    /* The table's lock: */
    bool ended;
    uint64_t count;
    struct gb_lease_list leases; /* those that its end has not come to yet */
    uint64_t adopted;            /* contents of memory that it owns */
    struct gb_adoption_list adoptions;
};

void gb_holder_ref(struct gb_holder *holder);
void gb_holder_unref(struct gb_holder *holder); /* NULL is accepted */

enum gb_lease_step {
    GB_LEASE_MAKING, /* it holds the bytes, nobody was told yet */
    GB_LEASE_LIVE,
    GB_LEASE_LEAVING, /* the end is on its way to the database */
    GB_LEASE_OVER
};

/* The durable part of one that writes, at its beginning and at its end. */
struct gb_lease_change {
    struct gb_transaction transaction; /* first */
    struct gb_lease *lease;
    bool decided; /* what fails after that is the database's fault */
};

struct gb_lease {
    struct gb_task task; /* first */
    atomic_uint refs;    /* its life's, and those of who looks */
    struct gb_core *core;
    struct gb_holder *holder;   /* a reference */
    struct gb_session *session; /* a reference */
    struct gb_content *content; /* a reference until it is over */
    int64_t id;
    struct gb_name buffer;
    int64_t buffer_id;
    bool write;
    unsigned ways;
    uint64_t ttl_s; /* 0: ends with its holder */
    uint64_t deadline_ns;
    struct gb_lease_change *transaction; /* NULL: it reads */
    struct gb_export export;             /* until it is granted */
    struct gb_event *event;              /* that was exported; NULL: none */
    struct gb_lease *next_waiting;       /* the lane's */
    struct gb_lease_call *map;           /* the call that asked for it, until it is granted */
    struct gb_call *call;                /* to be finished: the same, then that of the end; NULL: nobody waits */
    struct gb_error error;               /* what it is finished with */

    /* The session's lock: */
    enum gb_lease_step step;
    bool granted;
    bool cut; /* it is to end as soon as it is made */
    enum gb_export_way way;
    int64_t since_us;
    uint64_t expires_ns; /* monotonic, from the grant on; 0: with its holder */
    int64_t expires_at_us;
    int64_t generation;
    TAILQ_ENTRY(gb_lease) of_content;

    /* The table's lock: */
    bool listed; /* in its holder's list */
    TAILQ_ENTRY(gb_lease) of_holder;
};

struct gb_lease *gb_lease_ref(struct gb_lease *lease);
void gb_lease_unref(struct gb_lease *lease); /* without locks; NULL is accepted */

/* lease.c. Into the table, its holder's list and its content's; LIMIT_REACHED, CANCELLED. The session's lock is held. */
int gb_lease_enroll_locked(struct gb_lease *lease, struct gb_error *err);

/* Out of them: nothing stands in the way of the content any more. The lease is over. True: its reference to the content is
 * gone, else it was the last and is left to the caller. The session's lock is held. */
bool gb_lease_withdraw_locked(struct gb_lease *lease);

/* Its buffer, while that still has its content; else NULL. The session's lock is held. */
struct gb_buffer *gb_lease_buffer_locked(const struct gb_lease *lease);

/* The same, and readers get that content. *ret_head: what the head of a mirrored buffer becomes by writing it. */
struct gb_buffer *gb_lease_current_locked(const struct gb_lease *lease, enum gb_head *ret_head);

/* lease_end.c. Ends it as soon as may be; outside as gb_lease_end. Without locks. */
void gb_lease_close(struct gb_lease *lease, bool outside);

/* With a reference, or NULL with LEASE_NOT_FOUND. */
struct gb_lease *gb_lease_find(struct gb_core *core, int64_t id, struct gb_error *err);
int gb_lease_not_found(int64_t id, struct gb_error *err); /* sets it; -1 */

/* lease.c. The caller names it no more, its leases live on. NULL is accepted. */
void gb_holder_unref(struct gb_holder *holder);

/* It is over, or came to nothing: withdraws it, gives everything back, finishes its call. Without locks; drops the life's
 * reference. */
void gb_lease_over(struct gb_lease *lease);

/* Of one that writes: how->decide_locked and what follows it. */
void gb_lease_commit(struct gb_lease *lease, const struct gb_transaction *how);
/* What the record becomes: other bytes than before, which nobody has counted. */
void gb_lease_describe(const struct gb_buffer *buffer, enum gb_head head, struct gb_buffer_rec *ret);
void gb_lease_apply_locked(struct gb_transaction *transaction, struct gb_buffer *buffer);

static inline struct gb_lease *gb_lease_of(struct gb_transaction *transaction) {
    return ((struct gb_lease_change *)transaction)->lease;
}

#endif
