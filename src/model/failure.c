#include "model/failure.h"

#include <stddef.h>

const char *gb_failure_name(enum gb_failure why) {
    static const char *const names[GB_FAILURES] = {
#define GB_FAILURE(name, code, allocation, pool, kind, transfer) [GB_FAILURE_##name] = #name,
#include "model/failures.def"
#undef GB_FAILURE
    };

    return (unsigned)why < GB_FAILURES ? names[why] : "unknown";
}

bool gb_failure_may(enum gb_failure why, enum gb_failed what) {
    static const struct {
        bool allocation, pool, kind, transfer;
    } uses[GB_FAILURES] = {
#define GB_FAILURE(name, code, allocation, pool, kind, transfer) {allocation, pool, kind, transfer},
#include "model/failures.def"
#undef GB_FAILURE
    };

    switch (what) {
    case GB_FAILED_ALLOCATION:
        return uses[why].allocation;
    case GB_FAILED_POOL:
        return uses[why].pool;
    case GB_FAILED_KIND:
        return uses[why].kind;
    case GB_FAILED_UPLOAD:
    case GB_FAILED_DOWNLOAD:
        break;
    }
    return uses[why].transfer;
}

enum gb_failure gb_failure_of(enum gb_code code, enum gb_failed what) {
    static const enum gb_code codes[GB_FAILURES] = {
#define GB_FAILURE(name, code, allocation, pool, kind, transfer) GB_ERR_##code,
#include "model/failures.def"
#undef GB_FAILURE
    };
    int i;

    if (code == GB_ERR_STORAGE_FULL) /* the commonest reason of the database */
        code = GB_ERR_STORE_FAILED;
    for (i = 0; i < GB_FAILURES; i++) {
        if (codes[i] == code && gb_failure_may((enum gb_failure)i, what))
            return (enum gb_failure)i;
    }
    return GB_FAILURE_other;
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

#define AT(name) offsetof(struct gb_counters, name)

static const size_t totals[GB_FAILED_COUNTED] = {AT(allocation_failures), AT(uploads_failed), AT(downloads_failed)};

static const size_t parts[GB_FAILED_COUNTED][GB_FAILURES] = {
#define GB_FAILURE_COUNTER(what, prefix, name) [GB_FAILED_##what][GB_FAILURE_##name] = AT(prefix##_##name),
#include "model/failure_counters.def"
#undef GB_FAILURE_COUNTER
};

static uint64_t *counter(struct gb_counters *counters, size_t at) {
    return (uint64_t *)(void *)((char *)counters + at);
}

uint64_t gb_counters_failed(const struct gb_counters *counters, enum gb_failed what, enum gb_failure why) {
    if (what >= GB_FAILED_COUNTED || !gb_failure_may(why, what))
        return 0;
    return *(const uint64_t *)(const void *)((const char *)counters + parts[what][why]);
}

void gb_counters_explain(struct gb_counters *counters) {
    int what;
    int why;

    for (what = 0; what < GB_FAILED_COUNTED; what++) {
        uint64_t all = *counter(counters, totals[what]);
        uint64_t told = 0;

        for (why = 0; why < GB_FAILURES; why++)
            told += gb_counters_failed(counters, (enum gb_failed)what, (enum gb_failure)why);
        if (all > told)
            *counter(counters, parts[what][GB_FAILURE_other]) += all - told;
    }
}
