/* The measurements of a selftest. */
#ifndef GB_CORE_OBSERVE_SELFTEST_RUN_H
#define GB_CORE_OBSERVE_SELFTEST_RUN_H

#include "core/observe/selftest.h"
#include "core/util/pinned.h"

/* Measures the device call->device. Blocks. Between two measurements it looks at *stop: DRAINING. Returns 0, or -1
 * where nothing could be measured. Page-locked memory counts in pinned. */
int gb_selftest_run(struct gb_backend *be, struct gb_pinned *pinned, const atomic_bool *stop,
                    struct gb_selftest_call *call, struct gb_error *err);

#endif
