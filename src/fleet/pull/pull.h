/* Pulls: the bytes of a buffer of another daemon become the bytes of a buffer here.
 *
 * A pull reads the source's record, makes a multipart upload of that size, and receives ranges of the source over
 * several connections, each straight into the memory or the slots of a part. All ranges ask for one entity tag, so that
 * they are of one version. A broken connection is made again and continues at its last byte. A source that has changed
 * is pulled from the beginning. If the source is lost, the pull fails over to a replica that the caller knows. At the
 * end the checksum of all bytes is compared with the source's, and the new bytes become visible in one step.
 *
 * A running pull has a thread, and one more for each further connection. The API and fleet/arrival start pulls. */
#ifndef GB_FLEET_PULL_PULL_H
#define GB_FLEET_PULL_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/core.h"

#define GB_PULLS_RUNNING 4 /* at a time, if not configured */
#define GB_PULLS_WAITING 64
#define GB_PULL_CONNECTIONS 4 /* of one pull, if not given */
#define GB_PULL_CONNECTIONS_MAX 16
#define GB_PULL_ORIGIN_SIZE 288 /* as in struct gb_http_url */
#define GB_PULL_URL_MAX 1024
#define GB_PULL_TAG_SIZE 128

struct gb_pulls;

struct gb_pulls_config {
    struct gb_core *core;  /* borrowed until gb_pulls_close */
    const char *ca_file;   /* of the sources' certificates; NULL or "": the system's. Copied */
    const char *version;   /* for User-Agent; copied */
    unsigned running_max;  /* 0: GB_PULLS_RUNNING */
    uint64_t rate_bytes_s; /* of all pulls together; 0: no bound */
};

/* Returns 0, or -1 with INTERNAL. */
int gb_pulls_open(const struct gb_pulls_config *config, struct gb_pulls **ret, struct gb_error *err);
/* Ends running pulls with DRAINING and waits for their threads. Call it before the core is closed. NULL is accepted. */
void gb_pulls_close(struct gb_pulls *pulls);

struct gb_pulls_stat {
    unsigned running;
    unsigned waiting;
    uint64_t done; /* this and all below since the start */
    uint64_t failed;
    uint64_t bytes;       /* received, including bytes that were discarded */
    uint64_t resumed;     /* connections that were made again after a break */
    uint64_t begun_again; /* because the source had changed */
};
void gb_pulls_stat(struct gb_pulls *pulls, struct gb_pulls_stat *ret);

/* --- URLs --------------------------------------------------------------------------------------------------------- */

/* A URL of a buffer: http[s]://HOST[:PORT]/v1/sessions/S/buffers/B. */
struct gb_pull_url {
    char origin[GB_PULL_ORIGIN_SIZE]; /* "http://host:7070", always with the port */
    struct gb_name session;
    struct gb_name buffer;
};
/* Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_pull_url_read(const char *text, struct gb_pull_url *ret, struct gb_error *err);
/* Whether the text is meant as a URL, not as a name. */
bool gb_pull_url_is(const char *text);
/* Reads http[s]://HOST[:PORT], optionally with the path "/". Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_pull_origin_read(const char *text, char ret[GB_PULL_ORIGIN_SIZE], struct gb_error *err);

/* --- a pull ------------------------------------------------------------------------------------------------------- */

/* Makes a query ("ticket=...") that admits a request of that method and path at the source. The pull frees it. make
 * NULL: no tickets. [the pull's threads] */
struct gb_pull_ticket {
    char *(*make)(void *arg, const char *method, const char *path);
    void *arg;
    void (*free_arg)(void *arg); /* when the pull has ended */
};

struct gb_pull;

/* Another node that has the source's buffer under the same path. */
struct gb_pull_replica {
    char origin[GB_PULL_ORIGIN_SIZE];
    struct gb_pull_ticket ticket; /* for that node; taken */
};

/* Finds another node that has the source's session, or copies of its sealed buffers. A pull that loses its source
 * asks. */
struct gb_pull_failover {
    /* lost: the origin that does not answer; "": it answers with another entity tag. registered: the source has said
     * that its session is registered. Returns 1; 0 with err: no node yet, which may change; -1 with err: no node. [one
     * of the pull's threads at a time; may block in gb_pull_wait] */
    int (*find)(void *arg, struct gb_pull *pull, const char *lost, bool registered, struct gb_pull_replica *ret,
                struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg); /* when the pull has ended */
    bool registered;             /* the source's session is registered: a local session of the name is another one */
};
/* Waits until the descriptor is readable. False: the pull is to end. */
bool gb_pull_wait(const struct gb_pull *pull, int fd);

struct gb_pull_params {
    struct gb_pull_url from;
    const char *token;            /* sent to the source's origin only; may be NULL. Copied */
    const char *if_match;         /* the entity tag that the source must have, as it gives it; NULL: any. Copied */
    bool tag_is_condition;        /* if_match is the client's: PRECONDITION_FAILED instead of SOURCE_CHANGED */
    unsigned connections;         /* 0: GB_PULL_CONNECTIONS */
    struct gb_digest_set digests; /* which the bytes must have */
    const char *const *permitted; /* origins to which the source may redirect; copied */
    size_t permitted_count;
    struct gb_pull_ticket ticket;     /* taken in every case */
    struct gb_pull_failover failover; /* taken in every case; find NULL: no failover */
    struct gb_buffer_params to;       /* session and name; kind, pool, device and durability where they are set */
    unsigned wait_ms;                 /* how long to wait for memory to become free */
    struct gb_buffer_check check;     /* of the destination; taken in every case */
};

struct gb_pull_numbers {
    char tag[GB_PULL_TAG_SIZE]; /* of the source's bytes, with its quotes */
    uint64_t generation;        /* of the source */
    uint64_t bytes;
    uint64_t received_bytes; /* including bytes that were discarded */
    unsigned connections;
    unsigned resumed;     /* connections that were made again after a break */
    unsigned begun_again; /* because the source had changed */
    unsigned failovers;   /* how often it continued at another node */
    bool verified;        /* the source has a checksum, and it is that of the bytes */
};

struct gb_pull_call {
    struct gb_buffer_call written; /* first */
    struct gb_pull_numbers numbers;
};

/* Starts a pull. The destination gets the source's dtype, shape and labels. The call can be cancelled until the bytes
 * are committed (gb_call_cancel; act false asks whether the pull waits for others). Errors: as of gb_multipart_begin
 * and _complete; SATURATED; SOURCE_UNREACHABLE: the source does not answer, or has stopped sending; SOURCE_REFUSED: it
 * answered without the bytes; SOURCE_CHANGED: its entity tag is not if_match, or it changed too often;
 * SOURCE_NOT_PERMITTED: it redirects to an origin that is not permitted; DIGEST_MISMATCH. */
void gb_pull_start(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call);

#endif
