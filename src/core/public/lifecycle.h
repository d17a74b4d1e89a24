/* Opens and closes the core, and reports whether it works; its devices and its background tasks. */
#ifndef GB_CORE_PUBLIC_LIFECYCLE_H
#define GB_CORE_PUBLIC_LIFECYCLE_H

#include "core/public/types.h"
#include "core/util/lane.h"

struct gb_core;

/* Opens the core: loads sessions and buffer records, makes the session "default" if it is absent, pins the slots and
 * starts the threads. A loaded buffer is LOST unless the disk has its bytes: others ended with the earlier process. */
int gb_core_open(const struct gb_core_config *config, struct gb_core **ret, struct gb_error *err);

/* The state of the buffers of the earlier process. */
struct gb_core_found {
    uint64_t lost;        /* without their bytes now, those that were lost before included */
    uint64_t missing;     /* of them: durable, and their file is not there as it should be */
    uint64_t rolled_back; /* with bytes of an earlier generation */
    uint64_t orphans;     /* files that no record names, which are in orphans/ now */
};
/* [now] */
void gb_core_found(struct gb_core *core, struct gb_core_found *ret);

/* Memory that outlives the process (core/memory/kept.h). */
struct gb_kept_stat {
    bool on;
    bool alive;        /* the keeper */
    uint64_t contents; /* kept now */
    uint64_t bytes;    /* of them */
    uint64_t found;    /* at the start, of them taken over */
    uint64_t found_bytes;
    uint64_t left_out;   /* contents of a kind that is kept, which the keeper or the ledger had no room for */
    struct gb_error why; /* the first memory that was not taken over at the start; code GB_OK: none */
};
/* [now] */
void gb_kept_stat(struct gb_core *core, struct gb_kept_stat *ret);

/* Closes the core: frees device memory, saves the counters and joins the threads. All calls and transfers must have
 * ended. NULL is accepted. */
void gb_core_close(struct gb_core *core);

/* [now] For the readiness check. Returns 0; -1 with DEVICE_LOST or the backend's error if the device has failed. */
int gb_core_health(struct gb_core *core, struct gb_error *err);
/* [now] For the readiness check. Returns 0; -1 with STORE_UNAVAILABLE if the database refuses writes. */
int gb_core_writable(struct gb_core *core, struct gb_error *err);

/* For threads that work in turns, around each. When end_turn returns false, what the thread's calls changed is in the
 * database and what they copied has arrived, unless the disk, the device or another thread must be waited for. It
 * returns true if that is put off: the thread then continues, and must not sleep. idle: the thread has nothing else to
 * do. [now; end_turn takes as long as a commit] */
void gb_core_begin_turn(struct gb_core *core);
bool gb_core_end_turn(struct gb_core *core, bool idle);

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* [now] Find a device by index or UUID text and read its properties. They were read at the start, free_bytes at the
 * last housekeeping. Errors: DEVICE_NOT_FOUND. */
int gb_device_count(struct gb_core *core);
int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err);
int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err);
/* [now] The last reading of the device's health; at_us is its time. Errors: DEVICE_NOT_FOUND. */
int gb_device_health(struct gb_core *core, int device, struct gb_health *ret, struct gb_error *err);

/* --- tasks -------------------------------------------------------------------------------------------------------- */

/* Work of the CPU that takes long and that only a client waits for. Runs run(work) once, on a lane of its own, after
 * the others. gb_core_close runs the tasks that are left. */
struct gb_core_task {
    struct gb_task task;
    void (*run)(struct gb_core_task *work);
};
void gb_core_run_task(struct gb_core *core, struct gb_core_task *work);

#endif
