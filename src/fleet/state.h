/* What the files of this layer share: the state of a fleet, jobs, suspects, and keys of the directory. Comments in
 * brackets name the thread or the lock that a function needs. */
#ifndef GB_FLEET_STATE_H
#define GB_FLEET_STATE_H

#include <pthread.h>

#include "base/container.h"
#include "base/map.h"
#include "fleet/directory.h"
#include "fleet/fleet.h"
#include "fleet/records.h"

#define GB_FLEET_KEY_SIZE 448
#define GB_FLEET_CALL_MS 3000 /* the deadline of an ask */

/* --- ticket keys -------------------------------------------------------------------------------------------------- */

#define GB_TICKET_KEYS_MAX 4

struct gb_ticket_key {
    uint64_t id; /* the day that it was made for, counted from the epoch */
    int64_t made_s;
    unsigned char key[32];
};

struct gb_ticket_keys {
    struct gb_ticket_key keys[GB_TICKET_KEYS_MAX]; /* the oldest first */
    size_t count;
};

/* --- jobs --------------------------------------------------------------------------------------------------------- */

/* The work for one ask, or for all asks that look up the same session. Each kind of job embeds it at its start. A job
 * holds copies of the parameters, because an ask may be cancelled and freed at any time. */
struct gb_job {
    struct gb_job *next; /* in the queue, then among those that run */
    struct gb_fleet *fleet;
    struct gb_fleet_ask *asks; /* by the fleet's lock; empty when all are cancelled */

    /* The kind's functions, all on the fleet's thread. The last four may be NULL. cancel: ends what it has open besides
     * its call. ending: runs before give, with the lock. give: writes the answer, with the lock; error is set already.
     * free: frees what the job holds. */
    void (*start)(struct gb_job *job);
    void (*cancel)(struct gb_job *job);
    void (*ending)(struct gb_job *job);
    void (*give)(struct gb_job *job, struct gb_fleet_ask *ask);
    void (*free)(struct gb_job *job);

    struct gb_error error;
    struct gb_etcd_call call;
    uint64_t deadline_ms;
    size_t *open_asks; /* counts open asks of its kind, by the lock; may be NULL */
};

/* A zeroed job of that size, or NULL. */
void *gb_job_new(struct gb_fleet *fleet, size_t size, void (*start)(struct gb_job *job));
/* Queues the job with its ask, which may be NULL. job NULL: no memory, the ask ends with SATURATED. [any thread,
 * without the lock] */
void gb_job_ask(struct gb_fleet *fleet, struct gb_job *job, struct gb_fleet_ask *ask);
/* Queues the job. The caller wakes the thread afterwards. [with the lock] */
void gb_job_queue(struct gb_fleet *fleet, struct gb_job *job);
/* Ends the job with job->error, answers its asks and frees it. [the thread, without the lock] */
void gb_job_end(struct gb_job *job);
/* Ends the job with that error. */
void gb_job_fail(struct gb_job *job, const struct gb_error *err);
/* Sends a transaction of the job within its deadline. It may be sent twice. */
void gb_job_txn(struct gb_job *job, struct gb_txn *txn, enum gb_etcd_need need,
                void (*done)(struct gb_etcd_call *call));
/* Checks that the call succeeded and that the directory is of this fleet. -1: the job has ended with the error. */
int gb_job_check(struct gb_job *job);
/* Starts queued jobs, and ends the asks that had no memory for a job. Returns false once the fleet stops; then new jobs
 * fail. [the thread] */
bool gb_jobs_take(struct gb_fleet *fleet);
/* Fails all running jobs. [the thread] */
void gb_jobs_drain(struct gb_fleet *fleet);

/* --- membership --------------------------------------------------------------------------------------------------- */

struct gb_member {
    struct gb_etcd_call call;  /* joins and renews */
    struct gb_etcd_call write; /* writes alive/N once the lease is held */
    struct gb_etcd_call space; /* checks whether the directory has space */
    uint64_t space_ms;         /* when that was checked last */
    struct gb_timer timer;     /* runs the next step */
    void (*renew)(void *arg);  /* runs by the timer once the lease is held */
    unsigned ttl_s;
    uint64_t incarnation;
    bool held;                 /* alive/N is this process's, and the lease is renewed */
    bool reconciled;           /* all sessions were reconciled since the lease is held */
    bool must_reconcile;       /* all sessions are to be reconciled again */
    bool rotated;              /* a ticket key was made since the last renewal */
    bool lapsed;               /* the lease has run out since all sessions were reconciled last */
    uint64_t lapse_ms;         /* when the lease runs out, even if the directory lost it */
    struct gb_name last_write; /* the session whose record this node wrote last */
    int64_t last_write_revision;
    int64_t polled_write_revision; /* last_write_revision when the records were polled */
    uint64_t cluster_id;           /* of the directory that was joined last */
    uint64_t polled_ms;            /* when the records were read last */
    uint64_t deadline_ms;          /* the lease lives until then at least; 0: no lease */
    uint64_t failing_ms;           /* since when renewals fail; 0: they succeed */

    /* As read last. */
    char *old_node;
    char *old_alive;
    int64_t node_revision; /* of nodes/N; 0: no such key */
    int64_t alive_revision;
    int64_t meta_created;
    char meta_uuid[40]; /* "": not read yet */

    /* The test for a duplicate. */
    uint64_t test_ms; /* when the first answer came; 0: not yet */
    int64_t test_ttl; /* the ttl in it */
    bool foreign;     /* the lease is of another name, or has another length */

    /* What alive/N said when it was written last. */
    struct gb_fleet_alive published;
    uint64_t published_ms;

    struct gb_reconcile_all *reconcile;
    struct gb_peer_check *peer_check; /* asks other nodes, after the start; NULL: not now */
};

/* The time between two renewals: a third of the lease, 30 s at most. */
uint64_t gb_member_third_ms(const struct gb_fleet *fleet);
/* The deadline of one call, so short that a call that hangs leaves time for the next one. */
uint64_t gb_member_deadline(const struct gb_fleet *fleet);

/* Renews the lease and reads the records at once, if the lease is held. */
void gb_member_renew_now(struct gb_fleet *fleet);
/* Updates valid_until_ms. */
void gb_member_update_validity(struct gb_fleet *fleet);
/* Notes that this node has written, or read, its session's record at that revision. */
void gb_member_note_write(struct gb_fleet *fleet, const struct gb_name *session, int64_t revision);
/* Sets the state: JOINED, or ALONE while the directory is out of space. */
void gb_member_update_state(struct gb_fleet *fleet);

/* Sets the state and its reason. Runs `changed` if the state differs. */
void gb_fleet_set_state(struct gb_fleet *fleet, enum gb_fleet_state state, const struct gb_error *why);
/* Returns -1 with DIRECTORY_UNAVAILABLE and the reason why this node is not joined. [the thread] */
int gb_fleet_not_joined(const struct gb_fleet *fleet, struct gb_error *err);

/* Checks from time to time whether the directory has space for changes. */
void gb_member_check_space(struct gb_fleet *fleet);

/* The node's membership. All on the fleet's thread. start joins; cancel ends all calls; done frees. */
void gb_member_start(struct gb_fleet *fleet);
void gb_member_cancel(struct gb_fleet *fleet);
void gb_member_done(struct gb_fleet *fleet);

/* Writes alive/N at once, if it differs enough from what was published. */
void gb_member_publish(struct gb_fleet *fleet);

/* --- suspects ----------------------------------------------------------------------------------------------------- */

/* The suspicion that the directory was restored a moment ago, and lacks what was written since. [the thread] */
void gb_restored_watch(struct gb_fleet *fleet);
bool gb_restored_maybe(struct gb_fleet *fleet);
/* Suspects the directory for for_s seconds: a record that this node wrote is missing. */
void gb_restored_suspect(struct gb_fleet *fleet, unsigned for_s); /* 0: the usual time */
/* Returns -1 with OWNER_UNKNOWN while the directory is suspect. */
int gb_restored_refuse(struct gb_fleet *fleet, const struct gb_name *session, struct gb_error *err);

/* Why a session is compared with its record. REFUTED: the directory has refuted a client's report. CHANGED: the session
 * has changed here. REPORTED: a client reports a higher epoch. UNCERTAIN: the directory contradicts this node.
 * SUPERSEDED: the session is another node's. From UNCERTAIN on, all requests for the session are refused. */
enum gb_suspect_why {
    GB_SUSPECT_REFUTED,
    GB_SUSPECT_CHANGED,
    GB_SUSPECT_REPORTED,
    GB_SUSPECT_UNCERTAIN,
    GB_SUSPECT_SUPERSEDED
};
struct gb_suspect {
    struct gb_name session;
    uint64_t epoch; /* the highest that a client or record has shown; 0: none */
    enum gb_suspect_why why;
    bool checked; /* the record was read since the suspect was added */
    uint64_t refuted_ms;
    uint64_t conflict_ms; /* since when the directory names another node, at no higher epoch; 0: it does not */
    bool lapsed;          /* this node's lease had run out before that */
    uint64_t seq;         /* suspects are checked in this order */
};

void gb_suspect_add(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch, enum gb_suspect_why why);
/* Notes that the directory names another node for the session, at no higher epoch. Returns for how many milliseconds it
 * has done so. *ret_lapsed: this node's lease had run out before, so that the other node may have taken the session. */
uint64_t gb_suspect_conflict(struct gb_fleet *fleet, const struct gb_name *session, bool *ret_lapsed);

/* --- fleet -------------------------------------------------------------------------------------------------------- */

/* A session whose record is to be removed. It waits here while the directory does not answer. */
struct gb_unregister {
    struct gb_unregister *next;
    struct gb_name session;
    char claim[GB_FLEET_CLAIM_SIZE];
    bool made;
    bool releases;          /* the directory is suspect, and the session may be another node's */
    bool marked;            /* the record says "released" */
    uint64_t not_before_ms; /* kept if the node has the session by then; 0: removed anyway */
};

/* Polls orders to this node, if it has no URL. */
struct gb_orders {
    struct gb_etcd_call call;
    struct gb_timer timer;
};

struct gb_fleet {
    /* Constant. */
    struct gb_fleet_node own; /* name, uuid, urls, labels, version */
    char *name;
    struct gb_fleet_callbacks on;
    char known_uuid[40];
    pthread_t thread;

    /* The thread's. */
    struct gb_http_client *client; /* any thread may call gb_http_client_wake */
    struct gb_timers timers;
    struct gb_etcd etcd; /* any thread may read its counters */
    struct gb_member member;
    struct gb_job *running;
    struct gb_breaker *breakers;
    struct gb_orders orders;
    struct gb_etcd_call sweep; /* removes one record at a time */
    struct gb_timer sweep_again;
    struct gb_fleet_session sweep_record; /* the record as it was read */
    struct gb_unregister *sweeping;       /* the session whose record `sweep` removes */
    int64_t sweep_revision;
    int64_t sweep_lease;
    struct gb_reconcile_one *checking; /* reconciles one suspect; allocated on first use */
    struct gb_timer check_again;

    pthread_mutex_t lock; /* a leaf: never held across a call. Guards all below */
    pthread_cond_t delivered;
    struct gb_job *queue;
    struct gb_job **queue_end;
    struct gb_job refused;           /* asks that had no memory for a job */
    struct gb_fleet_ask *delivering; /* whose done runs */
    struct gb_unregister *unregisters;
    struct gb_map suspects; /* by name: struct gb_suspect */
    uint64_t suspect_seq;
    uint64_t epoch_seen;  /* the highest epoch of any session */
    uint64_t epoch_floor; /* epoch_seen at the last restore of the directory: new sessions begin above it */
    bool stopping;
    struct gb_fleet_stat stat; /* without the counters of etcd */
    struct gb_find_cache *finds;
    size_t open_finds;
    struct gb_ticket_keys keys;
    _Atomic bool draining;
    _Atomic bool joined;
    _Atomic size_t suspect_count;
    _Atomic uint64_t valid_until_ms;   /* gb_fleet_lease_is_valid, by gb_boot_ms */
    _Atomic uint64_t suspect_until_ms; /* gb_restored_maybe, by gb_boot_ms */
    _Atomic bool starting;             /* other nodes have not been asked yet whether they suspect the directory */
};

/* --- keys and records of the directory ---------------------------------------------------------------------------- */

/* Writes "/gpubuf/FLEET/KIND/NAME", or with below "/gpubuf/FLEET/KIND/NAME/BELOW". A last part of "" makes a prefix. */
void gb_fleet_key(const struct gb_fleet *fleet, const char *kind, const char *name, const char *below,
                  char ret[GB_FLEET_KEY_SIZE]);
/* Begins a transaction that reads: the result of meta is the first one. */
void gb_fleet_read_meta(const struct gb_fleet *fleet, struct gb_txn *txn, bool serializable);
/* Begins a transaction that writes, with the comparison of meta. */
void gb_fleet_compare_meta(const struct gb_fleet *fleet, struct gb_txn *txn);
/* Returns 0 if that result is this fleet's meta, or -1 with DIRECTORY_UNAVAILABLE. */
int gb_fleet_check_meta(const struct gb_fleet *fleet, const struct gb_kvs *meta, struct gb_error *err);
/* Add an operation on the key that gb_fleet_key makes of kind, name and below. */
void gb_fleet_get(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                  const char *below, bool serializable);
void gb_fleet_compare(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                      const char *below, enum gb_txn_target target, int64_t revision);
void gb_fleet_put(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                  const char *below, const char *value, int64_t lease);
void gb_fleet_delete(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                     const char *below);
/* Adds reading the keys that begin with that one, as range says; from the key after `after`, unless that is "". */
void gb_fleet_get_all(const struct gb_fleet *fleet, struct gb_txn *txn, struct gb_txn_range range, const char *after,
                      const char *kind, const char *name, const char *below);

/* Sets *ret to the key after which the next page of a range begins. That is the last key of this page. A key that is
 * too long for a record is skipped, with all keys that begin as it does. */
void gb_fleet_behind(const char *key, char ret[GB_FLEET_KEY_SIZE]);

/* Reads a node from its two records. alive may be NULL. */
int gb_fleet_node_of(const char *name, const struct gb_kv *node, const struct gb_kv *alive, struct gb_fleet_node *ret,
                     struct gb_error *err);
/* Reads the name that follows the prefix in the key. False: the key has another form. */
bool gb_fleet_name_of(const char *key, const char *prefix, struct gb_name *ret);

/* Reads the record of a session of this node. DIRECTORY_UNAVAILABLE: it is missing or malformed. */
int gb_own_record_read(const struct gb_kvs *kvs, const struct gb_name *session, struct gb_fleet_session *ret,
                       struct gb_error *err);
/* Returns -1 with SUPERSEDED unless the record names this node and that claim. */
int gb_own_record_check(const struct gb_fleet *fleet, const struct gb_fleet_session *there, const char *claim,
                        struct gb_error *err);

/* --- placing ------------------------------------------------------------------------------------------------------ */

struct gb_place_constraints {
    const char *select; /* a JSON object of labels that the node must have; "": any */
    uint64_t bytes;     /* that a device has free and uncommitted; 0: any */
    const struct gb_name *network;
    const struct gb_name *excluded; /* a node that is not chosen; NULL: no such node */
};

/* Puts up to GB_FLEET_HOPS_MAX of the nodes that fit into ret: of two random ones the one with more free memory, then
 * the other, then a third. random returns 32 bits. Returns the count; 0 with NO_NODE_FITS and the reasons counted. */
size_t gb_place_choose(const struct gb_fleet_node *nodes, size_t count, const struct gb_place_constraints *constraints,
                       uint32_t (*random)(void *arg), void *arg, const struct gb_fleet_node *ret[GB_FLEET_HOPS_MAX],
                       struct gb_error *err);

#endif
