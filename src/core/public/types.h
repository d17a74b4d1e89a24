/* Parameters, preconditions and views: the plain values that the core's functions take and return. */
#ifndef GB_CORE_PUBLIC_TYPES_H
#define GB_CORE_PUBLIC_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "model/audit.h"
#include "model/history.h"
#include "model/model.h"
#include "model/view.h"
#include "store/store.h"

struct gb_closer;
struct gb_disk;

/* What the devices' own pools have from the start; without has_: what the backend gives them. */
struct gb_default_pools {
    bool has_threshold, has_reuse;
    uint64_t release_threshold_bytes;
    bool follow_event_dependencies;
    bool allow_opportunistic;
    bool allow_internal_dependencies;
};

/* The audit. */
struct gb_audit_config {
    enum gb_audit_mode mode;
    const char *file;    /* of JSON lines; copied; NULL or "": none */
    uint64_t file_bytes; /* before it is renamed to file.1; 0: no bound */
    uint64_t rows;       /* that the store's table keeps; 0: 1000000 */
    int64_t age_us;      /* and for how long; 0: no bound */
};

struct gb_core_config {
    struct gb_backend *backend; /* borrowed */
    struct gb_store *store;     /* borrowed */
    struct gb_keeper *keeper;   /* of memory that outlives the process; borrowed; NULL: none does */
    struct gb_disk *disk;       /* of the bytes of durable buffers; borrowed; NULL: no buffer is durable */
    unsigned disk_threads;      /* that wait for it; 0: GB_DISK_THREADS */
    uint64_t orphan_ttl_s;      /* how long files that no row names are kept; 0: a day */
    uint64_t durable_lag_ms;    /* how long after its change a buffer of durability BEHIND is stored; 0: 1000 */
    uint64_t min_resident_ms;   /* how long bytes stay in memory at least before others take their place */
    unsigned evict_high;        /* percent of a device's or a pool's memory from which room is made; 0: never */
    unsigned evict_low;         /* and down to which */
    uint64_t spill_host_bytes;  /* host memory for bytes that leave a device; 0: none */
    uint64_t scrub_rate;        /* bytes a second that scrubs read; 0: none but by request */
    uint64_t scrub_interval_s;  /* between passes; 0: none but by request */
    uint64_t slots_bytes;       /* all pinned slots together: the limit on staging memory */
    uint64_t slot_bytes;        /* each; 256 KiB to 4 MiB */
    uint64_t pinned_bytes_max;  /* page-locked memory in all, slots included; 0: no limit */
    uint64_t sessions_max;      /* LIMIT_REACHED beyond */
    uint64_t buffers_max;       /* in all sessions */
    uint64_t pools_max;         /* this and the next two: of one session; 0: GB_POOLS_MAX and so on */
    uint64_t streams_max;
    uint64_t events_max;
    struct gb_default_pools default_pools;
    uint64_t multiparts_max;          /* open multipart uploads of a session; 0: GB_MULTIPARTS_MAX */
    uint64_t multipart_bytes_max;     /* held by open multipart uploads of all sessions; 0: no limit */
    uint64_t multipart_ttl_s;         /* of a multipart upload that receives nothing; 0: GB_MULTIPART_TTL_S */
    struct gb_quota default_quota;    /* of a session created without one */
    struct gb_history_limits history; /* interval_s 0: no samples */
    uint64_t keys_max;                /* stored replies to requests with a key; 0: GB_KEYS_MAX and so on */
    uint64_t key_ttl_s;
    uint64_t leases_max; /* in all; 0: GB_LEASES_MAX and so on */
    uint64_t holder_leases_max;
    uint64_t adopted_max;       /* buffers over memory of other processes; 0: GB_ADOPTED_MAX and so on */
    uint64_t adopted_bytes_max; /* of the CPU's memory: reading sparse memory fills it */
    uint64_t holder_adopted_max;
    struct gb_closer *closer;    /* borrowed: closes client-supplied descriptors; NULL: each is closed in place */
    uint64_t allocation_log;     /* allocation events that are kept; 0: none */
    uint64_t health_interval_ms; /* between two readings of the devices' health; 0: none */
    enum gb_health_policy health_policy;
    const char *health_root; /* copied; see backend/health/health.h */
    struct gb_audit_config audit;
    uint64_t housekeeping_ms; /* between two ticks of the housekeeper; 0: 1000 */
};

/* One page of a list, ordered by id. */
struct gb_page {
    int64_t after; /* the id of the last item before it; 0: it is the first page */
    unsigned limit;
    bool more; /* items follow; set by the list */
};

/* --- memory ------------------------------------------------------------------------------------------------------- */

struct gb_level_numbers {
    uint64_t bytes; /* now */
    uint64_t peak_bytes;
    uint64_t largest_bytes; /* the largest allocation */
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

/* A precondition on the record of a buffer or session. rec is NULL if the buffer does not exist. arg is released by
 * free_arg (may be NULL) when the call or upload ends. check runs under the session's lock, at the start of the work
 * and again at the moment of the change; it must not block. check returns 0, or -1 with PRECONDITION_FAILED. */
struct gb_buffer_check {
    int (*check)(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg);
};
struct gb_session_check {
    int (*check)(void *arg, const struct gb_session_rec *rec, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg);
    bool expires; /* the deletion of an idle session, not a client's */
};

/* --- sessions and buffers ----------------------------------------------------------------------------------------- */

/* A field without its has_ flag gets its default (create) or keeps its value (patch). */
struct gb_session_params {
    struct gb_name name; /* create only */
/* References are borrowed: the core takes one to what it keeps. */
#define GB_PARAM_PLACE(members)
#define GB_PARAM_SET(members) members
#define GB_PARAM_FLEET(members)
#define GB_PARAM_KEPT(members)
#define GB_SESSION_FIELD(name, type, how, ...) GB_PARAM_##how(bool has_##name; GB_C_##type name;)
#define GB_SESSION_QUOTA(name, ...) bool has_quota_##name;
#include "model/session.def"
    struct gb_quota quota;
    bool has_pool, has_replicas;
    unsigned replicas;
    struct gb_name pool; /* patch only: its device's current pool; a device's own: that again; "": all devices' own */
    /* Create only: of its record in the fleet's directory; epoch 0: it has no record. */
    int64_t fleet_epoch;
    char fleet_claim[GB_FLEET_CLAIM_MAX + 1];
    bool stops_on_partition;
    uint64_t failover_after_s;
    struct gb_name tenant;
    struct gb_text *holders; /* gb_session_arrive alone: as of a record; borrowed as labels */
};

struct gb_session_view {
    struct gb_session_rec rec;
    uint64_t used_bytes;        /* committed and reserved */
    uint64_t used_pinned_bytes; /* of them, in page-locked host memory */
    uint64_t used_stored_bytes; /* on disk */
    uint64_t buffers;
    struct gb_name pool;   /* current, of the first device that has one; "default": the devices' own */
    uint64_t pools_mark;   /* differs where other pools are current; 0: the devices' own */
    int64_t expires_at_us; /* 0: never */
};

struct gb_buffer_params {
    struct gb_name session;
    struct gb_name name;
    uint64_t bytes; /* shape times dtype */
    enum gb_dtype dtype;
    struct gb_shape shape;
    enum gb_kind kind;
    bool has_device; /* if no pool is named: the memory's device; else the buffer's present device, or the first */
    int device;
    /* If false and kind is DEVICE: an existing buffer keeps its kind in an upload, and a new one on a device without
     * memory pools gets another kind (gb_kind_choose). */
    bool has_kind;
    bool mirrored;              /* kind is DEVICE; an upload cannot make an existing buffer mirrored */
    bool has_mirrored;          /* upload: if false, an existing buffer stays mirrored */
    struct gb_name pool;        /* "": the buffer's present pool, else the session's current pool, else the device's */
    struct gb_name stream;      /* "" is "default" */
    bool has_shape, has_labels; /* patch: the fields given */
    bool has_durability;        /* if false, a new buffer has its session's, and an existing one keeps its own */
    enum gb_durability durability;
    bool has_spill; /* the same */
    enum gb_spill spill;
    bool has_resident;
    bool resident;
    bool lost;        /* create: without memory, as if its bytes had been lost */
    const void *head; /* create, not mirrored: the first head_bytes, which the core copies; the others are zeros */
    size_t head_bytes;
    struct gb_text *labels; /* borrowed: the core takes a reference to what it keeps */
};

/* --- transfers ---------------------------------------------------------------------------------------------------- */

struct gb_core_stream;
struct gb_session;

/* What the caller counts for an open multipart upload. end is called once, on any thread, when the upload is no longer
 * open; it must not block. */
struct gb_place {
    void *arg;
    void (*end)(void *arg); /* NULL: it is empty */
};

/* A file whose bytes lie in memory with gaps between them, which are zeros there. Clients send and see places in the
 * file. The functions do not change what arg points to. */
struct gb_gaps {
    uint64_t (*place)(const void *arg,
                      uint64_t at); /* where memory has the first `at` bytes of the file: up to there */
    uint64_t (*before)(const void *arg, uint64_t at); /* how many bytes of the file lie before memory[at] */
    /* How many bytes of the file, or zeros of a gap, come next at memory[at]; at is before the end. */
    uint64_t (*run)(const void *arg, uint64_t at, bool *ret_gap);
    /* Refuses bytes of the file that cannot be those at memory[at]. Returns 0 or -1. */
    int (*check)(const void *arg, uint64_t at, const void *bytes, size_t n, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg); /* NULL: there is no such file, and all else is NULL */
};

struct gb_upload_params {
    struct gb_session *session;     /* held by the caller during the call; NULL: buffer.session names it */
    struct gb_buffer_params buffer; /* what the upload makes; partial: only session, name, stream */
    uint64_t bytes;                 /* of the payload; open_ended: the most that it may have */
    /* The payload's length is not known. partial: it ends where the buffer ends at the latest; bytes does not matter.
     * Else the memory grows with it, and the buffer gets one dimension; buffer.bytes and shape do not matter. */
    bool open_ended;
    bool reserve; /* open_ended, not partial: memory for `bytes` at once */
    bool partial; /* write the payload at offset of an existing buffer, which keeps its shape */
    uint64_t offset;
    /* The view places the payload. view.bytes is the payload's length, and offset is 0. partial: buffer.shape is the
     * shape that the view was made for. */
    /* partial: a part of one tensor of a table. It is refused if the buffer's table is not that of layout any more. */
    bool in_table;
    int64_t layout; /* as in struct gb_buffer_rec */
    bool scattered;
    struct gb_view view; /* not contiguous, or not upwards; a contiguous range is given by offset */
    /* Overwrite the present memory. Readers are refused meanwhile, and an interrupted write leaves state PARTIAL. A
     * buffer that does not exist or is lost gets fresh memory. check is not evaluated again at the end. */
    bool in_place;
    /* Write the device side of a mirrored buffer; else its host side. A side's memory is reused if it is large
     * enough. */
    bool to_device_side;
    bool side_named;   /* refuse a buffer that is not mirrored; to_device_side always does */
    uint64_t holder;   /* in place: the calling process, if it maps the buffer (gb_holder_id); 0: none */
    bool fresh;        /* fresh memory for a mirrored buffer's side too */
    bool asked_before; /* gb_upload_check: a refusal is neither counted nor reported, because another call does so */
    unsigned wait_ms;  /* how long to wait for memory to become free */
    struct gb_buffer_check check;
    struct gb_turn *turn;          /* of a device write: its own; NULL: the upload takes one with its last byte */
    struct gb_core_stream *stream; /* of a device write: the stream, in use; NULL: buffer.stream names it */
    struct gb_place *place;        /* of a multipart upload: taken, and made empty, if it is begun; NULL: none */
    struct gb_gaps *gaps;  /* of a multipart upload: taken, and made empty, when its memory is asked for; NULL: none */
    struct gb_waker waker; /* there may be room, or the upload has ended; any thread; spurious calls happen */
};

/* Times of one transfer, milliseconds on the device's clock. */
struct gb_transfer_times {
    double queue_ms; /* how long the first copy waited for earlier work */
    double copy_ms;  /* how long the copies took; 0 if the CPU wrote the memory itself */
    bool sampled;    /* both are those of another copy, as gb_copy_sample says */
};

/* The last upload or download of a buffer's present bytes that moved at least GB_LAST_TRANSFER_BYTES. A smaller one has
 * its times in its own reply. Not persisted. */
#define GB_LAST_TRANSFER_BYTES (1024 * 1024)
struct gb_last_transfer {
    enum gb_direction direction;
    uint64_t bytes; /* 0: there was none */
    uint64_t queue_ns;
    uint64_t copy_ns;
    int64_t finished_at_us;
};

/* A range of a view's sequence of bytes. */
struct gb_span {
    uint64_t first;
    uint64_t length;
};

struct gb_gap {
    uint64_t offset;
    uint64_t bytes;
};

#define GB_MULTIPART_ID_SIZE 32
#define GB_MULTIPART_GAPS_MAX 100 /* missing ranges listed in one view */
/* A multipart upload as clients see it. offset and length include a header before the payload, such as a .npy's; bytes
 * and gaps do not. */
struct gb_multipart_view {
    char id[GB_MULTIPART_ID_SIZE];
    int64_t number; /* the order of lists: the oldest upload has the lowest */
    struct gb_name buffer;
    bool appends;   /* else it takes parts */
    bool has_bytes; /* the payload's length is known */
    uint64_t bytes;
    uint64_t received_bytes;
    uint64_t parts;   /* parts that arrived */
    unsigned running; /* parts under way */
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

#define GB_SCANS_MAX 64 /* under way at a time; as many again for completions of uploads */

/* The purpose of a hash reader. Each purpose has slots and lanes of its own, so that clients that only read never delay
 * a writer. */
enum gb_hash_reader_use {
    GB_HASH_READER_LOOK,  /* for a client's query */
    GB_HASH_READER_WRITE, /* for a change that waits for the digest */
    GB_HASH_READER_USES,
};

/* Which of a buffer's bytes its digests are of. */
struct gb_scan_choice {
    /* How many of the bytes from `at` on are treated alike, and whether the digests leave them out. NULL: all bytes. */
    uint64_t (*run)(const void *arg, uint64_t at, bool *ret_left_out);
    void *arg;
    void (*free_arg)(void *arg); /* called once, in every case; NULL: not needed */
};

#endif
