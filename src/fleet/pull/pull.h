/* Pulls: the bytes of a buffer of another daemon become the bytes of a buffer here.
 *
 * A pull reads the source's record, makes a multipart upload of that size, and receives ranges of the source over
 * several connections, each straight into the memory or the slots of a part. All ranges ask for one entity tag, so that
 * they are of one version. A broken connection is made again and continues at its last byte. A source that has changed
 * is pulled from the beginning. If the source is lost, the pull fails over to a replica that the caller knows. At the
 * end the checksum of all bytes is compared with the source's, and the new bytes become visible in one step.
 *
 * A pull is a fetch (source/fetch.h). The API and fleet/arrival start pulls. */
#ifndef GB_FLEET_PULL_PULL_H
#define GB_FLEET_PULL_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/core.h"
#include "source/fetch.h"

#define GB_PULL_URL_MAX 1024

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

/* Starts a pull. The destination gets the source's dtype, shape and labels. The call can be cancelled until the bytes
 * are committed (gb_call_cancel; act false asks whether the pull waits for others). Errors: as of gb_multipart_begin
 * and _complete; SATURATED; SOURCE_UNREACHABLE: the source does not answer, or has stopped sending; SOURCE_REFUSED: it
 * answered without the bytes; SOURCE_CHANGED: its entity tag is not if_match, or it changed too often;
 * SOURCE_NOT_PERMITTED: it redirects to an origin that is not permitted; DIGEST_MISMATCH. */
void gb_pull_start(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call);

#endif
