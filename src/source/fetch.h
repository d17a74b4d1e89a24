/* Fetches: bytes of another place that become a buffer here. A fetch waits until one of the permitted number may run,
 * has a thread, and one more for each further part of the bytes. It makes a multipart upload, its parts bring their
 * ranges into that, and the whole is committed in one step. Nothing is visible before.
 *
 * Two descriptors are polled by every wait of a fetch. `stop` is readable once the fetch is to end. `halt` is readable
 * once the attempt is to end, because one of its parts has failed. source/ has fetches of its own, for URLs and files;
 * those of fleet/pull bring buffers of other daemons. */
#ifndef GB_SOURCE_FETCH_H
#define GB_SOURCE_FETCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "core/core.h"

#define GB_PULLS_RUNNING 4 /* at a time, if not configured */
#define GB_PULLS_WAITING 64
#define GB_PULL_CONNECTIONS 4 /* of one fetch, if not given */
#define GB_PULL_CONNECTIONS_MAX 16
#define GB_PULL_ORIGIN_SIZE 288 /* as in struct gb_http_url */
#define GB_PULL_TAG_SIZE 128
#define GB_PULL_BEGIN_AGAIN_MAX 3
#define GB_PULL_STALL_MS 10000  /* without a byte of a body */
#define GB_PULL_ANSWER_MS 60000 /* without an answer: the source may read its disk first */
#define GB_PULL_SLOW_MS 20000   /* waits that a slow source is judged by; silence is noticed before */
#define GB_PULL_CONNECT_MS 3000

/* --- all fetches -------------------------------------------------------------------------------------------------- */

struct gb_pulls_config {
    struct gb_core *core;      /* borrowed until gb_pulls_close */
    const char *ca_file;       /* of the sources' certificates; NULL or "": the system's. Copied */
    const char *version;       /* for User-Agent; copied */
    unsigned running_max;      /* 0: GB_PULLS_RUNNING */
    uint64_t rate_bytes_s;     /* of all fetches together; 0: no bound */
    uint64_t min_rate_bytes_s; /* a server of source/url.c that is slower than this is given up; 0: none is */
};

struct gb_pulls;

/* Returns 0, or -1 with INTERNAL. */
int gb_pulls_open(const struct gb_pulls_config *config, struct gb_pulls **ret, struct gb_error *err);
/* Ends running fetches with DRAINING and waits for their threads. Call it before the core is closed. NULL is
 * accepted. */
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

/* --- what comes of a fetch ---------------------------------------------------------------------------------------- */

struct gb_pull_numbers {
    char tag[GB_PULL_TAG_SIZE]; /* of the source's bytes, with its quotes; "": it has none, or none that counts */
    bool has_generation;        /* the source is a buffer */
    uint64_t generation;        /* of the source */
    uint64_t bytes;
    uint64_t received_bytes; /* including bytes that were discarded */
    unsigned connections;
    unsigned resumed;     /* connections that were made again after a break */
    unsigned begun_again; /* because the source had changed */
    unsigned failovers;   /* how often it continued at another node */
    bool verified;        /* the source told a checksum or digest, and it is that of the bytes */
};

struct gb_pull_call {
    struct gb_buffer_call written; /* first */
    struct gb_pull_numbers numbers;
    _Atomic uint64_t moved_bytes; /* that have come of the present attempt; any thread reads this and the next one */
    _Atomic uint64_t total_bytes; /* GB_UNLIMITED: not known (yet) */
};

/* How a step ended. */
enum gb_pull_outcome {
    GB_PULL_OK,
    GB_PULL_BROKEN,  /* may be tried again */
    GB_PULL_CHANGED, /* the source has other bytes now */
    GB_PULL_FAILED,
    GB_PULL_STOPPED
};

/* --- a fetch, for those who have some ----------------------------------------------------------------------------- */

struct gb_fetch;

struct gb_fetch_role {
    /* Runs all steps. Returns 0 with the result taken over into the call, or -1. [the fetch's thread] */
    int (*run)(struct gb_fetch *fetch, struct gb_error *err);
    /* Nothing uses the fetch any more: frees it, after gb_fetch_done. */
    void (*gone)(struct gb_fetch *fetch);
};

/* Embedded as the first member. */
struct gb_fetch {
    struct gb_fetch *next; /* in its list of fetches */
    const struct gb_fetch_role *role;
    struct gb_pulls *pulls;
    atomic_uint refs;
    pthread_t thread;
    struct gb_pull_call *call;
    int stop;
    int halt;
    atomic_bool stopped;
    atomic_bool halted;

    /* The lock of pulls: */
    enum { GB_FETCH_WAITS, GB_FETCH_RUNS, GB_FETCH_COMMITS, GB_FETCH_ENDED } state;
    enum gb_code why; /* why it was stopped: CANCELLED or DRAINING */

    /* The fetch's thread: */
    struct gb_name session;
    struct gb_buffer_check check; /* of the destination */
    char multipart[GB_MULTIPART_ID_SIZE];
    struct gb_pull_numbers numbers;
};

/* Of a zeroed fetch, with one reference. Takes check in every case. Returns 0, or -1 with SATURATED: gb_fetch_done
 * follows. */
int gb_fetch_init(struct gb_fetch *fetch, struct gb_pulls *pulls, const struct gb_fetch_role *role,
                  const struct gb_buffer_check *check, struct gb_pull_call *call, struct gb_error *err);
void gb_fetch_done(struct gb_fetch *fetch);
void gb_fetch_unref(struct gb_fetch *fetch);
/* Lets it run when its turn comes, and takes the caller's reference. The fetch can be cancelled until it commits
 * (gb_call_cancel; act false asks whether it waits for others). */
void gb_fetch_submit(struct gb_fetch *fetch);

/* From now on the fetch cannot be cancelled. False: it is to end. */
bool gb_fetch_commits(struct gb_fetch *fetch);
/* The fetch or the attempt is to end. */
bool gb_fetch_ends(const struct gb_fetch *fetch);
/* Counts n received bytes. Returns for how many milliseconds the rate demands to wait. */
int gb_fetch_owe(struct gb_fetch *fetch, size_t n);
/* Waits for a descriptor (-1: for time only), at most ms (-1: without limit). 1: ready; 0: timed out; -1: the fetch or
 * the attempt is to end. */
int gb_fetch_poll(const struct gb_fetch *fetch, int fd, short events, int ms);

/* Counts failures in a row. */
struct gb_pull_patience {
    unsigned failures;
    unsigned most;
    unsigned more; /* further failures, while another node may still be found */
};
/* Waits before the next attempt, longer if the source asks for that. False: too many failures, or the fetch is to
 * end. */
bool gb_fetch_again(const struct gb_fetch *fetch, struct gb_pull_patience *patience, unsigned retry_after_s);

const char *gb_pulls_agent(const struct gb_pulls *pulls); /* for User-Agent */
const char *gb_pulls_ca(const struct gb_pulls *pulls);    /* NULL: the system's */
uint64_t gb_pulls_min_rate(const struct gb_pulls *pulls);
struct gb_core *gb_pulls_core(const struct gb_pulls *pulls);

/* --- the destination ---------------------------------------------------------------------------------------------- */

/* Begins the multipart upload; params without a check, which is the fetch's. Returns 0 or -1. */
int gb_fetch_begin(struct gb_fetch *fetch, struct gb_upload_params *params, struct gb_error *err);
/* Ends the multipart upload of an attempt, if there is one. */
void gb_fetch_give_up(struct gb_fetch *fetch);
/* Commits it. from: what the source is called in errors. Returns 0 with the call's result, or -1. */
int gb_fetch_complete(struct gb_fetch *fetch, const struct gb_multipart_expected *expected, const char *from,
                      struct gb_error *err);
/* The record that was written becomes the call's result. */
void gb_fetch_take_result(struct gb_fetch *fetch, struct gb_buffer_rec *rec, bool created,
                          const struct gb_transfer_times *times);
/* The precondition of the destination, with a reference to the fetch. */
struct gb_buffer_check gb_fetch_check(struct gb_fetch *fetch);
/* What came has another digest; said: what the core or the caller says of both. Returns -1. */
int gb_fetch_mismatch(const char *from, const char *said, struct gb_error *err);

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* Embedded as the first member. */
struct gb_fetch_part {
    struct gb_fetch *fetch;
    /* Receives the whole range. [a thread of its own] */
    enum gb_pull_outcome (*bring)(struct gb_fetch_part *part);
    uint64_t at;
    uint64_t bytes;
    pthread_t thread;
    bool started;
    int wake; /* there may be room */
    struct gb_upload *upload;
    uint64_t got; /* bytes of the range that are there */
    uint64_t received;
    unsigned resumed;
    enum gb_pull_outcome outcome;
    struct gb_error error;
};

/* Cuts bytes into at most `wanted` ranges (0: GB_PULL_CONNECTIONS). Returns how many. Pure. */
unsigned gb_fetch_cut(uint64_t bytes, unsigned wanted, uint64_t ret_at[GB_PULL_CONNECTIONS_MAX],
                      uint64_t ret_bytes[GB_PULL_CONNECTIONS_MAX]);
/* Runs the parts, the first on this thread, until all have ended. A part that fails ends the attempt. Adds their
 * numbers to the fetch's. The first part that failed by itself gives the error. */
enum gb_pull_outcome gb_fetch_bring(struct gb_fetch *fetch, struct gb_fetch_part *const *parts, unsigned count,
                                    struct gb_error *err);
/* Room for the next bytes of the part's upload; waits for it. OK: *ret_n is more than 0. */
enum gb_pull_outcome gb_fetch_part_room(struct gb_fetch_part *part, void **ret, size_t *ret_n);
/* n bytes are in that room. received: they have just come from the source, so that the rate may demand to wait. */
enum gb_pull_outcome gb_fetch_part_fill(struct gb_fetch_part *part, size_t n, bool received);
/* The wake of the part's upload. False: the attempt is to end. */
bool gb_fetch_part_wait(struct gb_fetch_part *part);
void gb_fetch_part_wake(void *part);

#endif
