/* A pull as the files of this folder share it, and its source over HTTP: requests with their redirects, and bytes. */
#ifndef GB_FLEET_PULL_SOURCE_H
#define GB_FLEET_PULL_SOURCE_H

#include <pthread.h>
#include <stdatomic.h>

#include "curl/request.h"
#include "fleet/pull/pull.h"
#include "source/fetch.h"

#define GB_PULL_HEAD_MAX 16384
#define GB_PULL_LOCATION_SIZE 2048
#define GB_PULL_TARGET_SIZE 2048

/* Where the bytes come from: the source, or the node that the pull has failed over to. A place never changes while
 * parts run, so that they read it without a lock. */
struct gb_pull_place {
    struct gb_pull_place *former;
    char origin[GB_PULL_ORIGIN_SIZE];
    struct gb_pull_ticket ticket;
    char tag[GB_PULL_TAG_SIZE]; /* of the bytes there */
};

/* The head of an answer of HTTP/1.1, as a client reads it. */
struct gb_pull_head {
    int status;
    bool has_length;
    uint64_t length;
    bool coded;    /* chunked, compressed or the like: the body is not the plain content */
    bool closes;   /* the last answer on this connection */
    char tag[128]; /* with its quotes; "": none, or too long */
    bool has_range;
    uint64_t first; /* of Content-Range: bytes first-last/total */
    uint64_t last;
    uint64_t total;
    unsigned retry_after_s;               /* 0: none in seconds */
    char location[GB_PULL_LOCATION_SIZE]; /* "": none, or too long */
    bool has_crc32c;
    uint32_t crc32c;
    bool has_generation;
    uint64_t generation;
    bool registered; /* of a session that a fleet knows, or of a copy of it */
};

/* Reads a head that begins at bytes[0]. Returns its length; 0: it is incomplete; -1: it is not a head of HTTP/1.x, or
 * it contradicts itself. */
int gb_pull_head_read(const char *bytes, size_t n, struct gb_pull_head *ret);

struct gb_pull_conn {
    struct gb_pull *pull;
    struct gb_http_ask ask; /* its connection */
    bool open;
    char origin[GB_PULL_ORIGIN_SIZE];
    bool used;   /* an answer came over it */
    bool silent; /* nothing came for too long; until the next connection is opened */
    int mark;    /* the fewest bytes that wake; 0: any byte */
    size_t have; /* bytes of `ahead` */
    size_t taken;
    char ahead[GB_PULL_HEAD_MAX]; /* a head, and what followed it */
};

void gb_pull_conn_init(struct gb_pull_conn *conn, struct gb_pull *pull);
void gb_pull_conn_close(struct gb_pull_conn *conn);
/* Receives the bytes that have come. *ret: how many; may be 0. */
enum gb_pull_outcome gb_pull_conn_recv(struct gb_pull_conn *conn, void *room, size_t n, size_t *ret,
                                       struct gb_error *err);
/* Waits until bytes come. BROKEN after ms without any. */
enum gb_pull_outcome gb_pull_conn_wait(struct gb_pull_conn *conn, short events, int ms, struct gb_error *err);
/* Sets how many bytes wake: many at once, but never more than remain. */
void gb_pull_conn_mark(struct gb_pull_conn *conn, uint64_t remaining);

struct gb_pull_ask {
    const struct gb_pull_place *place;
    const char *method;
    bool data; /* the bytes; else the record */
    bool ranged;
    uint64_t first;
    uint64_t last;
    const char *if_match; /* NULL: none */
};

/* Sends a request and follows redirects to permitted origins. OK: *ret is the head of the answer, and its body
 * follows. */
enum gb_pull_outcome gb_pull_request(struct gb_pull_conn *conn, const struct gb_pull_ask *ask, struct gb_pull_head *ret,
                                     struct gb_error *err);
/* The outcome of an unexpected answer: BROKEN, CHANGED or FAILED, with the source's own words in err. */
enum gb_pull_outcome gb_pull_refusal(struct gb_pull_conn *conn, const struct gb_pull_ask *ask,
                                     const struct gb_pull_head *head, struct gb_error *err);

struct gb_pull_source {
    char tag[GB_PULL_TAG_SIZE];
    uint64_t generation;
    uint64_t bytes;
    enum gb_dtype dtype;
    struct gb_shape shape;
    struct gb_text *labels; /* a reference */
    bool has_crc32c;
    uint32_t crc32c;
    bool sealed;
    bool registered; /* its session is registered in a fleet */
};

/* Asks the source at that place for its record and the version of its bytes. */
enum gb_pull_outcome gb_pull_describe(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                      struct gb_pull_source *ret, struct gb_error *err);
/* Whether both are the bytes of one sealed buffer, so that a pull can continue from one to the other. Both have the
 * same checksum, or a digest of all bytes is compared at the end. Pure. */
bool gb_pull_same_bytes(const struct gb_pull_source *a, const struct gb_pull_source *b, bool has_digest);
/* Reads the source's record, which is JSON. Returns 0, or -1 with SOURCE_REFUSED. Pure. */
int gb_pull_record_read(const char *text, size_t n, struct gb_pull_source *ret, struct gb_error *err);

/* Whether a pull that has lost its source can fail over: only sealed buffers have replicas. */
bool gb_pull_may_fail_over(const struct gb_pull *pull);

struct gb_pull {
    struct gb_fetch fetch; /* first */
    struct gb_pull_params params;
    char *token;
    char *if_match;
    char **permitted;
    struct gb_pull_place first;
    struct gb_pull_place *_Atomic place; /* the present one */
    atomic_bool failing_over;            /* a part is failing over */

    /* The pull's thread: */
    struct gb_pull_conn conn;
    struct gb_pull_source source;
};

/* --- failing over ------------------------------------------------------------------------------------------------- */

/* Whether the place has the right session. At a place that the directory names, the session must be registered. False
 * with SOURCE_REFUSED. */
bool gb_pull_is_meant(const struct gb_pull *pull, const struct gb_pull_place *place,
                      const struct gb_pull_source *source, struct gb_error *err);
/* Fails over after a part has lost its place; how: BROKEN or CHANGED. OK: pull->place is another place with the same
 * bytes. CHANGED: the pull begins again, perhaps at another place. Otherwise the reason is added to err, and patience
 * may grow. One part at a time fails over; the others get BROKEN meanwhile. */
enum gb_pull_outcome gb_pull_fail_over(struct gb_pull_conn *conn, const struct gb_pull_place *lost,
                                       enum gb_pull_outcome how, struct gb_pull_patience *patience,
                                       struct gb_error *err);
/* The same for a pull that has no bytes yet: sets pull->place if another place is found. [the pull's thread] */
void gb_pull_begin_failover(struct gb_pull *pull, struct gb_pull_patience *patience, struct gb_error *err);
unsigned gb_pull_failovers(const struct gb_pull *pull);
void gb_pull_places_free(struct gb_pull *pull);

#endif
