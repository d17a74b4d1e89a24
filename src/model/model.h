/* Records shared by all layers. Times are microseconds since the epoch, UTC.
 *
 * A record with labels holds a reference to them: gb_buffer_rec_set and gb_session_rec_set copy one, gb_buffer_rec_done
 * and gb_session_rec_done give the reference back. A plain copy borrows the labels. All other records are values. */
#ifndef GB_MODEL_MODEL_H
#define GB_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "model/device.h"
#include "model/tensor.h"
#include "model/token.h"

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
