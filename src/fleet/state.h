/* What the files of this layer share. */
#ifndef GB_FLEET_STATE_H
#define GB_FLEET_STATE_H

#include <pthread.h>

#include "base/container.h"
#include "base/map.h"
#include "fleet/directory.h"
#include "fleet/fleet.h"
#include "fleet/records.h"

#define GB_FLEET_KEY_SIZE 448
#define GB_FLEET_CALL_MS 3000 /* of a whole ask */

#define GB_TICKET_KEYS_MAX 4

struct gb_ticket_key {
    uint64_t id; /* the day that it was made for, as all count them */
    int64_t made_s;
    unsigned char key[32];
};

struct gb_ticket_keys {
    struct gb_ticket_key keys[GB_TICKET_KEYS_MAX]; /* the oldest first */
    size_t count;
};

/* Work for asks: of one, or of all that look up the same session. Embedded at the start of what each kind needs. It
 * holds copies of what was asked for, since an ask may be left and freed at any time. */
struct gb_job {
    struct gb_job *next; /* in the queue, then among those that run */
    struct gb_fleet *fleet;
    struct gb_fleet_ask *asks; /* by the fleet's lock; empty when all have left */

    /* Of the kind. On the fleet's thread, without the lock but for give. */
    void (*start)(struct gb_job *job);
    void (*cancel)(struct gb_job *job);                         /* besides its call; NULL: nothing */
    void (*ending)(struct gb_job *job);                         /* with the lock, before give; NULL: nothing */
    void (*give)(struct gb_job *job, struct gb_fleet_ask *ask); /* with the lock: writes the answer, error is set */
    void (*free)(struct gb_job *job);                           /* what it holds; NULL: nothing */

    struct gb_error error;
    struct gb_etcd_call call;
    uint64_t deadline_ms;
    size_t *open_asks; /* the asks of its kind, by the lock: one that leaves is taken off; NULL: they are not counted */
};

/* A zeroed job of that size, or NULL. */
void *gb_job_new(struct gb_fleet *fleet, size_t size, void (*start)(struct gb_job *job));
/* Hands the job over with its ask, which may be NULL. job NULL: there was no memory for it. [any thread, without the
 * lock] */
void gb_job_ask(struct gb_fleet *fleet, struct gb_job *job, struct gb_fleet_ask *ask);
/* The same with the lock held; wake the thread afterwards. */
void gb_job_queue(struct gb_fleet *fleet, struct gb_job *job);
/* Ends the job, which is freed, with its error. [the thread, without the lock] */
void gb_job_end(struct gb_job *job);
/* Ends it with that error. */
void gb_job_fail(struct gb_job *job, const struct gb_error *err);
/* Sends a transaction of the job within its deadline; it may be sent twice. */
void gb_job_txn(struct gb_job *job, struct gb_txn *txn, enum gb_etcd_need need,
                void (*done)(struct gb_etcd_call *call));
/* The error of the call, or of a fleet that is not this one: -1, and the job has ended. */
int gb_job_check(struct gb_job *job);
/* Starts what was queued and refuses what could not be. Returns false once the fleet stops, which fails all new ones.
 * [the thread] */
bool gb_jobs_take(struct gb_fleet *fleet);
/* Fails all that run. */
void gb_jobs_drain(struct gb_fleet *fleet);

struct gb_reconcile_all;
struct gb_peer_check;

struct gb_member {
    struct gb_etcd_call call;  /* of joining and renewing */
    struct gb_etcd_call write; /* of alive/N once the lease is held */
    struct gb_etcd_call space; /* whether the directory has any */
    uint64_t space_ms;         /* when that was asked last */
    struct gb_timer timer;     /* of the next step */
    void (*renew)(void *arg);  /* of the timer, once the lease is held */
    unsigned ttl_s;
    uint64_t incarnation;
    bool held;           /* alive/N is this process's; the lease is renewed */
    bool reconciled;     /* since it is held */
    bool must_reconcile; /* all sessions are to be compared again, since the directory may have been restored */
    bool rotated;        /* a key was made since the last renewal */
    bool lapsed;         /* the lease had run out since all sessions were compared last */
    uint64_t lapse_ms;   /* until when it was known to live, whether or not the directory has lost it since */
    struct gb_name
        last_write; /* the session of this node whose record was written last, and its revision then; 0: none */
    int64_t last_write_revision;
    int64_t polled_write_revision; /* the same when the records were asked for */
    uint64_t cluster_id;           /* of the directory, when it was joined last */
    uint64_t polled_ms;            /* when the records were read last */
    uint64_t deadline_ms;          /* the lease lives until then at least, unless the directory lost it; 0: no lease */
    uint64_t failing_ms;           /* since when renewals fail; 0: they do not */

    /* As read last. */
    char *old_node;
    char *old_alive;
    int64_t node_revision; /* of changes; 0: there is none */
    int64_t alive_revision;
    int64_t meta_created;
    char meta_uuid[40]; /* "": never read */

    /* The test for a twin. */
    uint64_t test_ms; /* when the answer to the first look had come; 0: none yet */
    int64_t test_ttl; /* what it said */
    bool foreign;     /* the lease is another name's, or has another length */

    /* What was written last. */
    struct gb_fleet_alive published;
    uint64_t published_ms;

    struct gb_reconcile_all *reconcile;
    struct gb_peer_check *peer_check; /* NULL: it asks no one */
};

/* A third of the lease, thirty seconds at most: between two renewals. */
uint64_t gb_member_third_ms(const struct gb_fleet *fleet);
/* Of one call: what hangs does not take the time of the next try. */
uint64_t gb_member_deadline(const struct gb_fleet *fleet);

/* Renews and reads at once, if the lease is held. */
void gb_member_renew_now(struct gb_fleet *fleet);
/* Publishes until when the node is sure of its sessions. */
void gb_member_update_validity(struct gb_fleet *fleet);
/* The record of that session of this node is of that revision. */
void gb_member_note_write(struct gb_fleet *fleet, const struct gb_name *session, int64_t revision);
/* Says of a node that is joined whether the directory takes changes. */
void gb_member_update_state(struct gb_fleet *fleet);

/* Sets the state and why; runs changed. */
void gb_fleet_set_state(struct gb_fleet *fleet, enum gb_fleet_state state, const struct gb_error *why);
/* -1 with DIRECTORY_UNAVAILABLE: it is not joined. [the thread] */
int gb_fleet_not_joined(const struct gb_fleet *fleet, struct gb_error *err);

/* Whether the directory may have been restored a moment ago. [the thread] */
void gb_restored_watch(struct gb_fleet *fleet);
bool gb_restored_maybe(struct gb_fleet *fleet);
/* Something that this node has written is not there. */
void gb_restored_suspect(struct gb_fleet *fleet, unsigned for_s); /* 0: as long as is usual */
/* -1 with OWNER_UNKNOWN while that is so. */
int gb_restored_refuse(struct gb_fleet *fleet, const struct gb_name *session, struct gb_error *err);

/* Asks now and then whether the directory takes changes. */
void gb_member_check_space(struct gb_fleet *fleet);

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
    uint64_t epoch; /* that someone knows of; 0: none */
    enum gb_suspect_why why;
    bool checked; /* the directory was asked since it was added */
    uint64_t refuted_ms;
    uint64_t conflict_ms; /* since when another node has it by the directory, at no higher epoch; 0: none has */
    bool lapsed;          /* the lease had run out before that was found */
    uint64_t seq;         /* in the order in which they came */
};

void gb_suspect_add(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch, enum gb_suspect_why why);
/* By the directory another node has the session, at no higher epoch: for how many milliseconds that has been so.
 * *ret_broken: this node's lease had run out before it was found: the session may have become the other's meanwhile. */
uint64_t gb_suspect_conflict(struct gb_fleet *fleet, const struct gb_name *session, bool *ret_lapsed);

/* Sessions to be unregistered; they wait here while the directory is silent. */
struct gb_unregister {
    struct gb_unregister *next;
    struct gb_name session;
    char claim[GB_FLEET_CLAIM_SIZE];
    bool made;
    bool releases;          /* the directory was restored, and the session may be another node's: its epoch stays */
    bool marked;            /* its record says that this node has not got it */
    uint64_t not_before_ms; /* unless the node has it by then, 0: whether or not */
};

/* Orders to this node, if it has no URL. */
struct gb_orders {
    struct gb_etcd_call call;
    struct gb_timer timer;
};

struct gb_breaker;
struct gb_find_cache;

struct gb_fleet {
    /* Constant. */
    struct gb_fleet_node own; /* name, uuid, urls, labels, version */
    char *name;
    void *app;
    size_t (*devices)(void *app, struct gb_fleet_device ret[GB_FLEET_DEVICES_MAX]);
    char known_uuid[40];
    bool (*has)(void *app, const struct gb_fleet_session *record);
    size_t (*sessions)(void *app, int64_t *cursor, struct gb_fleet_session *ret, size_t max);
    bool (*session)(void *app, const struct gb_name *name, struct gb_fleet_session *ret);
    void (*reconcile)(void *app, const struct gb_fleet_session *mine, enum gb_fleet_outcome outcome, uint64_t epoch);
    void (*learned)(void *app, const char *uuid);
    void (*changed)(void *app);
    bool (*order)(void *app, enum gb_order_what what, const struct gb_name *session);
    pthread_t thread;

    /* The thread's. */
    struct gb_http_client *client; /* gb_http_client_wake alone is for all */
    struct gb_timers timers;
    struct gb_etcd etcd; /* its counters are for all */
    struct gb_member member;
    struct gb_job *running;
    struct gb_breaker *breakers;
    struct gb_orders orders;
    struct gb_etcd_call sweep; /* of the first that is to be unregistered */
    struct gb_timer sweep_again;
    struct gb_fleet_session sweep_record; /* its record, as it was read */
    struct gb_unregister *sweeping;       /* the one that `sweep` is of */
    int64_t sweep_revision;
    int64_t sweep_lease;
    struct gb_reconcile_one *checking; /* of the doubt that is looked at; NULL: there was none yet */
    struct gb_timer check_again;

    pthread_mutex_t lock; /* a leaf: never held across a call. Guards all below */
    pthread_cond_t delivered;
    struct gb_job *queue;
    struct gb_job **queue_end;
    struct gb_job refused;           /* asks that found no memory for a job */
    struct gb_fleet_ask *delivering; /* whose done runs */
    struct gb_unregister *unregisters;
    struct gb_map suspects; /* by name: struct gb_suspect */
    uint64_t suspect_seq;
    uint64_t epoch_seen;  /* the highest of any session */
    uint64_t epoch_floor; /* the same when the directory was surely restored last: sessions begin above it */
    bool stopping;
    struct gb_fleet_stat stat; /* but for the counters of etcd */
    struct gb_find_cache *finds;
    size_t open_finds;
    struct gb_ticket_keys keys;
    _Atomic bool draining;
    _Atomic bool joined;
    _Atomic size_t suspect_count;
    _Atomic uint64_t valid_until_ms;   /* gb_fleet_lease_is_valid, by gb_boot_ms */
    _Atomic uint64_t suspect_until_ms; /* gb_restored_maybe, by gb_boot_ms */
    _Atomic bool starting;             /* set in fleet.c, cleared in member.c */
};

/* "/gpubuf/FLEET/KIND/NAME" or, with below, "/gpubuf/FLEET/KIND/NAME/BELOW"; "" for a prefix. */
void gb_fleet_key(const struct gb_fleet *fleet, const char *kind, const char *name, const char *below,
                  char ret[GB_FLEET_KEY_SIZE]);
/* Begins a reading with the range of meta, whose result is the first; the others follow. */
void gb_fleet_read_meta(const struct gb_fleet *fleet, struct gb_txn *txn, bool serializable);
/* Begins a change with the comparison of meta. */
void gb_fleet_compare_meta(const struct gb_fleet *fleet, struct gb_txn *txn);
/* 0, or -1 with DIRECTORY_UNAVAILABLE if that result is not of this fleet's meta. */
int gb_fleet_check_meta(const struct gb_fleet *fleet, const struct gb_kvs *meta, struct gb_error *err);
void gb_fleet_get(struct gb_txn *txn, const char *key, bool serializable);

/* The key behind which the next page of a range begins: the last that was read, or, of one that is longer than any of a
 * record, the end of all that begin as it does. */
void gb_fleet_behind(const char *key, char ret[GB_FLEET_KEY_SIZE]);

/* A node out of its two records; alive may be NULL. */
int gb_fleet_node_of(const char *name, const struct gb_kv *node, const struct gb_kv *alive, struct gb_fleet_node *ret,
                     struct gb_error *err);
/* The rest of a key behind the prefix, or NULL if it is no name. */
bool gb_fleet_name_of(const char *key, const char *prefix, struct gb_name *ret);

/* What was read of the record of a session of this node. DIRECTORY_UNAVAILABLE: it is not there, or malformed. */
int gb_own_record_read(const struct gb_kvs *kvs, const struct gb_name *session, struct gb_fleet_session *ret,
                       struct gb_error *err);
/* SUPERSEDED if it is not this node's, of that claim. */
int gb_own_record_check(const struct gb_fleet *fleet, const struct gb_fleet_session *there, const char *claim,
                        struct gb_error *err);

#endif
