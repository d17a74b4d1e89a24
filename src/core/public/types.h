/* Parameters, preconditions and views: the plain values that the core's functions take and give. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_TYPES_H
#define GB_CORE_PUBLIC_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/name.h"
#include "model/failure.h"
#include "model/model.h"
#include "model/view.h"
#include "store/store.h"

struct gb_closer;

struct gb_core_config {
    struct gb_backend *backend; /* borrowed */
    struct gb_store *store;     /* borrowed */
    uint64_t slots_bytes;       /* pinned slots in all; the bound on staging memory */
    uint64_t slot_bytes;        /* each; 256 KiB to 4 MiB */
    uint64_t sessions_max;      /* LIMIT_REACHED beyond */
    uint64_t buffers_max;       /* in all sessions */
    uint64_t pools_max;         /* of one session each; 0: GB_POOLS_MAX and so on */
    uint64_t streams_max;
    uint64_t events_max;
    uint64_t multiparts_max;          /* open uploads of a session; 0: GB_MULTIPARTS_MAX */
    uint64_t multipart_bytes_max;     /* that open uploads hold in all sessions; 0: no limit */
    uint64_t multipart_ttl_s;         /* an upload of which nothing comes; 0: GB_MULTIPART_TTL_S */
    struct gb_quota default_quota;    /* of a session that gives none */
    struct gb_history_limits history; /* interval_s 0: no samples */
    uint64_t keys_max;                /* answers to requests with a key that are kept; 0: GB_KEYS_MAX and so on */
    uint64_t key_ttl_s;
    uint64_t leases_max; /* in all; 0: GB_LEASES_MAX and so on */
    uint64_t holder_leases_max;
    uint64_t adopted_max;       /* buffers over memory of other processes; 0: GB_ADOPTED_MAX and so on */
    uint64_t adopted_bytes_max; /* of the CPU's memory: reading what is sparse there fills it */
    uint64_t holder_adopted_max;
    struct gb_closer *closer;    /* borrowed: for descriptors of strangers; NULL: they are closed where they are */
    uint64_t allocation_log;     /* events of device memory that are kept; 0: none */
    uint64_t health_interval_ms; /* between two readings of how devices are; 0: none */
    enum gb_health_policy health_policy;
    const char *health_root;  /* copied; see backend/health/health.h */
    uint64_t housekeeping_ms; /* expiry and samples are looked at this often; 0: 1000 */
};

/* --- memory ------------------------------------------------------------------------------------------------------- */

struct gb_level_numbers {
    uint64_t bytes; /* now */
    uint64_t peak_bytes;
    uint64_t largest_bytes; /* one allocation */
};

struct gb_memory_numbers {
    struct gb_level_numbers level;
    uint64_t allocations;
    uint64_t allocated_bytes;
    uint64_t frees;
    uint64_t freed_bytes;
    uint64_t retries; /* after a trim or a wait */
    uint64_t trims;   /* of pools, to make room for an allocation here */
    uint64_t failures;
    uint64_t failure[GB_FAILURES]; /* of them */
};

/* --- preconditions ------------------------------------------------------------------------------------------------ */

/* A precondition on a session's or buffer's record, evaluated under the session's lock, at the start of the work and
 * again at the moment of the change. rec is NULL when the buffer does not exist. Returns 0, or -1 with
 * PRECONDITION_FAILED. Must not block. arg is released with the call or upload by free_arg (may be NULL). */
struct gb_buffer_check {
    int (*check)(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg);
};
struct gb_session_check {
    int (*check)(void *arg, const struct gb_session_rec *rec, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg);
    bool expires; /* a deletion: nobody asked for it */
};

/* --- sessions and buffers ----------------------------------------------------------------------------------------- */

/* Fields given; the others keep their default (create) or value (patch). */
struct gb_session_params {
    struct gb_name name; /* create only */
    bool has_quota_bytes, has_quota_buffers, has_quota_pinned, has_idle_ttl, has_labels;
    struct gb_quota quota;
    uint64_t idle_ttl_s;
    struct gb_text *labels; /* borrowed: the core takes a reference to what it keeps */
};

struct gb_session_view {
    struct gb_session_rec rec;
    uint64_t used_bytes;        /* committed and reserved */
    uint64_t used_pinned_bytes; /* of them, in page-locked host memory */
    uint64_t buffers;
    int64_t expires_at_us; /* 0: never */
};

struct gb_buffer_params {
    struct gb_name session;
    struct gb_name name;
    uint64_t bytes; /* shape times dtype */
    enum gb_dtype dtype;
    struct gb_shape shape;
    enum gb_kind kind;
    bool has_device; /* where no pool is named: where the memory is wanted; else where the buffer is, or the first */
    int device;
    bool has_kind;              /* upload: else, while kind is DEVICE, a buffer that is there keeps its kind */
    bool mirrored;              /* kind is DEVICE; an upload cannot make a buffer mirrored that is there and is not */
    bool has_mirrored;          /* upload: else a buffer that is there stays mirrored */
    struct gb_name pool;        /* "": where the buffer is already, else the first device's */
    struct gb_name stream;      /* "" is "default" */
    bool has_shape, has_labels; /* patch: what is given */
    struct gb_text *labels;     /* borrowed: the core takes a reference to what it keeps */
};

/* --- transfers ---------------------------------------------------------------------------------------------------- */

struct gb_session;

struct gb_upload_params {
    struct gb_session *session;     /* held by the caller during the call; NULL: that of buffer.session */
    struct gb_buffer_params buffer; /* what the buffer is to be; for partial: only session, name, stream */
    uint64_t bytes;                 /* of the payload */
    bool partial;                   /* write payload at offset of an existing buffer, its shape stays */
    uint64_t offset;
    bool
        scattered; /* partial: the payload goes where view says; view.bytes is its length, offset is 0, and buffer.shape
                          * is the shape that the view was made for */
    struct gb_view view; /* not side by side: else an offset says it */
    bool in_place; /* no fresh memory: readers are refused meanwhile, a break leaves state PARTIAL. A buffer that is not
                    * there or lost has no place: it gets fresh memory. check is not asked again at the end. */
    bool
        to_device_side; /* of a mirrored buffer; else its host side. Always where the side is, when it is large enough */
    bool side_named;    /* refused where the buffer has no sides; to_device_side is always */
    uint64_t holder;    /* in place: who asks, when that is one that maps (gb_holder_id); 0: nobody */
    bool fresh;         /* fresh memory for a mirrored buffer's side too */
    bool asked_before;  /* of gb_upload_check: what is refused is neither counted nor told; another call does that */
    unsigned wait_ms;
    struct gb_buffer_check check;
    void (*wake)(void *arg); /* room may have appeared, or the end has come; any thread; spurious calls happen */
    void *arg;
};

/* Times of one transfer, milliseconds on the device's clock. */
struct gb_transfer_times {
    double queue_ms; /* the first copy waited behind earlier work */
    double copy_ms;  /* the copies took; 0 where the CPU wrote the memory itself */
};

/* Bytes of a view's sequence. */
/* The same for what a view picks (NULL: all bytes), which must lie within the buffer, and of it the spans, one after
 * the other (NULL: all of it). spans is borrowed until gb_download_free. */
struct gb_span {
    uint64_t first;
    uint64_t length;
};

struct gb_gap {
    uint64_t offset;
    uint64_t bytes;
};

#define GB_MULTIPART_ID_SIZE 32
#define GB_MULTIPART_GAPS_MAX 100 /* missing ranges told at once */
/* What clients see. Offset and length count what came before the payload too, a .npy's header; bytes and gaps do
 * not. */
struct gb_multipart_view {
    char id[GB_MULTIPART_ID_SIZE];
    int64_t number; /* for lists: in the order of beginning */
    struct gb_name buffer;
    bool appends;   /* else takes parts */
    bool has_bytes; /* it is known what it becomes */
    uint64_t bytes;
    uint64_t received_bytes;
    uint64_t parts;   /* that arrived */
    unsigned running; /* that are under way */
    bool completed;
    size_t gap_count;
    size_t gaps_given;
    struct gb_gap gaps[GB_MULTIPART_GAPS_MAX];
    uint64_t offset;
    bool has_length;
    uint64_t length;
    int64_t created_at_us;
    int64_t expires_at_us;
};

/* --- reading for checksums ---------------------------------------------------------------------------------------- */

#define GB_SCANS_MAX 64 /* under way at a time; as many again of uploads that are completed */

/* Whom a reading serves. Each has places and lanes of its own, so that clients that only read never hold up a
 * writer. */
enum gb_hash_reader_use {
    GB_HASH_READER_LOOK,  /* a client wants to know */
    GB_HASH_READER_WRITE, /* a change waits for it */
    GB_HASH_READER_USES,
};

#endif
