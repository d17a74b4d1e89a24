/* The directory: calls to etcd or to hubs, the login at etcd, the clock of leases and its timers. All functions run on
 * the fleet's thread, unless a comment says otherwise. */
#ifndef GB_FLEET_DIRECTORY_H
#define GB_FLEET_DIRECTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "curl/request.h"
#include "fleet/messages.h"

uint64_t gb_boot_ms(void);

/* Embedded by its owner. A zeroed timer is not set. */
struct gb_timer {
    uint64_t at_ms; /* by gb_boot_ms */
    void (*fn)(void *arg);
    void *arg;
    struct gb_timer *next;
    bool set;
};

struct gb_timers {
    struct gb_timer *first; /* the earliest; timers of one time in the order in which they were set */
};

/* Sets the timer. A timer that is set already moves to the new time. */
void gb_timer_set(struct gb_timers *timers, struct gb_timer *timer, uint64_t at_ms, void (*fn)(void *arg), void *arg);
void gb_timer_clear(struct gb_timers *timers, struct gb_timer *timer);
/* Runs the timers that are due. Returns the milliseconds until the next one, at most `most_ms`. */
uint64_t gb_timers_run(struct gb_timers *timers, uint64_t most_ms);

/* The login of a user at etcd: the token that calls carry, and its renewal when etcd no longer accepts it. */

struct gb_etcd_login {
    char *body;                   /* of the request; NULL: etcd needs no login */
    char *header;                 /* "Authorization: TOKEN"; NULL: no valid token */
    unsigned header_number;       /* counts the tokens; the first is 1 */
    struct gb_etcd_call *waiting; /* calls that wait for a token */
    bool open;
    size_t endpoint;
    uint64_t again_ms; /* no login begins before */
    char url[320];
    struct gb_http_ask ask;
    struct gb_timer timer;
};

/* user: "NAME:PASSWORD". Returns 0, or -1 with INVALID_ARGUMENT or INTERNAL. */
int gb_etcd_login_init(struct gb_etcd_login *login, const char *user, struct gb_error *err);

/* Calls to etcd's gateway or to hubs. If an endpoint fails, the next one is tried. */

#define GB_ETCD_ENDPOINTS_MAX 8
#define GB_ETCD_TOTAL_MS 3000

/* Which members a call needs. A member that has lost the majority answers serializable reads only. */
enum gb_etcd_need {
    GB_ETCD_MEMBER,   /* any member: serializable reads */
    GB_ETCD_MAJORITY, /* all other calls */
    GB_ETCD_PROBE     /* a majority; sent even while the breaker is open */
};

struct gb_etcd_breaker {
    uint64_t retry_ms;   /* by gb_boot_ms: calls before that fail at once */
    unsigned backoff_ms; /* the last delay; 0: the last call was answered */
};

struct gb_etcd {
    struct gb_http_client *client;
    struct gb_timers *timers;
    /* Reports that the directory may have been restored. certain: its revision has gone back. for_s 0: the usual time.
     * May be NULL. */
    void (*suspect)(void *arg, bool certain, unsigned for_s);
    void *suspect_arg;
    char *endpoints[GB_ETCD_ENDPOINTS_MAX];
    size_t count;
    size_t preferred; /* is tried first */
    struct gb_etcd_login login;
    char *as;                      /* for hubs: "?node=NAME"; NULL: the endpoints are etcd's */
    char *authorization;           /* for hubs: a header; NULL: no token */
    uint64_t cluster_id;           /* answers of another cluster are refused. 0: not known yet */
    int64_t revision;              /* the highest in an answer of a majority */
    uint64_t term;                 /* the highest term of a leader; 0: not known yet */
    uint64_t breaks;               /* the last value of gb_http_client_breaks */
    bool met;                      /* it has answered */
    bool lost;                     /* it could not be reached, and has not answered since */
    bool full;                     /* out of space: the last change was refused */
    struct gb_etcd_breaker member; /* of GB_ETCD_MEMBER calls */
    struct gb_etcd_breaker majority;
    unsigned most_ms; /* the longest delay of both breakers */
    _Atomic uint64_t requests;
    _Atomic uint64_t failures;
    _Atomic int64_t offset_ms; /* the directory's clock less this one */
};

/* endpoints: "http://HOST:2379[,...]". client and timers are borrowed. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_etcd_init(struct gb_etcd *etcd, const char *endpoints, struct gb_http_client *client, struct gb_timers *timers,
                 struct gb_error *err);
void gb_etcd_done(struct gb_etcd *etcd);
/* Sets that the endpoints are hubs, which are called as that node. secret: of its token at the hubs; NULL or "": no
 * token. Returns 0, or -1 with INTERNAL. */
int gb_etcd_by_hubs(struct gb_etcd *etcd, const char *node, const char *secret, struct gb_error *err);

/* Suspects the directory if a connection to it has ended: its process may be another one. */
void gb_etcd_check_connections(struct gb_etcd *etcd);

/* The directory lacks what it had: suspects it with certainty. */
void gb_etcd_rolled_back(struct gb_etcd *etcd);

/* When to repeat what failed, by gb_boot_ms: after a second, or when the breaker closes. */
uint64_t gb_etcd_again_ms(const struct gb_etcd *etcd);

/* The time by the directory's clock, seconds since the epoch. [any thread] */
int64_t gb_etcd_now_s(const struct gb_etcd *etcd);

enum gb_etcd_kind {
    GB_ETCD_TXN,
    GB_ETCD_GRANT,
    GB_ETCD_KEEPALIVE,
    GB_ETCD_TIMETOLIVE,
    GB_ETCD_REVOKE,
    GB_ETCD_WAIT /* at hubs: for orders to this node; answered as a txn with one range */
};

/* Numbers of refusals that count as answers. */
#define GB_ETCD_NO_LEASE 5
#define GB_ETCD_NO_SPACE 8 /* this one counts as a failure */
#define GB_ETCD_LEASE_EXISTS 9

/* One call, embedded by its owner. A zeroed call is not open. */
struct gb_etcd_call {
    void *arg;
    void (*done)(struct gb_etcd_call *call); /* once, on the thread, never within gb_etcd_send */
    /* Another node's request. The answer is not read: status is below 500, and the owner frees answer. The call ignores
     * the breaker, because the failure of one node's request says nothing about the next node's. */
    bool raw;

    /* The outcome: DIRECTORY_UNAVAILABLE; or GB_OK with either `refusal` or one of the two answers, which are freed
     * when done has returned. */
    struct gb_error error;
    bool carried;     /* with an error: the request may have been carried out */
    int refusal;      /* 0: not refused */
    uint64_t sent_ms; /* by gb_boot_ms: when the answered request was sent */
    int64_t known;    /* etcd->revision at that time */
    uint64_t term;    /* etcd->term at that time */
    int status;
    char *answer;
    struct gb_txn_answer txn;
    struct gb_lease_answer lease;

    /* The directory's. */
    struct gb_etcd *etcd;
    enum gb_etcd_kind kind;
    char *body;
    char url[512];
    unsigned header_used; /* header_number of the token that it carried */
    bool logged_in_again;
    bool waits; /* for a token */
    struct gb_etcd_call *next_waiting;
    uint64_t deadline_ms;
    size_t attempts;
    size_t first; /* the endpoint of the first attempt */
    size_t endpoint;
    enum gb_etcd_need need;
    bool repeat;
    bool open;
    struct gb_http_ask ask;
    struct gb_timer timer;
};

/* Sends the request. Takes body; NULL means that memory was exhausted. A request that may have been carried out is sent
 * again only if `repeat` says that this is harmless. done runs later, also on errors. */
void gb_etcd_send(struct gb_etcd *etcd, struct gb_etcd_call *call, enum gb_etcd_kind kind, char *body,
                  uint64_t deadline_ms, bool repeat, enum gb_etcd_need need);
/* Starts an HTTP request to the directory or to another node. Returns 0, or -1 with SATURATED: done does not run. */
int gb_fleet_http_start(struct gb_http_client *client, struct gb_http_ask *ask, struct gb_error *err);
/* Cancels the call: done does not run. A call that is not open is accepted. */
void gb_etcd_cancel(struct gb_etcd_call *call);

#endif
