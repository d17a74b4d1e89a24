/* One daemon as a node of a fleet: what it publishes in the fleet's directory, and what it reads there of other nodes.
 * The directory is etcd, or hubs that pass requests on to etcd. A request that the node can serve itself never waits
 * for the directory.
 *
 * This layer knows no sessions in memory, no HTTP server and no tokens. One thread, "gb-fleet", calls the directory and
 * other nodes. Only gb_fleet_open, gb_fleet_close and gb_fleet_init block. Any thread may call any function. The daemon
 * opens the fleet; the API and the folders below fleet/ ask it.
 *
 * Keys of the directory, below /gpubuf/FLEET/. Values are JSON. Unknown members are kept when a record is written
 * again.
 *
 *   meta          {"uuid","schema":1}, written by gb_fleet_init alone
 *   nodes/N       {"uuid","urls":{"NETWORK":"URL"},"labels","version","schema":[1,1],
 *                  "devices":[{"uuid","name","bytes"}]}
 *   alive/N       {"uuid","incarnation","state","free":[..],"committed":[..]}, attached to the node's lease
 *   sessions/S    {"node","epoch","claim","on_partition","failover_after_s","labels","quota","replicas",
 *                 "holders":[{"node","number"}],"state":"live"};
 *                 a tombstone, kept for 90 days: {...,"state":"deleted"};
 *                 during a takeover: {...,"former":{"node","epoch","claim"}};
 *                 for some seconds, if its node does not have the session: {...,"released":true}
 *   owned/N/S     "", written by the transaction of sessions/S
 *   quota/T       {"limit"}: the most bytes that a tenant's sessions may have together; absent: no limit
 *   tenants/T/S   the quota of a session in bytes, decimal, written by the transaction of sessions/S
 *   held/N/S      "", written by the transaction that makes N a holder of sessions/S; N removes it with its last copy
 *   ctl/N/ID      {"op","session"}: an order to a node without a URL; N removes it when it has read it
 *   keys/KID      {"key","made"}: a key that signs tickets
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
    uint64_t committed_bytes; /* sum of the quotas of its sessions; a session without a quota counts what it uses */
};

/* What comparing a session with its record has decided. */
enum gb_fleet_outcome {
    GB_FLEET_RAISED,    /* the session stays this node's, at a higher epoch */
    GB_FLEET_SUPERSEDED /* at that epoch another node owns the name, or the session was deleted */
};
struct gb_fleet_session;

/* Orders to a node without a URL. The node finds them in the directory, below ctl/. */
enum gb_order_what {
    GB_ORDER_DRAIN,
    GB_ORDER_UNDRAIN,
    GB_ORDER_MOVE, /* bring that session here */
    GB_ORDER_HOLD  /* keep copies of that session */
};
const char *gb_order_word(enum gb_order_what what);
/* Reports an order that failed. */
typedef void gb_fleet_followed(void *arg, const struct gb_name *session, const struct gb_error *err);

/* What the fleet asks its application, and reports to it, on the fleet's thread. The functions must not block. Each may
 * be NULL. */
struct gb_fleet_callbacks {
    void *app;
    size_t (*devices)(void *app, struct gb_fleet_device ret[GB_FLEET_DEVICES_MAX]);
    /* Whether the node has the session of that record, registered under its claim. If it does not, the record is
     * removed from the directory: no client has received an answer that the session was made. */
    bool (*has)(void *app, const struct gb_fleet_session *record);
    /* Lists up to `max` registered sessions of this node from *cursor on, and advances *cursor, which is 0 at first.
     * Returns the count; 0 at the end. */
    size_t (*sessions)(void *app, int64_t *cursor, struct gb_fleet_session *ret, size_t max);
    /* Finds one registered session by its name. False: the node does not have it. */
    bool (*session)(void *app, const struct gb_name *name, struct gb_fleet_session *ret);
    /* The directory contradicts the node about a session. The application applies the outcome, and then calls
     * gb_fleet_reconciled or gb_fleet_reconcile_failed. */
    void (*reconcile)(void *app, const struct gb_fleet_session *mine, enum gb_fleet_outcome outcome, uint64_t epoch);
    /* The node has joined the fleet of that uuid for the first time. */
    void (*learned)(void *app, const char *uuid);
    /* The state has changed. */
    void (*changed)(void *app);
    /* An order has come to this node, which has no URL. An order may come twice. False: the order is delivered again
     * later. */
    bool (*order)(void *app, enum gb_order_what what, const struct gb_name *session);
};

struct gb_fleet_config {
    const char *endpoints; /* "http://HOST:2379[,...]", or https; copied */
    bool hubs;             /* the endpoints are hubs, which pass requests on */
    const char *secret;    /* of this node's token at the hubs; NULL or "": no token. Copied */
    const char *user;      /* "NAME:PASSWORD" of etcd; NULL or "": etcd needs no login. Copied */
    const char *ca_file;   /* checks the endpoints' certificates; NULL or "": the system's. Copied, as the two below */
    const char *cert_file; /* the client's certificate; NULL or "": no client certificate */
    const char *key_file;
    const char *fleet; /* the fleet's name, part of all keys; copied */
    struct gb_name node;
    uint64_t uuid; /* 1 to INT64_MAX, from the state folder: it survives restarts and differs on each machine */
    const struct gb_fleet_url *urls; /* under which other nodes reach this one; count 0: no node can. Copied */
    size_t url_count;
    const char *labels;  /* a JSON object of texts; copied */
    const char *version; /* copied */
    unsigned ttl_s;      /* of the lease, at least 2; 0: 30 */
    /* The uuid of the fleet of this node's registered sessions, as `learned` has reported it; NULL or "": unknown. A
     * node that has registered sessions joins no other fleet. Copied. */
    const char *known_uuid;
    struct gb_fleet_callbacks on;
};

/* Starts the thread, which joins. Returns 0, or -1 with INVALID_ARGUMENT or INTERNAL. A directory that does not answer
 * is not an error. */
int gb_fleet_open(const struct gb_fleet_config *config, struct gb_fleet **ret, struct gb_error *err);
/* Revokes the lease, so that other nodes see at once that this one has left. Open asks end with DRAINING. NULL is
 * accepted. */
void gb_fleet_close(struct gb_fleet *fleet);

enum gb_fleet_state {
    GB_FLEET_ALONE, /* the directory does not answer or is of another fleet; the node serves its own sessions */
    GB_FLEET_JOINED,
    GB_FLEET_EXPIRED,  /* the lease ran out; the node joins again */
    GB_FLEET_DUPLICATE /* another process with the same name or uuid has joined */
};
const char *gb_fleet_state_name(enum gb_fleet_state state); /* "alone", ... */

struct gb_fleet_stat {
    enum gb_fleet_state state;
    uint64_t since_ns;    /* gb_clock_ns when the state began */
    struct gb_error why;  /* unless JOINED */
    char fleet_uuid[40];  /* "": unknown as yet */
    char cluster_id[24];  /* of the directory, decimal; "": unknown as yet */
    uint64_t incarnation; /* of this process */
    bool draining;
    uint64_t requests; /* to the directory; this and all counters below since the start */
    uint64_t failures; /* of these requests */
    uint64_t renewals;
    uint64_t lookups;
    uint64_t lookups_cached;   /* of the look-ups, those answered from the cache */
    uint64_t lookups_failed;   /* of the look-ups, those that neither found the session nor confirmed its absence */
    uint64_t registered_again; /* sessions of this node that the directory had lost */
    uint64_t superseded;       /* sessions of this node that another node took */
    int64_t clock_offset_ms;   /* the directory's clock, by the Date of its answers, less this one */
};
void gb_fleet_stat(struct gb_fleet *fleet, struct gb_fleet_stat *ret);

/* Whether the state is GB_FLEET_JOINED. Takes no lock. */
bool gb_fleet_is_joined(struct gb_fleet *fleet);

/* The URL of this node on that network, or NULL. It stays the same while the fleet is open. */
const char *gb_fleet_own_url(const struct gb_fleet *fleet, const struct gb_name *network);

/* While a node drains, placement excludes it. */
void gb_fleet_set_draining(struct gb_fleet *fleet, bool draining);

/* --- records ------------------------------------------------------------------------------------------------------ */

struct gb_fleet_node {
    struct gb_name name;
    uint64_t uuid;
    uint64_t incarnation; /* 0 unless alive */
    bool alive;           /* the node's lease exists */
    bool draining;
    char version[GB_FLEET_VERSION_SIZE];
    char labels[GB_FLEET_LABELS_SIZE];
    struct gb_fleet_url urls[GB_FLEET_NETWORKS_MAX];
    size_t url_count;
    struct gb_fleet_device
        devices[GB_FLEET_DEVICES_MAX]; /* free and committed bytes as last published; 0 unless alive */
    size_t device_count;
};
/* Whether a node's label may have that key: Prometheus accepts it as the name of a label, and it is neither "node" nor
 * "version", which all nodes have. */
bool gb_fleet_label_key_is_valid(const char *key, size_t n);
/* The node's URL on that network; NULL: the node is not in it. */
const char *gb_fleet_url_on(const struct gb_fleet_node *node, const struct gb_name *network);

enum gb_on_partition { GB_ON_PARTITION_SERVE, GB_ON_PARTITION_STOP };

/* A node that may have copies of a session's sealed buffers. number: of the listing that made it a holder. */
#define GB_FLEET_HOLDERS_MAX 8
struct gb_fleet_holder {
    struct gb_name node;
    uint64_t number;
};

#define GB_FLEET_LATER_SIZE 512

/* During a takeover: what the record said before. It is kept until the session is made at its new node. */
struct gb_fleet_former {
    struct gb_name node; /* "": no takeover */
    uint64_t epoch;
    char claim[GB_FLEET_CLAIM_SIZE];
};

struct gb_fleet_session {
    struct gb_name name;
    struct gb_name node;
    uint64_t epoch;
    char claim[GB_FLEET_CLAIM_SIZE]; /* a secret of the owner */
    enum gb_on_partition on_partition;
    char labels[GB_FLEET_LABELS_SIZE];
    uint64_t quota_bytes; /* GB_UNLIMITED: no quota */
    bool deleted;         /* a tombstone: of the session only its epoch is left */
    bool released;        /* its node does not have it; a node that has it may take it before the record is removed */
    bool given;           /* no record has this: the process before this one was transferring the session */
    uint64_t failover_after_s; /* 0: no automatic takeover */
    unsigned replicas;         /* how many nodes are to have copies */
    struct gb_fleet_holder holders[GB_FLEET_HOLDERS_MAX];
    size_t holder_count;
    struct gb_name tenant; /* "": no tenant */
    struct gb_fleet_former former;
    char later[GB_FLEET_LATER_SIZE]; /* a JSON object of the record's members that this version does not know; or "" */
};
/* The holder of that name, or NULL. */
const struct gb_fleet_holder *gb_fleet_holder_of(const struct gb_fleet_session *session, const struct gb_name *node);
/* Sets *ret to the holders as "NODE:NUMBER,...", with one reference; to NULL without holders. -1: no memory. */
int gb_fleet_holders_text(const struct gb_fleet_session *session, struct gb_text **ret);
/* Sets the holders from such a text. False: the text is malformed. */
bool gb_fleet_holders_read(const char *text, struct gb_fleet_session *ret);

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* One question to the fleet. Its owner embeds it in the structure of the answer. done runs once on the fleet's thread,
 * without locks, with error.code GB_OK or the reason: DIRECTORY_UNAVAILABLE, DRAINING, and those that each function
 * names. If the asking function returned true, the answer is complete already, and done does not run. */
struct gb_fleet_ask {
    void (*done)(struct gb_fleet_ask *ask);
    void *arg; /* the owner's */
    struct gb_error error;
    struct gb_fleet_ask *next; /* the fleet's, as what */
    void *what;
};
/* Cancels an ask: done does not run after this, and the caller may free the ask. Waits for a done that is running, so
 * the caller holds no lock that done takes; called within done it returns at once. A cancelled change may still be
 * made, except a registration, which is undone. */
void gb_fleet_cancel(struct gb_fleet *fleet, struct gb_fleet_ask *ask);

/* A tenant: a limit for the sum of its sessions' quotas. */
struct gb_fleet_tenant {
    struct gb_name name;
    uint64_t limit_bytes; /* GB_UNLIMITED: no limit */
    uint64_t used_bytes;  /* sum of the quotas of its sessions */
    size_t sessions;
};
/* Lists all tenants by name, or the one in `only`: TENANT_NOT_FOUND. The caller frees items with free(). */
struct gb_fleet_tenants {
    struct gb_fleet_ask ask;
    struct gb_name only; /* "": all */
    struct gb_fleet_tenant *items;
    size_t count;
};
void gb_fleet_list_tenants(struct gb_fleet *fleet, struct gb_fleet_tenants *tenants);
/* Creates, changes or removes a tenant. The sessions of a removed tenant stay. */
struct gb_fleet_tenant_set {
    struct gb_fleet_ask ask;
    struct gb_name name;
    uint64_t limit_bytes;
    bool remove;
};
void gb_fleet_set_tenant(struct gb_fleet *fleet, struct gb_fleet_tenant_set *set);
/* Raises the quota of a session of this node and of a tenant in the directory. The caller sets name, claim, tenant and
 * quota_bytes. TENANT_NOT_FOUND, TENANT_QUOTA_EXCEEDED. */
struct gb_fleet_resize {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
};
void gb_fleet_resize(struct gb_fleet *fleet, struct gb_fleet_resize *resize);

/* Finds the owner of a session. SESSION_NOT_FOUND only if a majority of the directory confirms it. The cache keeps a
 * found session for 10 s, and for 10 minutes while the directory does not answer (`stale`). linearizable: asks a
 * majority and bypasses the cache. At most 64 look-ups are open; SATURATED beyond. Returns true if the answer is
 * complete. */
struct gb_fleet_find {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
    struct gb_fleet_node owner;   /* as the directory has it */
    struct gb_fleet_node replica; /* while the owner is away: a live node that has copies; name "": no such node */
    bool stale;
    uint64_t absent_s; /* for how long the owner has been away, as far as this node knows; 0: the owner is alive */
};
bool gb_fleet_find(struct gb_fleet *fleet, const struct gb_name *session, bool linearizable,
                   struct gb_fleet_find *find);

/* Makes this node the owner of a new session, at epoch 1 with a new claim; sets both in session->session. The caller
 * sets name, on_partition, failover_after_s, labels, quota_bytes, replicas and tenant. SESSION_EXISTS, with the owner
 * in session->owner; for a tenant TENANT_NOT_FOUND, TENANT_QUOTA_EXCEEDED. If the answer of the transaction is lost,
 * the claim identifies the record. */
struct gb_fleet_register {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
    struct gb_fleet_node owner;
    bool from_copies; /* a takeover by a node that has copies: the caller sets the claim, and the other holders stay */
    bool empty;       /* a takeover that drops the copies which other nodes have */
};
void gb_fleet_register(struct gb_fleet *fleet, struct gb_fleet_register *session);
/* Removes the record of a session that this node owns under that claim. A record of another owner stays. made: the
 * session existed here; otherwise a session that was being taken over goes back to its former owner. */
void gb_fleet_unregister(struct gb_fleet *fleet, const struct gb_name *session, const char *claim, bool made);

/* Makes this node the owner of a session whose owner is away, at the next epoch with a new claim. The caller sets the
 * name; session->session becomes what the record says. The new record has no holders unless from_copies is set.
 * COPIES_REMAIN: other nodes have copies, and this node would begin empty. SESSION_NOT_FOUND, NODE_ALIVE. SUPERSEDED:
 * another node was faster. */
void gb_fleet_take_over(struct gb_fleet *fleet, struct gb_fleet_register *session);

/* Makes a claim that no other session has. Returns 0, or -1 with INTERNAL. */
int gb_fleet_claim_make(struct gb_fleet *fleet, char ret[GB_FLEET_CLAIM_SIZE], struct gb_error *err);

/* Transfers a session of this node to another one, at the next epoch and with the claim that the other node chose. Both
 * nodes must be alive. On success session has the new node and epoch. SUPERSEDED; NODE_UNREACHABLE: that node is not
 * alive. The ask ends only when the directory has said what became of the transaction; until then
 * gb_fleet_owner_is_uncertain is true. undecided, with DRAINING: the fleet was closed before that. */
struct gb_fleet_transfer {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session; /* the caller sets name and claim, which are this node's */
    struct gb_name to;
    char claim[GB_FLEET_CLAIM_SIZE];
    bool undecided;
};
void gb_fleet_transfer(struct gb_fleet *fleet, struct gb_fleet_transfer *transfer);

/* Writes which nodes may have copies of a session of this node. The caller sets name, claim and holders. SUPERSEDED. If
 * the directory does not answer, the record may have been written. */
struct gb_fleet_holder_set {
    struct gb_fleet_ask ask;
    struct gb_fleet_session session;
};
void gb_fleet_set_holders(struct gb_fleet *fleet, struct gb_fleet_holder_set *set);
/* Lists the sessions of which this node is a holder, as their owners have written. The caller frees names with
 * free(). */
struct gb_fleet_held {
    struct gb_fleet_ask ask;
    struct gb_name *names;
    size_t count;
};
void gb_fleet_list_held(struct gb_fleet *fleet, struct gb_fleet_held *held);
/* Removes the session from that list: this node has no copies of it any more. */
struct gb_fleet_held_drop {
    struct gb_fleet_ask ask;
    struct gb_name session;
};
void gb_fleet_drop_held(struct gb_fleet *fleet, struct gb_fleet_held_drop *drop);

/* Reports that the directory assigns the session to this node, which does not have it. The record is removed after some
 * seconds, unless the node has the session by then. */
void gb_fleet_report_missing(struct gb_fleet *fleet, const struct gb_name *session, const char *claim);

/* Lists the registered nodes by name. The caller frees items with free(). */
struct gb_fleet_nodes {
    struct gb_fleet_ask ask;
    struct gb_fleet_node *items;
    size_t count;
};
void gb_fleet_list_nodes(struct gb_fleet *fleet, struct gb_fleet_nodes *nodes);

/* Lists up to `limit` registered sessions by name, after `after` ("": from the first). more: others follow. The caller
 * frees items with free(). */
struct gb_fleet_sessions {
    struct gb_fleet_ask ask;
    struct gb_name after;  /* has the prefix, or is empty */
    struct gb_name prefix; /* of their names; "": all */
    struct gb_name node;   /* their owner; "": any */
    size_t limit;
    struct gb_fleet_session *items;
    size_t count;
    bool more;
};
void gb_fleet_list_sessions(struct gb_fleet *fleet, struct gb_fleet_sessions *sessions);

/* Removes a node that is not alive from the directory, with its sessions. NODE_ALIVE, NODE_NOT_FOUND. */
struct gb_fleet_forget {
    struct gb_fleet_ask ask;
    struct gb_name node;
};
void gb_fleet_forget(struct gb_fleet *fleet, struct gb_fleet_forget *forget);

/* Deletes a session whose owner is away. A tombstone keeps its epoch for 90 days, so that a returning owner sets the
 * session aside. SESSION_NOT_FOUND, NODE_ALIVE. */
struct gb_fleet_tombstone {
    struct gb_fleet_ask ask;
    struct gb_name session;
};
void gb_fleet_tombstone(struct gb_fleet *fleet, struct gb_fleet_tombstone *tombstone);

/* Chooses nodes for a new session, in the order in which the caller asks them: of two random nodes that fit, the one
 * with more free memory comes first. NO_NODE_FITS, with the reasons counted. */
struct gb_fleet_place {
    struct gb_fleet_ask ask;
    char select[GB_FLEET_LABELS_SIZE]; /* a JSON object of labels that the node must have; "": any node */
    uint64_t bytes;                    /* of memory that one of its devices has free and uncommitted; 0: any */
    struct gb_name network;            /* on which this node can reach it */
    struct gb_name excluded;           /* a node that is not chosen; "": no such node */
    struct gb_fleet_node nodes[GB_FLEET_HOPS_MAX];
    size_t count;
};
void gb_fleet_place(struct gb_fleet *fleet, struct gb_fleet_place *place);

/* Gives an order to a live node without a URL. The order expires with that node's lease. NODE_UNREACHABLE: the node is
 * not alive. */
struct gb_fleet_order {
    struct gb_fleet_ask ask;
    struct gb_name node;
    uint64_t uuid; /* of the node */
    enum gb_order_what what;
    struct gb_name session; /* "": the order concerns no session */
};
void gb_fleet_order(struct gb_fleet *fleet, struct gb_fleet_order *order);

/* Relays another node's request to the directory, in the form of etcd's gateway. The caller has checked it. The request
 * is repeated only if that is harmless. */
enum gb_fleet_relay_op { GB_RELAY_TXN, GB_RELAY_GRANT, GB_RELAY_KEEPALIVE, GB_RELAY_TIMETOLIVE, GB_RELAY_REVOKE };
struct gb_fleet_relay {
    struct gb_fleet_ask ask;
    enum gb_fleet_relay_op op;
    const char *body;  /* JSON, copied */
    bool reads;        /* a transaction that changes nothing */
    bool serializable; /* and that one member answers */
    int status;        /* below 500 */
    char *answer;      /* NUL-terminated; freed by the caller with free() */
    bool too_long;     /* with an error: the answer exceeds the limit */
};
void gb_fleet_relay(struct gb_fleet *fleet, struct gb_fleet_relay *relay);
/* The time by the directory's clock in seconds since the epoch, as far as this node knows it. */
int64_t gb_fleet_now_s(const struct gb_fleet *fleet);

/* Sends a small request to another node, with 1 s to connect and 3 s in all. After 3 failures in a row no request is
 * sent to that node for 5 s: NODE_UNREACHABLE. The answer has at most 1 MiB. */
struct gb_fleet_call {
    struct gb_fleet_ask ask;
    const char *method;
    char url[GB_FLEET_URL_SIZE + 512]; /* whole, with its ticket */
    char *body;                        /* JSON, or NULL. The caller's, until done */
    int status;
    char *answer; /* NUL-terminated; freed by the caller with free() */
    size_t bytes;
};
void gb_fleet_call(struct gb_fleet *fleet, struct gb_fleet_call *call);

/* --- this node's sessions ----------------------------------------------------------------------------------------- */

/* Whether this node's lease keeps other nodes from taking its sessions over. It stops being valid two seconds, or a
 * third of the lease, before it may run out. */
bool gb_fleet_lease_is_valid(struct gb_fleet *fleet);

/* For how many more seconds the directory is suspected to lack what nodes have written, because it was away or was
 * restored; 0: it is not. */
unsigned gb_fleet_suspect_s(struct gb_fleet *fleet);

/* A client reports a higher epoch of a session of this node. The directory is asked. Returns whether the client may be
 * right; after the directory has refuted a report, false is returned for some seconds. */
bool gb_fleet_report_epoch(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch);
/* Whether the directory has said that the session is another node's and gb_fleet_reconciled has not been called since,
 * or this node itself cannot tell who owns the session. */
bool gb_fleet_owner_is_uncertain(struct gb_fleet *fleet, const char *session);
/* The application has applied what `reconcile` reported, or could not. */
void gb_fleet_reconciled(struct gb_fleet *fleet, const struct gb_name *session);
void gb_fleet_reconcile_failed(struct gb_fleet *fleet, const struct gb_name *session);
/* Labels or quota of a session of this node have changed: its record is updated as soon as possible. */
void gb_fleet_refresh(struct gb_fleet *fleet, const struct gb_name *session);

/* --- tickets ------------------------------------------------------------------------------------------------------ */

/* A ticket admits one request, which another node has permitted, at one node for five minutes. It is bound to the
 * method, the path, the query without the ticket, and the node. who: the name of the token, for the audit. */
#define GB_FLEET_TICKET_SIZE 320
#define GB_TICKET_WHO_MAX (GB_NAME_MAX + 7) /* a name and its prefix */
/* Returns 0, or -1 with DIRECTORY_UNAVAILABLE: no key is known yet. */
int gb_fleet_ticket_make(struct gb_fleet *fleet, const char *method, const char *path, const char *query,
                         const struct gb_name *node, const char *who, char ret[GB_FLEET_TICKET_SIZE],
                         struct gb_error *err);
/* The ticket of a request without a query, as a query: "ticket=...". The caller frees it. NULL on any error. */
char *gb_fleet_ticket_query(struct gb_fleet *fleet, const char *method, const char *path, const struct gb_name *node,
                            const char *who);
/* Returns 0 with the name of the token, or -1 with TICKET_INVALID: forged, expired, or of another request. */
int gb_fleet_ticket_check(struct gb_fleet *fleet, const char *ticket, const char *method, const char *path,
                          const char *query, char *ret_who, size_t who_size, struct gb_error *err);

/* --- without a daemon --------------------------------------------------------------------------------------------- */

/* [blocks] Writes the fleet's meta record into an empty directory. Uses only the endpoints, files and name of config.
 * Returns 0; 1 if the record existed; -1 with DIRECTORY_UNAVAILABLE. */
int gb_fleet_init(const struct gb_fleet_config *config, char ret_uuid[40], struct gb_error *err);

#endif
