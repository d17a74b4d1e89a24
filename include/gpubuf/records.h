/* What the daemon tells, as plain values. Part of <gpubuf/gpubuf.h>.
 *
 * Everything that a record leaves out stands in the JSON (gpubuf_answer_of(), or `json` of a list). Texts are
 * NUL-terminated; times are as the daemon writes them, RFC 3339 in UTC. */
#ifndef GPUBUF_RECORDS_H
#define GPUBUF_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpubuf/client.h>

#define GPUBUF_NAME_SIZE 129 /* of sessions, pools, streams, events, buffers, with the NUL */
#define GPUBUF_WORD_SIZE 24  /* dtypes, kinds, states */
#define GPUBUF_TIME_SIZE 40
#define GPUBUF_DIMS_MAX 16

/* A number that may be absent. In a parameter, value GPUBUF_NO_LIMIT says JSON's null: no limit. */
struct gpubuf_opt {
    bool set;
    uint64_t value;
};
#define GPUBUF_NO_LIMIT UINT64_MAX

static inline struct gpubuf_opt gpubuf_some(uint64_t value) {
    struct gpubuf_opt opt = {true, value};

    return opt;
}

struct gpubuf_device_id {
    int index; /* may change when devices come and go; the uuid does not */
    char uuid[64];
};

struct gpubuf_daemon {
    char version[32];
    char backend[32];
    char backend_note[256]; /* why this backend */
    char started_at[GPUBUF_TIME_SIZE];
    uint64_t devices;
};

struct gpubuf_device {
    struct gpubuf_device_id id;
    char name[128];
    char compute_capability[16]; /* "" on the host backend */
    uint64_t total_bytes;
    uint64_t free_bytes;
    bool integrated;
    bool cpu_access;
};

struct gpubuf_session {
    char name[GPUBUF_NAME_SIZE];
    struct gpubuf_opt quota_bytes; /* not set: no limit */
    struct gpubuf_opt quota_buffers;
    struct gpubuf_opt quota_pinned_bytes;
    uint64_t idle_ttl_s; /* 0: never */
    uint64_t used_bytes;
    uint64_t used_pinned_bytes;
    uint64_t buffers;
    char created_at[GPUBUF_TIME_SIZE];
    char updated_at[GPUBUF_TIME_SIZE];
    char durability[8];                   /* of new buffers that are made without one: none, behind, sync */
    char spill[8];                        /* the same: never, host, disk */
    uint64_t priority;                    /* buffers of sessions of a lower one leave memory first */
    struct gpubuf_opt quota_stored_bytes; /* on disk; not set: no limit */
    uint64_t used_stored_bytes;
    uint64_t room[2];
};

struct gpubuf_pool {
    char name[GPUBUF_NAME_SIZE];
    char state[GPUBUF_WORD_SIZE]; /* ready, lost */
    struct gpubuf_device_id device;
    struct gpubuf_opt max_bytes;               /* not set: no limit */
    struct gpubuf_opt release_threshold_bytes; /* not set: keeps everything */
    bool follow_event_dependencies;
    bool allow_opportunistic;
    bool allow_internal_dependencies;
    bool exportable;
    uint64_t used_bytes;
    uint64_t used_peak_bytes;
    uint64_t reserved_bytes;
    uint64_t reserved_peak_bytes;
    uint64_t allocations;
    uint64_t frees;
    uint64_t failures;
    uint64_t buffers;
    /* Of a trim. */
    uint64_t reserved_before_bytes;
    uint64_t reserved_after_bytes;
    char note[256];      /* of what made or trimmed it: what it costs, why trimming cannot help */
    uint64_t reuses;     /* allocations from memory that it had */
    uint64_t growths;    /* those for which it took more of its device */
    uint64_t kept_bytes; /* exported: reserved until the pool is deleted */
    uint64_t exported;   /* 1: a pointer of it was given to another process */
    uint64_t room[4];
};

struct gpubuf_stream {
    char name[GPUBUF_NAME_SIZE];
    char session[GPUBUF_NAME_SIZE];
    bool busy;
    uint64_t devices;
    char created_at[GPUBUF_TIME_SIZE];
};

struct gpubuf_event {
    char name[GPUBUF_NAME_SIZE];
    char session[GPUBUF_NAME_SIZE];
    bool recorded;
    bool done;                     /* the work that the last record covers has ended */
    char stream[GPUBUF_NAME_SIZE]; /* where it was last recorded, or "" */
    char created_at[GPUBUF_TIME_SIZE];
};

/* One side of a mirrored buffer. */
struct gpubuf_side {
    uint64_t bytes; /* of its memory; 0: it has none. May be more than the buffer's */
    bool current;   /* it has the newest bytes */
    bool owned;     /* by the daemon; false: another process owns the memory */
    bool pinned;    /* it is page-locked host memory */
};

struct gpubuf_buffer {
    char name[GPUBUF_NAME_SIZE];
    char session[GPUBUF_NAME_SIZE];
    uint64_t bytes;
    char dtype[GPUBUF_WORD_SIZE];
    unsigned ndim;
    uint64_t shape[GPUBUF_DIMS_MAX];
    char kind[GPUBUF_WORD_SIZE]; /* device, shared, managed, pinned, pageable, ipc */
    struct gpubuf_device_id device;
    char pool[GPUBUF_NAME_SIZE]; /* "" where the kind comes from no pool */
    char stream[GPUBUF_NAME_SIZE];
    char state[GPUBUF_WORD_SIZE]; /* ready, partial, lost; stored: the bytes are on disk and not in memory */
    uint64_t generation;
    bool has_crc32c;
    uint32_t crc32c;
    bool mirrored;
    char head[GPUBUF_WORD_SIZE]; /* of a mirrored one: uninitialized, host, device, synced */
    bool sealed;
    uint64_t leases; /* mappings of it that are held now */
    char created_at[GPUBUF_TIME_SIZE];
    char updated_at[GPUBUF_TIME_SIZE];
    /* Of what wrote it. */
    bool created;                 /* it was not there before (201) */
    bool copied;                  /* of a sync: false where that side was current already */
    char way[GPUBUF_WORD_SIZE];   /* of a copy or sync: how the bytes went */
    bool escaped;                 /* a process may write the bytes whose lease has ended */
    bool adopted;                 /* over memory that another process owns; of a lost one: it was */
    struct gpubuf_side host_side; /* of a mirrored one */
    struct gpubuf_side device_side;
    char durability[8];         /* none, behind, sync */
    uint64_t stored_generation; /* whose bytes are on disk for good; 0: no generation's are */
    char tier[8];               /* where a read gets the bytes from: device, host, disk; "": they are lost */
    char spill[8]; /* where bytes that are not durable may go when others want the memory: never, host, disk */
    bool resident; /* the bytes leave memory on request alone */
    bool damaged;  /* the bytes on disk were found damaged or missing */
    uint64_t room[6];
};

/* Of gpubuf_buffer_store(). */
struct gpubuf_stored {
    uint64_t stored_generation;
    uint64_t bytes;
    bool wrote; /* false: the bytes were on disk already */
    uint64_t room[4];
};

/* Of gpubuf_session_evict() and gpubuf_session_load(). */
struct gpubuf_swept {
    uint64_t buffers; /* whose bytes have moved */
    uint64_t bytes;   /* of these */
    uint64_t skipped_buffers;
    uint64_t room[5];
};

/* The folder of the bytes of durable buffers. The counts are since the daemon began. */
struct gpubuf_storage {
    char state[GPUBUF_WORD_SIZE]; /* ready, full, failed, unavailable; none: no buffer can be durable */
    char error[512];              /* why it is not ready, or "" */
    char dir[1024];
    uint64_t free_bytes;
    uint64_t stored_buffers; /* whose bytes are on disk and not in memory, now */
    uint64_t writes;
    uint64_t written_bytes;
    uint64_t failures;
    uint64_t damaged; /* files whose bytes were not those that had been written */
    uint64_t loads;
    uint64_t loaded_bytes;
    uint64_t load_failures;
    uint64_t cold_reads;            /* downloads from the disk itself, without a load */
    uint64_t evictions;             /* times that the bytes of a buffer left memory */
    uint64_t evictions_for_room;    /* of them: to make room for others */
    uint64_t reloads_within_minute; /* loads of bytes that had left memory less than a minute before */
    uint64_t evictions_to_host;     /* of the evictions: to host memory */
    uint64_t loads_from_host;       /* of the loads: from there */
    uint64_t host_limit_bytes;      /* host memory for bytes that leave a device; 0: there is none */
    uint64_t host_used_bytes;
    bool scrubbing;
    char scrub_ended_at[GPUBUF_TIME_SIZE]; /* the latest, of an earlier process too; "": none ever has */
    uint64_t room[3];
};

/* Of gpubuf_storage_scrub(). */
struct gpubuf_scrubbed {
    char began[GPUBUF_TIME_SIZE];
    uint64_t files; /* that were looked at */
    uint64_t bytes; /* that were read */
    uint64_t damaged;
    uint64_t healed;  /* of these: written again from memory */
    uint64_t skipped; /* could not be read for a reason that is not theirs */
    uint64_t room[4];
};

/* The buffers of one session as of one moment. */
struct gpubuf_checkpoint {
    char name[GPUBUF_NAME_SIZE];
    char session[GPUBUF_NAME_SIZE]; /* whose buffers they were; it may be gone. "": not known yet */
    char state[GPUBUF_WORD_SIZE];   /* complete; incomplete: clients bring its files, and the manifest is missing */
    char as_of[GPUBUF_TIME_SIZE];   /* the moment; "" while it is incomplete */
    uint64_t buffers;
    uint64_t bytes;
    /* Of what made it. */
    uint64_t linked_bytes; /* of files that were linked: nothing was read or written */
    uint64_t written_bytes;
    uint64_t skipped_buffers; /* that were left out */
    uint64_t damaged_files;   /* that the latest scrub or verify of each found so, since the daemon began */
    uint64_t room[4];
};

/* Of gpubuf_checkpoint_verify(). */
struct gpubuf_checkpoint_verified {
    bool match; /* every file has the bytes that the manifest says */
    uint64_t buffers;
    uint64_t bytes;
    uint64_t damaged_buffers;
    uint64_t room[4];
};

/* Of gpubuf_checkpoint_restore(). */
struct gpubuf_restored {
    char checkpoint[GPUBUF_NAME_SIZE];
    char session[GPUBUF_NAME_SIZE]; /* that has the buffers now */
    uint64_t buffers;
    uint64_t bytes;
    uint64_t replaced;        /* of the buffers: there before */
    uint64_t loaded;          /* of the buffers: in memory */
    uint64_t skipped_buffers; /* restored, and could not be loaded */
    uint64_t room[4];
};

/* The last upload or download of at least 1 MiB of the bytes that a buffer has now. */
struct gpubuf_last_transfer {
    bool known; /* there was one since the daemon began */
    bool upload;
    uint64_t bytes;
    double queue_ms; /* the first copy waited for earlier work */
    double copy_ms;  /* the copies took; 0 where the CPU reaches the memory */
    char finished_at[GPUBUF_TIME_SIZE];
    uint64_t room[4];
};

struct gpubuf_verified {
    bool match; /* false too where there was nothing to compare with */
    uint32_t crc32c;
    struct gpubuf_opt stored_crc32c;
    uint64_t generation;
    uint64_t bytes;
    char sha256[48]; /* base64, where asked for */
    char sha512[96];
    bool compared; /* there was a stored checksum, or a digest was expected */
};

struct gpubuf_operation {
    char id[GPUBUF_ID_SIZE];
    char kind[GPUBUF_WORD_SIZE];
    char state[GPUBUF_WORD_SIZE]; /* queued, running, done, failed, cancelled */
    char session[GPUBUF_NAME_SIZE];
    char stream[GPUBUF_NAME_SIZE];
    char target[512];
    int status; /* what the request would have been answered with; 0 as long as it runs */
    char created_at[GPUBUF_TIME_SIZE];
    char ended_at[GPUBUF_TIME_SIZE];
};

struct gpubuf_range {
    uint64_t offset;
    uint64_t bytes;
};

#define GPUBUF_MISSING_MAX 100

struct gpubuf_upload {
    char id[GPUBUF_ID_SIZE];
    char session[GPUBUF_NAME_SIZE];
    char buffer[GPUBUF_NAME_SIZE];
    char takes[GPUBUF_WORD_SIZE]; /* parts, appends */
    char state[GPUBUF_WORD_SIZE]; /* open, completed */
    struct gpubuf_opt bytes;      /* not set: not known yet */
    uint64_t received_bytes;
    uint64_t parts;
    uint64_t running;
    uint64_t max_parts;
    uint64_t missing_ranges; /* in all; the first of them follow */
    size_t missing_count;
    struct gpubuf_range missing[GPUBUF_MISSING_MAX];
    char expires_at[GPUBUF_TIME_SIZE];
};

struct gpubuf_part {
    uint64_t offset;
    uint64_t bytes;
    uint32_t crc32c;
    uint64_t received_bytes; /* of the upload, after this part */
    uint64_t missing_ranges;
};

struct gpubuf_lease {
    char lease[GPUBUF_ID_SIZE];
    char session[GPUBUF_NAME_SIZE];
    char buffer[GPUBUF_NAME_SIZE];
    char mode[GPUBUF_WORD_SIZE]; /* read, write */
    char way[GPUBUF_WORD_SIZE];  /* vmm, pool, legacy, memfd */
    char state[GPUBUF_WORD_SIZE];
    int64_t pid;
    int64_t uid;
    uint64_t generation;
    uint64_t bytes;
    char since[GPUBUF_TIME_SIZE];
    char expires_at[GPUBUF_TIME_SIZE]; /* of an export; "": it ends with its connection */
};

#define GPUBUF_HANDLE_BYTES 64

/* A buffer's memory for processes that have no connection to the daemon. */
struct gpubuf_exported {
    char lease[GPUBUF_ID_SIZE];
    unsigned char handle[GPUBUF_HANDLE_BYTES]; /* a cudaIpcMemHandle_t */
    uint64_t offset;                           /* of the bytes in the handle's memory */
    uint64_t bytes;
    struct gpubuf_device_id device;
    bool write;
    char expires_at[GPUBUF_TIME_SIZE];
    uint64_t generation;
    char etag[GPUBUF_ETAG_SIZE];
    char dtype[GPUBUF_WORD_SIZE];
    unsigned ndim;
    uint64_t shape[GPUBUF_DIMS_MAX];
    uint64_t room[8];
};

struct gpubuf_tensors {
    uint64_t tensors;
    uint64_t created;
    uint64_t replaced;
    uint64_t bytes;
};

struct gpubuf_batch {
    uint64_t done;
    uint64_t failed;
};

struct gpubuf_transfers {
    uint64_t count;
    uint64_t bytes;
    uint64_t failures;
    double seconds;
    double seconds_copying;
    double seconds_queued;
};

/* Of the daemon or of one session; what a session does not tell is 0. */
struct gpubuf_stats {
    uint64_t sequence;
    char started_at[GPUBUF_TIME_SIZE];
    uint64_t sessions;
    uint64_t buffers;
    uint64_t buffer_bytes;
    uint64_t lost_buffers;
    uint64_t open_upload_bytes;
    uint64_t uploads_running;
    uint64_t downloads_running;
    uint64_t writes_running;
    uint64_t allocations;
    uint64_t allocation_failures;
    uint64_t leases;     /* held now */
    uint64_t held_bytes; /* deleted or replaced, and still mapped by a process */
    uint64_t maps;
    uint64_t unmaps;
    struct gpubuf_transfers upload;
    struct gpubuf_transfers download;
    struct gpubuf_transfers copy;
    struct gpubuf_transfers fill;
    uint64_t mirrored_buffers;
    uint64_t mirrored_bytes;           /* of these, which have them on one side or on both */
    uint64_t mirror_copies;            /* between the two sides */
    uint64_t mirror_copy_bytes;        /* by them */
    uint64_t adopted;                  /* pieces of memory of other processes that the daemon has mapped, now */
    uint64_t allocated_peak_bytes;     /* most at a time; since the daemon began, or the session was made or loaded */
    uint64_t largest_allocation_bytes; /* the same */
    uint64_t stored_buffers;           /* whose bytes are on disk and not in memory */
};

#endif
