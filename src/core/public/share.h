/* What core.h shows of memory that is shared with other processes: leases and adoptions. */
#ifndef GB_CORE_PUBLIC_SHARE_H
#define GB_CORE_PUBLIC_SHARE_H

#include <sys/types.h>

#include "core/public/call.h"
#include "model/model.h"

/* --- leases: other processes map the bytes of buffers ------------------------------------------------------------- */

/* A holder stands for one connection of a client on this machine. Every lease belongs to one holder and ends with it at
 * the latest.
 *
 * While a lease lives, the daemon neither frees, writes nor moves its memory. A write in place, a delete, and a sync or
 * release of a mirrored buffer are refused with MAPPED. The exception is a copy or a fill in place that the holder of
 * all leases on the buffer asks for itself. A full replacement goes into memory of its own beside the mapped memory.
 * Memory that is replaced or deleted and still mapped (held_bytes) counts against the session's quota until its last
 * lease ends. */

#define GB_LEASES_MAX 65536       /* in all */
#define GB_HOLDER_LEASES_MAX 1024 /* of one holder */
#define GB_EXPORTS_MAX 1024       /* without a connection */
#define GB_LEASE_FINISH_S 30      /* for the importer's event, once the lease is to end */

#define GB_LEASE_AGE_MAX_S 31536000 /* that a mapping may ask for, unless the daemon's options say less */
#define GB_EXPORT_TTL_S 300         /* of an export that names none */
#define GB_EXPORT_TTL_MAX_S 86400   /* unless the daemon's options say otherwise */

/* --- holders ------------------------------------------------------------------------------------------------------ */

struct gb_holder;

/* Makes a holder; process and user are shown to clients that ask for the leases of a buffer. [now] */
int gb_holder_new(struct gb_core *core, pid_t pid, uid_t uid, gid_t gid, struct gb_holder **ret, struct gb_error *err);

/* The holder's number, which names the client of a write in place (gb_device_write_params). Never 0, never reused by
 * this process. [now] */
uint64_t gb_holder_id(const struct gb_holder *holder);

/* Returns true if it has a lease, or owns the memory of a buffer. Those that are being made or ended count. [now] */
bool gb_holder_maps(struct gb_holder *holder);

/* Ends the holder, once; NULL is accepted. All its leases end; those being made end with CANCELLED. The buffers over
 * memory that it owns are lost.
 *
 * The caller may not name the holder to another call; calls under way keep what they need. Every holder must have ended
 * before gb_core_close. [now, any thread] */
void gb_holder_end(struct gb_holder *holder);

/* --- mapping ------------------------------------------------------------------------------------------------------ */

struct gb_lease_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_holder *holder; /* borrowed: it has not ended when gb_lease_map is called */
    bool write;               /* for the importer to write into; else to read */
    unsigned ways;            /* the only ones to be tried, 1u << enum gb_export_way; 0: all */
    unsigned wait_ms;         /* for what is queued on the bytes, where no event can stand for it */
    bool finished;            /* with an event that the importer records behind its work */
    uint64_t ttl_s;           /* the lease's longest life, without an event; 0: as long as the holder */
    uint64_t max_age_s;       /* the lease's longest life beside the holder's; 0: as long as the holder */
    uint64_t caller;          /* the grant that it is made under (gb_tokens_in_force); 0: of none */
};

struct gb_lease_grant {
    int64_t id;              /* of the lease; never reused, nor by the next process */
    bool write;              /* as asked for */
    enum gb_kind kind;       /* of the memory: of a mirrored buffer that of the side */
    struct gb_export export; /* the call's, closed with it: gb_lease_take_fd */
    int64_t pool_id;         /* way pool: that of the memory; else 0 */
    struct gb_name pool;
    bool has_event;                                 /* else the bytes are complete */
    unsigned char event[GB_EXPORT_HANDLE_BYTES];    /* cudaIpcEventHandle_t, to be waited for before the first use */
    bool has_finished;                              /* asked for, and to be had */
    unsigned char finished[GB_EXPORT_HANDLE_BYTES]; /* the same, to be recorded by the importer before it unmaps */
    char finished_missing[384];                     /* asked for: why it is not to be had */
    int64_t expires_at_us;                          /* 0: never of itself */
    unsigned passed_count;
    struct {
        enum gb_export_way way;
        char reason[384];
    } passed[GB_EXPORT_WAYS]; /* tried before, in order, and why not */
};

struct gb_lease_call {
    struct gb_call base;
    struct gb_buffer_rec buffer;
    struct gb_lease_grant lease;
};

/* Maps the buffer's present bytes, in the first way that is possible of vmm, pool, legacy, memfd; of a mirrored buffer
 * the current side.
 *
 * For writing: several leases at once are permitted. The generation is raised and the checksum forgotten when the lease
 * begins and when it ends; meanwhile readers get the bytes of that moment. BUFFER_BUSY while others read the bytes.
 *
 * BUFFER_NOT_FOUND, BUFFER_BUSY while it is written in place, BUFFER_PARTIAL, CONTENT_LOST, SEALED (for writing),
 * UNSUPPORTED with all reasons if there is no way, TIMED_OUT, LIMIT_REACHED, CANCELLED if the holder ends. Result:
 * call->lease, call->buffer. If the answer cannot be delivered, gb_lease_end must follow. */
void gb_lease_map(struct gb_core *core, const struct gb_lease_params *params, struct gb_lease_call *call);

/* The grant's descriptor becomes the caller's; -1 if it has no descriptor, or it was taken. */
int gb_lease_take_fd(struct gb_lease_call *call);

/* The same without a connection, by CUDA's older handle alone. The handle may reach its user by way of others and
 * without an event, so the bytes are complete. The lease ends after ttl_s, or by gb_lease_end. LIMIT_REACHED above
 * GB_EXPORTS_MAX. uid, gid: of the client, -1 if unknown. */
struct gb_export_params {
    struct gb_name session;
    struct gb_name name;
    bool write;
    uint64_t ttl_s;
    uid_t uid;
    gid_t gid;
    unsigned wait_ms;
    uint64_t caller; /* as in gb_lease_params */
};
void gb_lease_export(struct gb_core *core, const struct gb_export_params *params, struct gb_lease_call *call);

/* Ends a lease. If its importer has an event that is not complete, the lease ends when it is: until then the memory is
 * neither written nor given back. After GB_LEASE_FINISH_S it ends all the same, with TIMED_OUT, and what it wrote is
 * tainted.
 *
 * holder: only one of its own, else MAP_NOT_PERMITTED; NULL: any. LEASE_NOT_FOUND. When the call ends the memory is
 * given back and the new generation of a lease for writing is committed.
 *
 * outside: the lease's process was not asked, and may continue. The content of a lease for writing is tainted then, as
 * it is when the time of an export, or of a lease with a greatest age, has ended: until other memory takes its place it
 * has no checksum and no lasting entity tag, and seal refuses it with ESCAPED. */
void gb_lease_end(struct gb_core *core, int64_t id, struct gb_holder *holder, bool outside, struct gb_call *call);

/* Ends the leases whose grant is no longer in force, outside as above. [now] */
void gb_leases_recheck(struct gb_core *core);

/* --- looking ------------------------------------------------------------------------------------------------------ */

enum gb_lease_state {
    GB_LEASE_PRESENT,  /* the bytes are the buffer's */
    GB_LEASE_REPLACED, /* the buffer has others by now */
    GB_LEASE_DELETED,  /* the buffer is gone */
    GB_LEASE_LOST,     /* the device died, or the pool was removed */
    GB_LEASE_ENDING    /* the client is through; its event, or the commit of the new generation, is waited for */
};
/* "present", "replaced", "deleted", "lost", "ending". */
const char *gb_lease_state_name(enum gb_lease_state state);

struct gb_lease_view {
    int64_t id;
    struct gb_name session;
    struct gb_name buffer;
    bool write;
    enum gb_export_way way;
    pid_t pid;
    uid_t uid;
    gid_t gid;
    int64_t since_us;
    bool exported;         /* it has no connection, and no process (pid 0) */
    int64_t expires_at_us; /* 0: with its connection */
    int64_t generation;    /* of the buffer when the lease began; for writing the one that it made */
    uint64_t bytes;
    enum gb_lease_state state;
};

/* Visits the leases of all sessions that were granted and have not ended, as gb_session_list. [now] */
int gb_lease_list(struct gb_core *core, struct gb_page *page,
                  int (*visit)(void *, const struct gb_lease_view *, struct gb_error *), void *arg,
                  struct gb_error *err);

/* One lease as the list has it. LEASE_NOT_FOUND. [now] */
int gb_lease_get(struct gb_core *core, int64_t id, struct gb_lease_view *ret, struct gb_error *err);

/* The leases on the buffer's present bytes, oldest first, at most max; those being made included. Returns how many were
 * written to ret; 0 also if there is no such buffer. For the problem document of MAPPED. [now] */
unsigned gb_lease_holders(struct gb_core *core, const struct gb_locator *at, struct gb_lease_view *ret, unsigned max);

/* --- adopted memory: buffers over memory that another process owns ------------------------------------------------ */

/* The owner is a holder, and its connection is the owner's lease. When it ends the buffer is lost, and the daemon's
 * mapping goes once nothing uses it. The owner's memory is never freed by the daemon, and is written only in place: an
 * upload, a copy or a fill of an adopted buffer is always in place. An operation that needs fresh memory (parts,
 * groups) is refused with ADOPTED.
 *
 * Adopted memory has no checksum and cannot be sealed, because its owner may write at any time; nor can others map it.
 * It counts as a buffer, but not among the session's bytes.
 *
 * One side of a mirrored buffer may be adopted memory. When its owner ends, the buffer is lost only if the other side
 * is not current. */

#define GB_ADOPTED_MAX 16384 /* in all */
#define GB_ADOPTED_BYTES_MAX (64ull << 30)
#define GB_HOLDER_ADOPTED_MAX 1024 /* of one holder */

/* offset and the handle's bytes are multiples of it: the widest fill. */
#define GB_ADOPT_ALIGN 8

struct gb_adopt_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_holder *holder; /* borrowed: it has not ended when the call is made */
    struct gb_import import;  /* fd: the call's from then on; closed by config.closer, where room for it is reserved */
    enum gb_dtype dtype;
    struct gb_shape shape; /* of import.bytes bytes */
    bool has_side;         /* the memory is one side of a mirrored buffer */
    enum gb_side side;
    bool has_device;              /* else import.device is that of the mirrored buffer, if it exists */
    struct gb_buffer_check check; /* of the buffer that has the name; check.arg is the call's */
};

/* Everything that can be refused without a descriptor: 0, or -1 as gb_buffer_adopt would fail. [now] */
int gb_adopt_check(struct gb_core *core, const struct gb_adopt_params *params, struct gb_error *err);

/* Makes a buffer over that memory, under a new name or that of a lost buffer. With a side, the buffer is mirrored and
 * may exist. The memory is then that side, as after an upload of all of it; the other side stays the daemon's.
 * BUFFER_EXISTS, BUFFER_BUSY, SEALED, CANNOT_ADOPT, UNSUPPORTED, LIMIT_REACHED, PINNED_LIMIT, QUOTA_EXCEEDED (of
 * buffers), CANCELLED if the holder ends, the check's. Result: call->buffer, created. */
void gb_buffer_adopt(struct gb_core *core, const struct gb_adopt_params *params, struct gb_buffer_call *call);

#endif
