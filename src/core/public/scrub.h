/* Scrubs: passes over all files of buffers' bytes, which find damage before a request does. Included by core.h. */
#ifndef GB_CORE_PUBLIC_SCRUB_H
#define GB_CORE_PUBLIC_SCRUB_H

#include "core/public/call.h"
#include "core/public/types.h"

struct gb_core;

/* Of the pass that runs, or of the latest one. */
struct gb_scrub_pass {
    int64_t began_us;
    uint64_t files; /* that were looked at */
    uint64_t bytes; /* that were read */
    uint64_t damaged;
    uint64_t healed;  /* of the damaged: written again from memory */
    uint64_t skipped; /* that could not be read for a reason that is not theirs */
};

struct gb_scrub_numbers {
    bool running;
    bool known; /* there was a pass since the daemon began, which pass tells of */
    struct gb_scrub_pass pass;
    int64_t last_ended_us; /* of the latest pass that came to its end, also before the daemon began; 0: none */
    uint64_t bytes;        /* of all passes since the daemon began, as the next two */
    uint64_t damaged;
    uint64_t healed;
};
/* [now] */
void gb_scrub_stat(struct gb_core *core, struct gb_scrub_numbers *ret);

/* A buffer whose file was damaged. */
struct gb_scrub_find {
    struct gb_name session;
    struct gb_name buffer;
    enum gb_code code; /* CONTENT_DAMAGED; CONTENT_LOST: the file is missing */
    bool healed;
};
#define GB_SCRUB_TOLD 100

struct gb_scrub_call {
    struct gb_call base;
    struct gb_scrub_pass pass; /* as it ended */
    size_t told;               /* of the damaged ones, the first */
    struct gb_scrub_find tell[GB_SCRUB_TOLD];
};

/* Begins a pass, or joins the one that runs; rate is the most bytes a second from now on, 0: as configured. The call
 * ends with the pass. A file whose bytes are not those that were written is told by a notice, and is written again if
 * the same bytes are in memory. Errors: INVALID_ARGUMENT where no rate is configured and none is given;
 * STORAGE_UNAVAILABLE without a data folder, or when it has gone; DRAINING. */
void gb_storage_scrub(struct gb_core *core, uint64_t rate, struct gb_scrub_call *call);

#endif
