/* The directory: calls to etcd or to hubs, the login there, and the clock of leases with functions that run later. All
 * on the thread of the fleet, but for what says otherwise. */
#ifndef GB_FLEET_DIRECTORY_H
#define GB_FLEET_DIRECTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "curl/request.h"
#include "fleet/messages.h"

uint64_t gb_boot_ms(void);

/* Embedded by its owner. Zero-initialised is not set. */
struct gb_timer {
    uint64_t at_ms; /* by gb_boot_ms */
    void (*fn)(void *arg);
    void *arg;
    struct gb_timer *next;
    bool set;
};

struct gb_timers {
    struct gb_timer *first; /* the earliest; those of one time in the order in which they were set */
};

/* One that is set already is set anew. */
void gb_timer_set(struct gb_timers *timers, struct gb_timer *timer, uint64_t at_ms, void (*fn)(void *arg), void *arg);
void gb_timer_clear(struct gb_timers *timers, struct gb_timer *timer);
/* Runs those whose time has come; returns the milliseconds to the next, at most `most_ms`. */
uint64_t gb_timers_run(struct gb_timers *timers, uint64_t most_ms);

/* A user of etcd, where that asks for one: the token that calls carry, and logging in when it is not good any more. All
 * on the thread of the calls. */

struct gb_etcd;
struct gb_etcd_call;

struct gb_etcd_login {
    char *body;                   /* of the request; NULL: etcd asks for none */
    char *header;                 /* "Authorization: TOKEN"; NULL: none yet, or it is not good any more */
    unsigned header_number;       /* of it; none has 0 */
    struct gb_etcd_call *waiting; /* calls that go on when there is one */
    bool open;
    size_t endpoint;
    uint64_t again_ms; /* before it no other try begins */
    char url[320];
    struct gb_http_ask ask;
    struct gb_timer timer;
};

/* user: "NAME:PASSWORD". Returns 0, or -1 with INVALID_ARGUMENT or INTERNAL. */
int gb_etcd_login_init(struct gb_etcd_login *login, const char *user, struct gb_error *err);

/* The directory: calls to etcd's gateway, or to hubs that pass them on, one endpoint after the other. All on one
 * thread, but for the counters. */

#define GB_ETCD_ENDPOINTS_MAX 8
#define GB_ETCD_TOTAL_MS 3000

/* What a call needs. Without a majority of members, each of them answers reads of what it has. */
enum gb_etcd_need {
    GB_ETCD_MEMBER,   /* one of them: serializable reads */
    GB_ETCD_MAJORITY, /* all else */
    GB_ETCD_PROBE     /* a majority, and it is tried even if such calls are to fail at once at this time */
};

struct gb_etcd_breaker {
    uint64_t retry_ms;   /* by gb_boot_ms: calls before fail at once */
    unsigned backoff_ms; /* the last one; 0: the last call was answered */
};

struct gb_etcd {
    struct gb_http_client *client;
    struct gb_timers *timers;
    /* Answers may be of a directory that was restored; surely: it has gone back. `for_s` 0: as long as is usual. NULL:
     * no one asks. */
    void (*suspect)(void *arg, bool certain, unsigned for_s);
    void *suspect_arg;
    char *endpoints[GB_ETCD_ENDPOINTS_MAX];
    size_t count;
    size_t preferred; /* the one that is asked first */
    struct gb_etcd_login login;
    char *as;                      /* of hubs: "?node=NAME"; NULL: etcd itself is asked */
    char *authorization;           /* of hubs: a header; NULL: none */
    uint64_t cluster_id;           /* of the directory; another is no answer. 0: not known yet */
    int64_t revision;              /* the highest that a majority has answered */
    uint64_t term;                 /* the same of the leader's term; 0: none yet */
    uint64_t breaks;               /* of gb_http_client_breaks, as told last */
    bool met;                      /* it has answered */
    bool lost;                     /* it was not there when it was asked, and has not answered since */
    bool full;                     /* the last change was refused, as the directory is out of space */
    struct gb_etcd_breaker member; /* of calls that one member answers */
    struct gb_etcd_breaker majority;
    unsigned most_ms; /* of their next delays */
    _Atomic uint64_t requests;
    _Atomic uint64_t failures;
    _Atomic int64_t offset_ms; /* the directory's clock less this one */
};

/* "http://HOST:2379[,...]". Returns 0, or -1 with INVALID_ARGUMENT. client and timers are borrowed. */
int gb_etcd_init(struct gb_etcd *etcd, const char *endpoints, struct gb_http_client *client, struct gb_timers *timers,
                 struct gb_error *err);
void gb_etcd_done(struct gb_etcd *etcd);
/* The endpoints are hubs, which are asked as that node. secret: of its token there; NULL or "": it has none. Returns 0,
 * or -1 with INTERNAL. */
int gb_etcd_by_hubs(struct gb_etcd *etcd, const char *node, const char *secret, struct gb_error *err);

/* Tells suspect if the other side may be another process than before. */
void gb_etcd_check_connections(struct gb_etcd *etcd);

/* It lacks what it had: tells suspect. */
void gb_etcd_rolled_back(struct gb_etcd *etcd);

/* When what failed may be tried again, by gb_boot_ms: in a second, or later if calls are to fail at once until then. */
uint64_t gb_etcd_again_ms(const struct gb_etcd *etcd);

/* The time by the directory's clock, seconds since the epoch. [any thread] */
int64_t gb_etcd_now_s(const struct gb_etcd *etcd);

enum gb_etcd_kind {
    GB_ETCD_TXN,
    GB_ETCD_GRANT,
    GB_ETCD_KEEPALIVE,
    GB_ETCD_TIMETOLIVE,
    GB_ETCD_REVOKE,
    GB_ETCD_WAIT /* of hubs: for orders to this node; answered as a txn with one range */
};

/* Numbers of refusals that are answers. */
#define GB_ETCD_NO_LEASE 5
#define GB_ETCD_NO_SPACE 8 /* this one is none */
#define GB_ETCD_LEASE_EXISTS 9

/* One call, embedded by its owner. A zeroed one is not open. */
struct gb_etcd_call {
    void *arg;
    void (*done)(struct gb_etcd_call *call); /* once, on the thread, never within gb_etcd_send */
    /* Another node's: what is answered is not read (`status` is below 500, and `answer` the owner's to free), and it is
     * tried even if such calls are to fail at once: what went wrong for one node says nothing of the next one's. */
    bool raw;

    /* The outcome: error.code GB_OK and either `refusal` or one of the two answers, which are freed when done has
     * returned. Or DIRECTORY_UNAVAILABLE. */
    struct gb_error error;
    bool carried;     /* with an error: it may have been carried out all the same */
    int refusal;      /* 0: none */
    uint64_t sent_ms; /* by gb_boot_ms: when the request that was answered went out */
    int64_t known;    /* the directory's revision at that time, as far as it was known */
    uint64_t term;    /* the same of the leader's term */
    int status;
    char *answer;
    struct gb_txn_answer txn;
    struct gb_lease_answer lease;

    /* The directory's. */
    struct gb_etcd *etcd;
    enum gb_etcd_kind kind;
    char *body;
    char url[512];
    unsigned header_used; /* of the login */
    bool logged_in_again;
    bool waits; /* for the login */
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

/* Sends body, which it owns, NULL being one for which there was no memory. What may have been carried out is sent again
 * only if that does no harm (`repeat`). */
void gb_etcd_send(struct gb_etcd *etcd, struct gb_etcd_call *call, enum gb_etcd_kind kind, char *body,
                  uint64_t deadline_ms, bool repeat, enum gb_etcd_need need);
/* Starts a request to the directory or to another node. Returns 0, or -1 with SATURATED: done does not run. */
int gb_fleet_http_start(struct gb_http_client *client, struct gb_http_ask *ask, struct gb_error *err);
/* done does not run. One that is not open is accepted. */
void gb_etcd_cancel(struct gb_etcd_call *call);

#endif
