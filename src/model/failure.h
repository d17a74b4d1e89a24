/* Reasons of failures, a short list of them: labels and columns are bounded by it. */
#ifndef GB_MODEL_FAILURE_H
#define GB_MODEL_FAILURE_H

#include "base/error.h"
#include "model/model.h"

enum gb_failure {
#define GB_FAILURE(name, code, allocation, pool, kind, transfer) GB_FAILURE_##name,
#include "model/failures.def"
#undef GB_FAILURE
    GB_FAILURES
};
const char *gb_failure_name(enum gb_failure why);

enum gb_failed {
    GB_FAILED_ALLOCATION,
    GB_FAILED_UPLOAD,
    GB_FAILED_DOWNLOAD,
    GB_FAILED_COUNTED,                  /* as many are in struct gb_counters */
    GB_FAILED_POOL = GB_FAILED_COUNTED, /* an allocation as a pool or device sees it */
    GB_FAILED_KIND                      /* an allocation as a kind of memory sees it */
};

/* Whether that is a reason for it. */
bool gb_failure_may(enum gb_failure why, enum gb_failed what);

/* The reason that the code stands for; `other` where it is none of them. */
enum gb_failure gb_failure_of(enum gb_code code, enum gb_failed what);

/* How often it failed so. 0 where it cannot. */
uint64_t gb_counters_failed(const struct gb_counters *counters, enum gb_failed what, enum gb_failure why);

/* What an earlier version counted without a reason is given to `other`, so that the reasons come to the whole. */
void gb_counters_explain(struct gb_counters *counters);

#endif
