/* Records shared by all layers. Times are microseconds since the epoch, UTC.
 *
 * A record with labels holds a reference to them: gb_buffer_rec_set and gb_session_rec_set copy one, gb_buffer_rec_done
 * and gb_session_rec_done give the reference back. A plain copy borrows the labels. All other records are values. */
#ifndef GB_MODEL_MODEL_H
#define GB_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "model/device.h"
#include "model/fields.h"
#include "model/labels.h"
#include "model/stored.h"
#include "model/tensor.h"
#include "model/token.h"

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
