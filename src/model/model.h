/* Records shared by all layers. Times are microseconds since the epoch, UTC.
 *
 * A record with labels holds a reference to them: gb_buffer_rec_set and gb_session_rec_set copy one, gb_buffer_rec_done
 * and gb_session_rec_done give the reference back. A plain copy borrows the labels. All other records are values. */
#ifndef GB_MODEL_MODEL_H
#define GB_MODEL_MODEL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor.h"
#include "model/token.h"

/* --- devices and the memory they reach ---------------------------------------------------------------------------- */

/* Every gb_..._name answers "unknown" for a value outside its list; every gb_..._parse refuses an unknown word with
 * INVALID_ARGUMENT naming the permitted ones. */

/* What memory a buffer lives in. This list is fixed by the interface; a device says which kinds it has. */
enum gb_kind {
    GB_KIND_DEVICE,   /* from a pool */
    GB_KIND_SHARED,   /* of the device, made for other processes */
    GB_KIND_MANAGED,  /* moves between the device and the CPU */
    GB_KIND_PINNED,   /* page-locked host memory */
    GB_KIND_PAGEABLE, /* plain host memory */
    GB_KIND_IPC,      /* of the device, by cudaMalloc, for those who know no other handle than CUDA's older one */
    GB_KIND_COUNT
};
const char *gb_kind_name(enum gb_kind kind);
int gb_kind_parse(const char *name, size_t len, enum gb_kind *ret_kind, struct gb_error *err);

/* Whether memory of the kind is taken from the device, and used on its streams only. */
bool gb_kind_of_device(enum gb_kind kind);

enum gb_capability {
#define GB_CAPABILITY(NAME, name) GB_CAP_##NAME,
#include "model/capabilities.def"
#undef GB_CAPABILITY
    GB_CAP_COUNT
};
const char *gb_capability_name(enum gb_capability capability);

#define GB_UUID_TEXT_SIZE 48
#define GB_REASON_SIZE 96
#define GB_RELEASE_SIZE 32

struct gb_device_rec {
    int index;
    char uuid[GB_UUID_TEXT_SIZE]; /* "GPU-..." or "HOST-..." */
    char name[128];
    uint64_t total_bytes;
    uint64_t free_bytes;         /* at the time of asking */
    uint64_t pending_free_bytes; /* deleted, and freed when the device is idle */
    bool integrated;             /* shares memory with the CPU */
    bool cpu_access;   /* the CPU may read and write device pool memory: no slot is needed between socket and buffer */
    int compute_major; /* 0 on the host backend */
    int compute_minor;
    char driver[GB_RELEASE_SIZE]; /* release of the driver: "580.95.05"; "" where it is not known, or none is used */
    char cuda_driver[GB_RELEASE_SIZE];  /* the newest CUDA that the driver speaks: "13.0"; "" on the host backend */
    char cuda_runtime[GB_RELEASE_SIZE]; /* of the CUDA runtime in the daemon */
    /* Why a kind is not offered; empty where it is. Index: enum gb_kind. */
    char kind_missing[GB_KIND_COUNT][GB_REASON_SIZE];
    /* Why a capability is missing; empty where it is there. Index: enum gb_capability. */
    char cap_missing[GB_CAP_COUNT][GB_REASON_SIZE];
    /* The CPU may read and write memory of this kind straight, without a copy by the device. */
    bool kind_cpu[GB_KIND_COUNT];
    /* Managed memory must be handed to the CPU with gb_mem_attach before the CPU touches it, and back afterwards. */
    bool managed_attach;
};

/* What one device may do with another's memory. */
struct gb_peer_rec {
    int device; /* the one that accesses */
    int peer;   /* whose memory it is */
    bool can_access;
    bool native_atomics;
    int rank;                     /* of the link, as CUDA tells it: lower is faster; 0 where it tells none */
    char why_not[GB_REASON_SIZE]; /* empty when can_access */
};

enum gb_pool_access { GB_POOL_ACCESS_NONE, GB_POOL_ACCESS_READ_WRITE, GB_POOL_ACCESS_COUNT };
const char *gb_pool_access_name(enum gb_pool_access access);
int gb_pool_access_parse(const char *name, size_t len, enum gb_pool_access *ret_access, struct gb_error *err);

/* What the native layer takes an address for. */
enum gb_memory_type {
    GB_MEMORY_UNREGISTERED, /* plain host memory */
    GB_MEMORY_HOST,         /* page-locked */
    GB_MEMORY_DEVICE,
    GB_MEMORY_MANAGED,
    GB_MEMORY_TYPE_COUNT
};
const char *gb_memory_type_name(enum gb_memory_type type);

struct gb_mem_attr {
    enum gb_memory_type type;
    int device;              /* index; -1 for unregistered memory */
    uint64_t device_address; /* 0: none */
    uint64_t host_address;   /* 0: none */
    bool from_pool;
    bool this_pool;   /* the pool that was asked about */
    uint64_t context; /* address of the CUDA context that it was allocated in; 0: none, as of memory of pools */
};

/* Which way a copy went. */
enum gb_copy_way {
    GB_WAY_NONE,        /* nothing was to be copied */
    GB_WAY_DEVICE,      /* within one device */
    GB_WAY_TO_DEVICE,   /* from host memory */
    GB_WAY_FROM_DEVICE, /* to host memory */
    GB_WAY_HOST,        /* between host memories */
    GB_WAY_PEER,        /* between devices, straight */
    GB_WAY_STAGED,      /* between devices, by way of host memory */
    GB_WAY_COUNT
};
const char *gb_copy_way_name(enum gb_copy_way way);

/* Where bytes lie. device: of memory of a device the owner; of host memory the device it was made for. */
struct gb_location {
    enum gb_kind kind;
    int device;
    void *ptr;
};

/* How memory reaches another process, in the order in which the ways are tried. */
enum gb_export_way {
    GB_EXPORT_VMM,    /* a descriptor for cuMemImportFromShareableHandle */
    GB_EXPORT_POOL,   /* a descriptor for cudaMemPoolImportFromShareableHandle; handle is cudaMemPoolPtrExportData */
    GB_EXPORT_LEGACY, /* no descriptor; handle is cudaIpcMemHandle_t */
    GB_EXPORT_MEMFD,  /* a descriptor for mmap */
    GB_EXPORT_WAYS
};

/* "vmm", "pool", "legacy", "memfd"; "unknown" for another value. */
const char *gb_export_way_name(enum gb_export_way way);

/* Refuses an unknown word with INVALID_ARGUMENT naming the permitted ones. */
int gb_export_way_find(const char *name, size_t len, enum gb_export_way *ret_way, struct gb_error *err);

#define GB_EXPORT_HANDLE_BYTES 64 /* of every handle of CUDA's, of memory and of events */

/* What an importer needs. It maps map_bytes of the descriptor, or of what the handle names, from the start; the bytes
 * begin at offset in that. */
struct gb_export {
    enum gb_export_way way;
    int fd; /* -1: none. Closed by gb_export_done; close-on-exec */
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
    unsigned handle_bytes; /* 0: none */
    uint64_t map_bytes;    /* whole pages, or units of the device's memory where it has larger ones */
    uint64_t offset;
    int device; /* index, as the daemon counts */
};

#define GB_EXPORT_INIT ((struct gb_export){.fd = -1})

/* What another process gives of its memory: the other direction. Bytes [offset, offset + bytes) of what fd, or handle,
 * stands for. */
struct gb_import {
    enum gb_export_way way;
    int fd; /* borrowed; -1: none, which is so with LEGACY alone */
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
    int device;         /* index of that which has the memory; of host memory that which it is for */
    uint64_t map_bytes; /* VMM: of the whole allocation; 0: as many as the bytes need */
    uint64_t offset;
    uint64_t bytes;
};

/* Closes the descriptor, which importers may have kept open. Nothing of the memory ends by it. */
void gb_export_done(struct gb_export *export);

/* How a device is: what NVML or the system last said of it. A plain record: copy it freely. */

enum gb_health_source {
    GB_HEALTH_NONE, /* nothing is known: see reason */
    GB_HEALTH_NVML,
    GB_HEALTH_SYSTEM, /* files of the kernel, as on a Jetson */
    GB_HEALTH_SOURCES
};
const char *gb_health_source_name(enum gb_health_source source);

enum gb_clock_reason {
#define GB_CLOCK_REASON(bit, name) GB_CLOCK_##name = bit,
#include "model/clock_reasons.def"
#undef GB_CLOCK_REASON
    GB_CLOCK_REASONS
};
const char *gb_clock_reason_name(enum gb_clock_reason reason);

/* Those that mean that something is wrong: too hot, or too little power. */
#define GB_CLOCK_TROUBLE                                                                                               \
    (1u << GB_CLOCK_hw_slowdown | 1u << GB_CLOCK_sw_thermal_slowdown | 1u << GB_CLOCK_hw_thermal_slowdown |            \
     1u << GB_CLOCK_hw_power_brake_slowdown)

#define GB_HEALTH_REASON_SIZE 160
#define GB_HEALTH_PROCESSES 32
#define GB_PROCESS_NAME_SIZE 16

struct gb_health_process {
    uint32_t pid;
    char name[GB_PROCESS_NAME_SIZE]; /* "": not to be read from here */
    uint64_t used_bytes;             /* UINT64_MAX: not known */
};

/* A double that is not known is NAN, a clock that is not known 0. */
struct gb_health {
    enum gb_health_source source;
    char reason[GB_HEALTH_REASON_SIZE]; /* why there is nothing, or not everything; "": nothing to add */
    int64_t at_us;                      /* when it was read; 0: not yet */
    double gpu_utilization;             /* 0 to 1, over NVML's last period */
    double memory_utilization;          /* the same of the memory's bandwidth */
    double temperature_c;
    double power_w;
    double power_limit_w;
    bool has_ecc;
    uint64_t ecc_corrected; /* in the device's lifetime */
    uint64_t ecc_uncorrected;
    uint32_t sm_mhz;
    uint32_t memory_mhz;
    bool has_reasons;
    uint32_t reasons; /* 1u << enum gb_clock_reason */
    bool has_processes;
    unsigned process_count;  /* of those below */
    unsigned processes_more; /* others, which found no room in processes */
    struct gb_health_process processes[GB_HEALTH_PROCESSES];
};

/* Nothing is known. reason is copied; NULL: "". */
void gb_health_clear(struct gb_health *ret, const char *reason);

/* Labels of a buffer or session: the text of a JSON object that is opaque below api. They never change, and are shared
 * by all copies of a record. NULL stands for none. */
#define GB_LABELS_MAX 2048 /* bytes of the JSON text, NUL included */

/* *ret_labels: a reference to labels with a copy of that text; NULL, without an allocation, for "{}" and "". Returns 0,
 * or -1 with SATURATED when memory is exhausted. */
int gb_labels_make(const char *text, struct gb_text **ret_labels, struct gb_error *err);

/* "{}" for NULL. */
const char *gb_labels_text(const struct gb_text *labels);

/* When the bytes of a new generation are on disk. */
enum gb_durability {
    GB_DURABILITY_NONE,   /* never: they end with the process */
    GB_DURABILITY_BEHIND, /* a short while after the change was acknowledged */
    GB_DURABILITY_SYNC,   /* before the change is acknowledged */
    GB_DURABILITY_COUNT
};
const char *gb_durability_name(enum gb_durability durability);
/* Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_durability_parse(const char *name, size_t len, enum gb_durability *ret, struct gb_error *err);

/* Where bytes that are not durable may go when memory is wanted for others, until they are wanted again or the process
 * ends. */
enum gb_spill {
    GB_SPILL_NEVER, /* they stay in memory */
    GB_SPILL_HOST,  /* to host memory while that has room, else to the disk */
    GB_SPILL_DISK,  /* to the disk */
    GB_SPILL_COUNT
};
const char *gb_spill_name(enum gb_spill spill);
/* Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_spill_parse(const char *name, size_t len, enum gb_spill *ret, struct gb_error *err);

/* The bytes have a checksum for each block of this size; the last block may be shorter. */
#define GB_STORED_BLOCK_BYTES (1024u * 1024u)
/* Bytes up to this size lie in the database, beside the record. */
#define GB_STORED_INLINE_BYTES (64u * 1024u)

static inline size_t gb_stored_block_count(uint64_t bytes) {
    return (size_t)((bytes + GB_STORED_BLOCK_BYTES - 1) / GB_STORED_BLOCK_BYTES);
}

/* The bytes of one generation. They lie in the database if there are at most GB_STORED_INLINE_BYTES, else in a file.
 * The name of the file has buffer_id, file_generation and file_tag, and is never given again: bytes that become those
 * of another generation stay in their file. */
struct gb_stored_rec {
    int64_t buffer_id;
    int64_t generation;
    uint32_t run; /* of the process that gave them this generation; part of the entity tag */
    int64_t file_generation;
    uint32_t file_tag;
    uint64_t bytes;
    enum gb_dtype dtype; /* what the bytes were, where the record has become another */
    struct gb_shape shape;
    uint32_t crc32c;        /* of all */
    const uint32_t *blocks; /* CRC32C of each block: gb_stored_block_count(bytes). Borrowed */
};

static inline bool gb_stored_inline(const struct gb_stored_rec *rec) {
    return rec->bytes <= GB_STORED_INLINE_BYTES;
}

/* The types of the fields of records: pool.def and its brothers name them, and each layer has a family of macros that
 * end in them, such as BIND_limit of the store. */

#define GB_UNLIMITED UINT64_MAX

/* A short text that a client chose: UTF-8 without NUL. A value, as names are. */
#define GB_PHRASE_MAX 255
struct gb_phrase {
    char s[GB_PHRASE_MAX + 1];
};

#define GB_FLEET_CLAIM_MAX 63
typedef char gb_fleet_claim[GB_FLEET_CLAIM_MAX + 1];

/* In C. */
#define GB_C_i64 int64_t
#define GB_C_u64 uint64_t
#define GB_C_u32 uint32_t
#define GB_C_count unsigned
#define GB_C_index int        /* of a device */
#define GB_C_flag bool        /* 0 or 1 in the database */
#define GB_C_limit uint64_t   /* GB_UNLIMITED is null in the database and in JSON */
#define GB_C_maximum uint64_t /* 0 is null in JSON */
#define GB_C_priority int
#define GB_C_crc uint32_t
#define GB_C_name struct gb_name
#define GB_C_phrase struct gb_phrase
#define GB_C_claim gb_fleet_claim
#define GB_C_text struct gb_text *   /* a reference */
#define GB_C_labels struct gb_text * /* a reference */
#define GB_C_shape struct gb_shape
#define GB_C_dtype enum gb_dtype
#define GB_C_kind enum gb_kind
#define GB_C_state enum gb_buffer_state
#define GB_C_head enum gb_head
#define GB_C_durability enum gb_durability
#define GB_C_spill enum gb_spill

/* Whether two values are the same. */
#define GB_SAME_i64(a, b) ((a) == (b))
#define GB_SAME_u64 GB_SAME_i64
#define GB_SAME_u32 GB_SAME_i64
#define GB_SAME_count GB_SAME_i64
#define GB_SAME_index GB_SAME_i64
#define GB_SAME_flag GB_SAME_i64
#define GB_SAME_limit GB_SAME_i64
#define GB_SAME_maximum GB_SAME_i64
#define GB_SAME_priority GB_SAME_i64
#define GB_SAME_crc GB_SAME_i64
#define GB_SAME_name(a, b) (strcmp((a).s, (b).s) == 0)
#define GB_SAME_phrase GB_SAME_name
#define GB_SAME_claim(a, b) (strcmp(a, b) == 0)
#define GB_SAME_text(a, b) (strcmp(gb_text_s(a), gb_text_s(b)) == 0)
#define GB_SAME_labels(a, b) (strcmp(gb_labels_text(a), gb_labels_text(b)) == 0)
#define GB_SAME_shape(a, b) gb_shape_equal(&(a), &(b))
#define GB_SAME_dtype GB_SAME_i64
#define GB_SAME_kind GB_SAME_i64
#define GB_SAME_state GB_SAME_i64
#define GB_SAME_head GB_SAME_i64
#define GB_SAME_durability GB_SAME_i64
#define GB_SAME_spill GB_SAME_i64

enum gb_buffer_state {
    GB_BUFFER_READY,
    GB_BUFFER_PARTIAL, /* an in-place upload broke off */
    GB_BUFFER_LOST,    /* the bytes died with an earlier process or with the device */
    GB_BUFFER_STORED,  /* the bytes are on disk alone; not persisted, where it is READY */
    GB_BUFFER_STATE_COUNT
};
const char *gb_buffer_state_name(enum gb_buffer_state state);
int gb_buffer_state_parse(const char *name, size_t len, enum gb_buffer_state *ret_state, struct gb_error *err);

/* Which side of a mirrored buffer holds its bytes. */
enum gb_head { GB_HEAD_UNINITIALIZED, GB_HEAD_HOST, GB_HEAD_DEVICE, GB_HEAD_SYNCED, GB_HEAD_COUNT };
const char *gb_head_name(enum gb_head head);
int gb_head_parse(const char *name, size_t len, enum gb_head *ret_head, struct gb_error *err);

enum gb_side { GB_SIDE_HOST, GB_SIDE_DEVICE, GB_SIDES };

/* Whether that side has the newest bytes. */
static inline bool gb_side_current(enum gb_head head, enum gb_side side) {
    return head == GB_HEAD_SYNCED || head == (side == GB_SIDE_HOST ? GB_HEAD_HOST : GB_HEAD_DEVICE);
}

/* The memory of one side. */
struct gb_side_rec {
    uint64_t bytes; /* its capacity; 0: there is no memory */
    bool adopted;   /* another process owns it */
    bool pinned;    /* it is page-locked host memory */
};

struct gb_quota { /* GB_UNLIMITED in each: none */
#define GB_SESSION_FIELD(...)
#define GB_SESSION_QUOTA(name, type, ...) GB_C_##type name;
#include "model/session.def"
};

struct gb_session_rec {
    int64_t id; /* never reused */
#define GB_SESSION_FIELD(name, type, ...) GB_C_##type name;
#define GB_SESSION_QUOTA(...)
#include "model/session.def"
    struct gb_quota quota;
    bool stops_on_partition;
    bool given;      /* it may be another node's by now: it was being given away when the process ended */
    int64_t version; /* raised by every change of this record */
    int64_t created_at_us;
    int64_t updated_at_us;
};

/* rec is zeroed, or has a record, whose labels and holders it gives back. [any thread] */
void gb_session_rec_set(struct gb_session_rec *rec, const struct gb_session_rec *from);
void gb_session_rec_done(struct gb_session_rec *rec);

struct gb_buffer_rec {
#define GB_BUFFER_FIELD(name, type, ...) GB_C_##type name;
#include "model/buffer.def"
    struct gb_side_rec sides[GB_SIDES]; /* of a mirrored buffer; not persisted */
    bool damaged;                       /* its bytes on disk were found damaged or missing; not persisted */
    bool in_host;                       /* STORED, and in host memory; not persisted */
    struct gb_name link;                /* the sealed buffer whose bytes it has by a link; "": none; not persisted */
    int64_t layout; /* dtype TENSORS: the generation that brought the table, since the start; not persisted */
};

/* As those of sessions. */
void gb_buffer_rec_set(struct gb_buffer_rec *rec, const struct gb_buffer_rec *from);
void gb_buffer_rec_done(struct gb_buffer_rec *rec);

/* Counts and bytes of one pool since its creation, and what it holds now. */
struct gb_pool_stat {
    uint64_t used_bytes;
    uint64_t used_peak_bytes;
    uint64_t reserved_bytes;
    uint64_t reserved_peak_bytes;
};

/* What backends know of a pool. */
struct gb_pool_config {
#define GB_POOL_FIELD(...)
#define GB_POOL_CONFIG(name, type, ...) GB_C_##type name;
#include "model/pool.def"
};

/* A pool that a session made. The devices' default pools have no record. */
struct gb_pool_rec {
    int64_t id; /* never reused */
#define GB_POOL_FIELD(name, type, ...) GB_C_##type name;
#define GB_POOL_CONFIG(...)
#include "model/pool.def"
    struct gb_pool_config config;
    int64_t version; /* raised by every change of this record */
    int64_t created_at_us;
    int64_t updated_at_us;
};

/* Which of its fields a request gives. */
struct gb_pool_given {
#define GB_POOL_FIELD(name, ...) bool name;
#include "model/pool.def"
};

/* Takes over from the parameters of a request what is given of the fields that can be changed. */
void gb_pool_rec_merge(struct gb_pool_rec *rec, const struct gb_pool_rec *from, const struct gb_pool_given *given);
/* Gives every field that is not given the value of pool.def. */
void gb_pool_rec_complete(struct gb_pool_rec *rec, const struct gb_pool_given *given);

enum gb_direction { GB_UPLOAD, GB_DOWNLOAD, GB_DIRECTION_COUNT };

/* Lifetime counters; they survive restarts. Times in nanoseconds. */
struct gb_counters {
#define GB_COUNTER(name) uint64_t name;
#include "model/counters.def"
#undef GB_COUNTER
};

#endif
