/* One daemon as a node of a fleet, by way of a directory (etcd, or hubs that speak to it): what it tells others of
 * itself, and what it learns of them. The directory is never on the path of a request that the node can serve itself.
 *
 * Knows nothing of sessions in memory, HTTP servers or tokens. One thread, "gb-fleet", speaks to the directory and to
 * other nodes; nothing here blocks but gb_fleet_open and gb_fleet_close. All functions may be called on any thread.
 *
 * Keys of the directory, below /gpubuf/FLEET/ (JSON values; members that are not known are kept):
 *
 *   meta          {"uuid","schema":1}, made by gb_fleet_init alone
 *   nodes/N       {"uuid","urls":{"NETWORK":"URL"},"labels","version","schema":[1,1],
 *                  "devices":[{"uuid","name","bytes"}]}
 *   alive/N       {"uuid","incarnation","state","free":[..],"committed":[..]}, with the node's lease
 *   sessions/S    {"node","epoch","claim","on_partition","failover_after_s","labels","quota","replicas",
 *                 "holders":[{"node","number"}],"state":"live"}; of one that was deleted
 *                 while its node was away, for 90 days {...,"state":"deleted"}; of one that is being taken over
 *                 {...,"former":{"node","epoch","claim"}}; of one that its node has not got, for some seconds
 *                 {...,"released":true}
 *   owned/N/S     "", in the transaction of sessions/S
 *   quota/T       {"limit"}: bytes that the sessions of a tenant may have together; left out: as many as they want
 *   tenants/T/S   the quota of a session in bytes, decimal, in the transaction of sessions/S
 *   held/N/S      "", in the transaction that makes N a holder of sessions/S; N takes it out when it has none any more
 *   ctl/N/ID      {"op","session"}: an order to a node that has no URL; N takes it out when it has heard it
 *   keys/KID      {"key","made"}: of tickets
 */
#ifndef GB_FLEET_FLEET_H
#define GB_FLEET_FLEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

#define GB_FLEET_URL_SIZE 256
#define GB_FLEET_NETWORKS_MAX 4
#define GB_FLEET_DEVICES_MAX 16
#define GB_FLEET_VERSION_SIZE 32
#define GB_FLEET_LABELS_SIZE 1024 /* a JSON object */
#define GB_FLEET_CLAIM_SIZE 40
#define GB_FLEET_HOPS_MAX 3

struct gb_fleet;

/* --- this node ---------------------------------------------------------------------------------------------------- */

struct gb_fleet_url {
    struct gb_name network; /* "default" for listeners without a name */
    char url[GB_FLEET_URL_SIZE];
};

struct gb_fleet_device {
    char uuid[64];
    char name[64];
    uint64_t bytes;
    uint64_t free_bytes;
    uint64_t committed_bytes; /* quotas of its sessions, those without one counted by what they use */
};

enum gb_fleet_outcome {
    GB_FLEET_RAISED,    /* it is this node's, at that epoch from now on */
    GB_FLEET_SUPERSEDED /* it is not this node's any more: at that epoch another has the name, or it was deleted */
};
struct gb_fleet_session;

/* What a node that has no address is to do: it finds that in the directory, below ctl/. */
enum gb_order_what {
    GB_ORDER_DRAIN,
    GB_ORDER_UNDRAIN,
    GB_ORDER_MOVE, /* bring that session here */
    GB_ORDER_HOLD  /* keep copies of that session */
};
const char *gb_order_word(enum gb_order_what what);
/* What came of one that did not go well. */
typedef void gb_fleet_followed(void *arg, const struct gb_name *session, const struct gb_error *err);

struct gb_fleet_config {
    const char *endpoints; /* "http://HOST:2379[,...]", or https; copied */
    bool hubs;             /* they are of hubs, which pass requests on */
    const char *secret;    /* of this node's token at the hubs; NULL or "": none. Copied */
    const char *user;      /* "NAME:PASSWORD" of etcd; NULL or "": it asks for none. Copied */
    const char *ca_file;   /* of their certificates; NULL or "": the system's. Copied, as the two below */
    const char *cert_file; /* of a client; NULL or "": none */
    const char *key_file;
    const char *fleet; /* its name, part of the keys; copied */
    struct gb_name node;
    uint64_t uuid; /* 1 to INT64_MAX, of the state folder: the same after a restart, another on another machine */
    const struct gb_fleet_url *urls; /* under which others reach this node; none: they cannot. Copied */
    size_t url_count;
    const char *labels;  /* a JSON object of texts; copied */
    const char *version; /* copied */
    unsigned ttl_s;      /* of the lease; 0: 30. 2 at least */
    /* The uuid of the fleet that this node's registered sessions are of, as `learned` has told; NULL or "": of none. A
     * node that has such sessions joins no other fleet. Copied. */
    const char *known_uuid;

    /* Asked by the fleet's thread; must not block. Those that are NULL are not asked. */
    void *app;
    size_t (*devices)(void *app, struct gb_fleet_device ret[GB_FLEET_DEVICES_MAX]);
    /* Whether the node has the session of that record, registered under its claim: one that it has not is taken out of
     * the directory, since no client has had an answer that it was made. */
    bool (*has)(void *app, const struct gb_fleet_session *record);
    /* Registered sessions of this node, `max` at most from *cursor on, which is 0 at first and moved on; 0: no more.
     * What is wrong with a name is left to the next call. */
    size_t (*sessions)(void *app, int64_t *cursor, struct gb_fleet_session *ret, size_t max);
    /* The one of that name. False: the node has none. */
    bool (*session)(void *app, const struct gb_name *name, struct gb_fleet_session *ret);
    /* The directory says something else of a session than the node. It is the application's to see to that, and to call
     * gb_fleet_reconciled when that is done. */
    void (*reconcile)(void *app, const struct gb_fleet_session *mine, enum gb_fleet_outcome outcome, uint64_t epoch);
    /* The node has joined the fleet of that uuid for the first time. */
    void (*learned)(void *app, const char *uuid);
    /* The state has changed. */
    void (*changed)(void *app);
    /* An order has come to this node, which has no URL; it may come twice. False: not now, it comes again. */
    bool (*order)(void *app, enum gb_order_what what, const struct gb_name *session);
};

/* Starts the thread, which joins. Returns 0, or -1 with INVALID_ARGUMENT or INTERNAL; a directory that does not answer
 * is no error. */
int gb_fleet_open(const struct gb_fleet_config *config, struct gb_fleet **ret, struct gb_error *err);
/* Leaves: the lease is given back, so that others know at once. Asks that are open end with DRAINING. NULL is
 * accepted. */
void gb_fleet_close(struct gb_fleet *fleet);

enum gb_fleet_state {
    GB_FLEET_ALONE, /* the directory does not answer, or is not this fleet's; the node goes on with what it has */
    GB_FLEET_JOINED,
    GB_FLEET_EXPIRED,  /* the lease ran out; it joins again */
    GB_FLEET_DUPLICATE /* another process with the same name or uuid is joined */
};
const char *gb_fleet_state_name(enum gb_fleet_state state); /* "alone", ... */

struct gb_fleet_stat {
    enum gb_fleet_state state;
    uint64_t since_ns;    /* gb_clock_ns of its beginning */
    struct gb_error why;  /* unless JOINED */
    char fleet_uuid[40];  /* "": not known yet */
    char cluster_id[24];  /* of the directory, decimal; "": not known yet */
    uint64_t incarnation; /* of this process */
    bool draining;
    uint64_t requests; /* to the directory; this and all below since the start */
    uint64_t failures; /* of them */
    uint64_t renewals;
    uint64_t lookups;
    uint64_t lookups_cached;   /* of them, answered without the directory */
    uint64_t lookups_failed;   /* of them, neither found nor confirmed to be absent */
    uint64_t registered_again; /* sessions of this node that the directory had lost */
    uint64_t superseded;       /* sessions of this node that another has now */
    int64_t clock_offset_ms;   /* the directory's clock less this one; by the Date of its answers */
};
void gb_fleet_stat(struct gb_fleet *fleet, struct gb_fleet_stat *ret);

/* Whether the state is GB_FLEET_JOINED, without a lock. */
bool gb_fleet_is_joined(struct gb_fleet *fleet);

/* The URL of this node on that network, or NULL. Constant while the fleet is open. */
const char *gb_fleet_own_url(const struct gb_fleet *fleet, const struct gb_name *network);

/* Drain on request: placement leaves the node out. */
void gb_fleet_set_draining(struct gb_fleet *fleet, bool draining);

/* --- records ------------------------------------------------------------------------------------------------------ */

struct gb_fleet_node {
    struct gb_name name;
    uint64_t uuid;
    uint64_t incarnation; /* 0 unless alive */
    bool alive;           /* its lease is there */
    bool draining;
    char version[GB_FLEET_VERSION_SIZE];
    char labels[GB_FLEET_LABELS_SIZE];
    struct gb_fleet_url urls[GB_FLEET_NETWORKS_MAX];
    size_t url_count;
    struct gb_fleet_device devices[GB_FLEET_DEVICES_MAX]; /* free and committed as told last, 0 unless alive */
    size_t device_count;
};
/* Whether a label of a node may have that key: one that Prometheus takes as the name of a label, and that is not given
 * to all nodes anyway ("node", "version"). */
bool gb_fleet_label_key_is_valid(const char *key, size_t n);
/* NULL: the node is in no network that both know. */
const char *gb_fleet_url_on(const struct gb_fleet_node *node, const struct gb_name *network);

enum gb_on_partition { GB_ON_PARTITION_SERVE, GB_ON_PARTITION_STOP };

/* A node that may have copies of a session's sealed buffers, since the listing of that number. */
#define GB_FLEET_HOLDERS_MAX 8
struct gb_fleet_holder {
    struct gb_name node;
    uint64_t number;
};

#define GB_FLEET_LATER_SIZE 512

/* Of a session that is being taken over: what its record said before, until it is made at its new node. */
struct gb_fleet_former {
    struct gb_name node; /* "": none */
    uint64_t epoch;
    char claim[GB_FLEET_CLAIM_SIZE];
};

struct gb_fleet_session {
    struct gb_name name;
    struct gb_name node;
    uint64_t epoch;
    char claim[GB_FLEET_CLAIM_SIZE]; /* told to none but the owner */
    enum gb_on_partition on_partition;
    char labels[GB_FLEET_LABELS_SIZE];
    uint64_t quota_bytes;      /* GB_UNLIMITED: none */
    bool deleted;              /* nothing is left but its epoch */
    bool released;             /* its node has not got it: one that has may take it, before the record goes */
    bool given;                /* not of records: this node was giving it away when the process before this one ended */
    uint64_t failover_after_s; /* 0: no node takes it over by itself */
    unsigned replicas;         /* nodes that are to have copies */
    struct gb_fleet_holder holders[GB_FLEET_HOLDERS_MAX];
    size_t holder_count;
    struct gb_name tenant; /* "": none */
    struct gb_fleet_former former;
    char
        later[GB_FLEET_LATER_SIZE]; /* members of its record that this version does not know, a JSON object; "": none */
};
/* The holder of that name, or NULL. */
const struct gb_fleet_holder *gb_fleet_holder_of(const struct gb_fleet_session *session, const struct gb_name *node);
/* Sets *ret to the holders as "NODE:NUMBER,...", with one reference; to NULL if there are none. -1: no memory. */
int gb_fleet_holders_text(const struct gb_fleet_session *session, struct gb_text **ret);
/* Sets the holders. False: the text is not of that form. */
bool gb_fleet_holders_read(const char *text, struct gb_fleet_session *ret);

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* What is asked, embedded by its owner in a structure of the answer. done runs once on the fleet's thread, without
 * locks, with error.code GB_OK or the reason: DIRECTORY_UNAVAILABLE, DRAINING and those named below. It does not run
 * when the function that asks has returned true: the answer is there at once. */
struct gb_fleet_ask {
    void (*done)(struct gb_fleet_ask *ask);
    struct gb_error error;
    struct gb_fleet_ask *next; /* the fleet's, as what */
    void *what;
};
/* The answer is not wanted any more: done does not run after this, and the ask may be freed. A done that runs at this
 * moment is waited for, so the caller holds no lock that it takes; within done it returns at once. A change that was
 * asked for may be made all the same, but for a registration, which is taken back. */
void gb_fleet_cancel(struct gb_fleet *fleet, struct gb_fleet_ask *ask);

/* A tenant: the quotas of its sessions have a limit together. */
struct gb_fleet_tenant {
    struct gb_name name;
    uint64_t limit_bytes; /* GB_UNLIMITED: none */
    uint64_t used_bytes;  /* sum of the quotas of its sessions */
    size_t sessions;
};
/* All tenants by their names, or that one: TENANT_NOT_FOUND. The caller frees items with free(). */
struct gb_fleet_tenants {
    struct gb_fleet_ask ask;
    struct gb_name only; /* "": all */
    struct gb_fleet_tenant *items;
    size_t count;
};
void gb_fleet_list_tenants(struct gb_fleet *fleet, struct gb_fleet_tenants *tenants);
/* Makes or changes a tenant, or removes it: its sessions stay. */
struct gb_fleet_tenant_set {
    struct gb_fleet_ask ask;
    struct gb_name name;
    uint64_t limit_bytes;
    bool remove;
};
void gb_fleet_set_tenant(struct gb_fleet *fleet, struct gb_fleet_tenant_set *set);
/* Gives a session of this node and of a tenant a larger quota in the directory: name, claim, tenant and quota_bytes are
 * given. TENANT_NOT_FOUND, TENANT_QUOTA_EXCEEDED. */
struct gb_fleet_resize {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
};
void gb_fleet_resize(struct gb_fleet *fleet, struct gb_fleet_resize *resize);

/* Who owns the session. SESSION_NOT_FOUND only if the directory has confirmed it. Sessions that are found are
 * remembered for 10 s, and for 10 minutes while the directory does not answer (`stale`); one that is not there for 1 s.
 * surely: asks a majority of the directory, whatever is remembered. At most 64 look-ups are open: SATURATED beyond. */
struct gb_fleet_find {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
    struct gb_fleet_node owner;   /* as the directory has it */
    struct gb_fleet_node replica; /* while the owner is not alive: a node that is, and has copies; name "": none */
    bool stale;
    uint64_t absent_s; /* how long the owner has not been alive, as far as this node knows; 0: it is */
};
bool gb_fleet_find(struct gb_fleet *fleet, const struct gb_name *session, bool linearizable,
                   struct gb_fleet_find *find);

/* Makes this node the owner of a session that none has, at epoch 1 with a new claim; both are set in session->session.
 * SESSION_EXISTS with the owner in session->owner; of a tenant TENANT_NOT_FOUND, TENANT_QUOTA_EXCEEDED.
 * A transaction whose answer is lost is looked up by its claim. */
struct gb_fleet_register {
    struct gb_fleet_ask ask;
    struct gb_fleet_session
        session; /* name, on_partition, failover_after_s, labels, quota_bytes, replicas, tenant are given */
    struct gb_fleet_node owner;
    bool from_copies; /* a takeover by a node that has copies: the claim is given, and the other holders stay */
    bool empty;       /* a takeover though other nodes have copies, which are dropped */
};
void gb_fleet_register(struct gb_fleet *fleet, struct gb_fleet_register *session);
/* The same of one that this node owns by that claim: forgets it. One that another owns stays. made: it was there; else
 * one that was taken over is given back. */
void gb_fleet_unregister(struct gb_fleet *fleet, const struct gb_name *session, const char *claim, bool made);

/* Makes this node the owner of a session whose owner is not alive, at the next epoch with a new claim; what the record
 * says of it is set in session->session, whose name alone is given; holders are none, unless it holds. COPIES_REMAIN:
 * other nodes have copies, and this one would begin empty.
 * SESSION_NOT_FOUND, NODE_ALIVE, SUPERSEDED (another
 * was faster). */
void gb_fleet_take_over(struct gb_fleet *fleet, struct gb_fleet_register *session);

/* A claim that no other session has. Returns 0, or -1 with INTERNAL. */
int gb_fleet_claim_make(struct gb_fleet *fleet, char ret[GB_FLEET_CLAIM_SIZE], struct gb_error *err);

/* Transfers a session of this node to another one, at the next epoch and with the claim that the other node chose. Both
 * nodes must be alive. On success session has the new node and epoch. SUPERSEDED; NODE_UNREACHABLE: that node is not
 * alive. The ask ends only when the directory has said what became of the transaction; until then
 * gb_fleet_owner_is_uncertain is true. undecided, with DRAINING: the fleet was closed before that. */
struct gb_fleet_transfer {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session; /* name and claim are given: this node's */
    struct gb_name to;
    char claim[GB_FLEET_CLAIM_SIZE];
    bool undecided;
};
void gb_fleet_transfer(struct gb_fleet *fleet, struct gb_fleet_transfer *transfer);

/* Writes which nodes may have copies of a session of this node: name, claim and holders are given. SUPERSEDED. Whether
 * it was written is not known if the directory does not answer. */
struct gb_fleet_holder_set {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
};
void gb_fleet_set_holders(struct gb_fleet *fleet, struct gb_fleet_holder_set *set);
/* Sessions of which this node may have copies, as their owners have written; the caller frees names with free(). */
struct gb_fleet_held {
    struct gb_fleet_ask ask;
    struct gb_name *names;
    size_t count;
};
void gb_fleet_list_held(struct gb_fleet *fleet, struct gb_fleet_held *held);
/* This node has no copies of the session any more, and looks for it in that list no longer. */
struct gb_fleet_held_drop {
    struct gb_fleet_ask ask;
    struct gb_name session;
};
void gb_fleet_drop_held(struct gb_fleet *fleet, struct gb_fleet_held_drop *drop);

/* The directory says that this node has the session, and it has not: it is taken out in a while, unless it is here by
 * then. */
void gb_fleet_report_missing(struct gb_fleet *fleet, const struct gb_name *session, const char *claim);

/* Registered nodes, by their names. The caller frees ret with free(). */
struct gb_fleet_nodes {
    struct gb_fleet_ask ask;
    struct gb_fleet_node *items;
    size_t count;
};
void gb_fleet_list_nodes(struct gb_fleet *fleet, struct gb_fleet_nodes *nodes);

/* Registered sessions by their names, after `after` ("": from the first), `limit` at most; of one node if that is not
 * "". more: there are others behind. */
struct gb_fleet_sessions {
    struct gb_fleet_ask ask;
    struct gb_name after;  /* has the prefix, or is empty */
    struct gb_name prefix; /* of their names; "": all */
    struct gb_name node;
    size_t limit;
    struct gb_fleet_session *items;
    size_t count;
    bool more;
};
void gb_fleet_list_sessions(struct gb_fleet *fleet, struct gb_fleet_sessions *sessions);

/* Takes a node that is not alive out of the directory, with its owned keys and its sessions. NODE_ALIVE,
 * NODE_NOT_FOUND. */
struct gb_fleet_forget {
    struct gb_fleet_ask ask;
    struct gb_name node;
};
void gb_fleet_forget(struct gb_fleet *fleet, struct gb_fleet_forget *forget);

/* Deletes a session whose owner is not alive. Its epoch is kept for 90 days, so that the owner sets it aside when it
 * comes back. SESSION_NOT_FOUND, NODE_ALIVE. */
struct gb_fleet_tombstone {
    struct gb_fleet_ask ask;
    struct gb_name session;
};
void gb_fleet_tombstone(struct gb_fleet *fleet, struct gb_fleet_tombstone *tombstone);

/* Nodes that would take a session, in the order in which they are to be asked: of those that fit two at random, the
 * one with more free memory first. NO_NODE_FITS with the reasons counted. select: a JSON object of labels that the node
 * has; "": any. */
struct gb_fleet_place {
    struct gb_fleet_ask ask;
    char select[GB_FLEET_LABELS_SIZE];
    uint64_t bytes;          /* of memory that one of its devices has free and uncommitted; 0: any */
    struct gb_name network;  /* on which this node can reach it */
    struct gb_name excluded; /* a node that is not meant; "": none */
    struct gb_fleet_node nodes[GB_FLEET_HOPS_MAX];
    size_t count;
};
void gb_fleet_place(struct gb_fleet *fleet, struct gb_fleet_place *place);

/* Gives an order to a node that has no URL and is alive. It goes with the node's lease. NODE_UNREACHABLE: the node is
 * not there. */
struct gb_fleet_order {
    struct gb_fleet_ask ask;
    struct gb_name node;
    uint64_t uuid; /* of the node */
    enum gb_order_what what;
    struct gb_name session; /* "": none */
};
void gb_fleet_order(struct gb_fleet *fleet, struct gb_fleet_order *order);

/* A request of another node for the directory, as etcd's gateway takes it; the caller has checked it. It is sent once,
 * unless that does no harm. */
enum gb_fleet_relay_op { GB_RELAY_TXN, GB_RELAY_GRANT, GB_RELAY_KEEPALIVE, GB_RELAY_TIMETOLIVE, GB_RELAY_REVOKE };
struct gb_fleet_relay {
    struct gb_fleet_ask ask;
    enum gb_fleet_relay_op op;
    const char *body;  /* JSON, copied */
    bool reads;        /* a transaction that changes nothing */
    bool serializable; /* and that one member answers */
    int status;        /* below 500 */
    char *answer;      /* NUL-terminated; freed by the caller with free() */
    bool too_long;     /* with an error: the answer had more bytes than are read */
};
void gb_fleet_relay(struct gb_fleet *fleet, struct gb_fleet_relay *relay);
/* The directory's clock, seconds since the epoch, as far as it is known here. */
int64_t gb_fleet_now_s(const struct gb_fleet *fleet);

/* A small request to another node. connect 1 s, in all 3 s; after 3 failures in a row the node is not asked for 5 s:
 * NODE_UNREACHABLE. The answer is at most 1 MiB. */
struct gb_fleet_call {
    struct gb_fleet_ask ask;
    const char *method;
    char url[GB_FLEET_URL_SIZE + 512]; /* whole, with its ticket */
    char *body;                        /* JSON; NULL: none. The caller's, until done */
    int status;
    char *answer; /* NUL-terminated; freed by the caller with free() */
    size_t bytes;
};
void gb_fleet_call(struct gb_fleet *fleet, struct gb_fleet_call *call);

/* --- this node's sessions ----------------------------------------------------------------------------------------- */

/* Whether no other node can have been made the owner of a session of this one by itself, which is so until two seconds,
 * or a third of the lease, before the lease may run out. */
bool gb_fleet_lease_is_valid(struct gb_fleet *fleet);

/* For how many seconds the directory may lack what nodes have, since it was away or restored; 0: it does not. */
unsigned gb_fleet_suspect_s(struct gb_fleet *fleet);

/* A client says that it knows of a higher epoch of a session of this node. The directory is asked. Returns whether the
 * client may be right: what the directory denied is not asked for some seconds. */
bool gb_fleet_report_epoch(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch);
/* The directory has said that the session is another node's, and gb_fleet_reconciled was not called since; or this node
 * itself does not know whose it is. */
bool gb_fleet_owner_is_uncertain(struct gb_fleet *fleet, const char *session);
/* What settle has asked for is done, or could not be. */
void gb_fleet_reconciled(struct gb_fleet *fleet, const struct gb_name *session);
void gb_fleet_reconcile_failed(struct gb_fleet *fleet, const struct gb_name *session);
/* Labels or quota of a session of this node have changed: its record is to say the same, as soon as it can. */
void gb_fleet_refresh(struct gb_fleet *fleet, const struct gb_name *session);

/* --- tickets ------------------------------------------------------------------------------------------------------ */

/* A ticket lets one request through at one node for five minutes: it was permitted at another. It is bound to the
 * method, the path, the query without the ticket, and the node. who: the name of the token, for the audit. */
#define GB_FLEET_TICKET_SIZE 320
#define GB_TICKET_WHO_MAX (GB_NAME_MAX + 7) /* a name and what comes before it */
/* Returns 0, or -1 with DIRECTORY_UNAVAILABLE: no key is known yet. */
int gb_fleet_ticket_make(struct gb_fleet *fleet, const char *method, const char *path, const char *query,
                         const struct gb_name *node, const char *who, char ret[GB_FLEET_TICKET_SIZE],
                         struct gb_error *err);
/* The same of a request without a query, as a query of its own: "ticket=...". The caller frees; NULL: there is none. */
char *gb_fleet_ticket_query(struct gb_fleet *fleet, const char *method, const char *path, const struct gb_name *node,
                            const char *who);
/* Returns 0 with the name of the token, or -1 with TICKET_INVALID: false, expired, or for something else. */
int gb_fleet_ticket_check(struct gb_fleet *fleet, const char *ticket, const char *method, const char *path,
                          const char *query, char *ret_who, size_t who_size, struct gb_error *err);

/* --- without a daemon --------------------------------------------------------------------------------------------- */

/* [blocks] Makes the fleet's meta record in an empty directory. 1: it was there. -1: DIRECTORY_UNAVAILABLE. Only the
 * endpoints, files and name of config are used. */
int gb_fleet_init(const struct gb_fleet_config *config, char ret_uuid[40], struct gb_error *err);

#endif
