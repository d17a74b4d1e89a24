/* What the daemon says of its past: numbers over time, what is sampled and what is made of the samples; notices;
 * reasons of failures. Values only; times are microseconds since the epoch, UTC. A number that is not known is NaN. */
#ifndef GB_MODEL_HISTORY_H
#define GB_MODEL_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "model/model.h"

enum gb_history_scope { GB_HISTORY_DAEMON, GB_HISTORY_DEVICE, GB_HISTORY_POOL, GB_HISTORY_SESSION, GB_HISTORY_SCOPES };
const char *gb_history_scope_name(enum gb_history_scope scope);

enum gb_history_gauge {
#define GB_GAUGE(name, type, scopes) GB_GAUGE_##name,
#include "model/history.def"
    GB_HISTORY_GAUGES
};
enum gb_history_counter {
#define GB_COUNTER(name, type, scopes) GB_COUNTER_##name,
#include "model/history.def"
    GB_HISTORY_COUNTERS
};

struct gb_history_field {
    const char *name;
    unsigned scopes; /* 1u << enum gb_history_scope */
};
extern const struct gb_history_field gb_history_gauges[GB_HISTORY_GAUGES];
extern const struct gb_history_field gb_history_counters[GB_HISTORY_COUNTERS];
static inline bool gb_history_has(const struct gb_history_field *field, enum gb_history_scope scope) {
    return (field->scopes & 1u << scope) != 0;
}

/* Whose numbers: never one that has another's past. A session or pool that is made again under the same name has
 * another id. */
struct gb_history_key {
    enum gb_history_scope scope;
    int64_t id;                   /* of the session, or of the pool; 0: the daemon, a device, a device's own pool */
    char uuid[GB_UUID_TEXT_SIZE]; /* of the device, or of the device whose own pool it is; else "" */
};

/* One look. Counters: the increase since the look before. */
struct gb_history_sample {
    struct gb_history_key key;
    char session[GB_NAME_MAX + 1]; /* names for people; "" if the object has no name */
    char name[GB_NAME_MAX + 1];    /* of a pool */
    int device;                    /* index; -1: none */
    char device_uuid[GB_UUID_TEXT_SIZE];
    int64_t at_us;
    double gauge[GB_HISTORY_GAUGES];
    double counter[GB_HISTORY_COUNTERS];
};
void gb_history_sample_init(struct gb_history_sample *sample, enum gb_history_scope scope, int64_t at_us);

/* How finely it is kept. */
enum gb_history_level { GB_HISTORY_SAMPLES, GB_HISTORY_MINUTES, GB_HISTORY_HOURS, GB_HISTORY_LEVELS };
const char *gb_history_level_name(enum gb_history_level level);

struct gb_history_span {
    double min, mean, max, last;
};

/* What a span of time came to. */
struct gb_history_point {
    int64_t at_us; /* its beginning */
    int64_t samples;
    struct gb_history_span gauge[GB_HISTORY_GAUGES];
    double counter[GB_HISTORY_COUNTERS]; /* increase */
};

/* What is kept for how long, and how much of it at most. */
struct gb_history_limits {
    uint64_t keep_s[GB_HISTORY_LEVELS];
    uint64_t rows[GB_HISTORY_LEVELS]; /* of sessions and pools together; shared evenly among them */
    uint64_t series;                  /* sessions and pools that have a past */
    uint64_t interval_s;              /* of the samples */
};

#define GB_HISTORY_POINTS 300      /* where no step is asked for */
#define GB_HISTORY_POINTS_MAX 1500 /* of one answer */
#define GB_HISTORY_ROWS_MAX 10080  /* read for one answer, nearly: a week of minutes */

struct gb_history_query {
    struct gb_history_key key;
    int64_t since_us;
    int64_t until_us;
    uint64_t step_s; /* 0: chosen */
};

/* What answers a query: times are whole multiples of the step. */
struct gb_history_plan {
    enum gb_history_level level;
    int64_t since_us;
    int64_t until_us;
    uint64_t step_s;
};

/* The least step, and the finest level that is still there, with which the rows that must be read are few. A step is
 * raised to the interval of the samples, and to a multiple of its level's; one that is chosen is a multiple of the
 * interval. INVALID_ARGUMENT where the step is too small for the range. */
int gb_history_plan(const struct gb_history_query *query, const struct gb_history_limits *limits, int64_t now_us,
                    struct gb_history_plan *ret, struct gb_error *err);

/* Microseconds of a row of the level; of samples: 1. */
int64_t gb_history_period_us(enum gb_history_level level);
/* The beginning of the span that holds at_us. */
int64_t gb_history_floor(int64_t at_us, int64_t span_us);

/* A notice: something that happened, for the feed. */

enum gb_notice_type {
#define GB_NOTICE(name, word) GB_NOTICE_##name,
#include "model/notices.def"
#undef GB_NOTICE
    GB_NOTICE_TYPES
};
const char *gb_notice_word(enum gb_notice_type type);

/* GB_NOTICE_TYPES where there is no such word (of a newer daemon). */
enum gb_notice_type gb_notice_type_of(const char *word);

/* A mask, 1 << type, of all types whose word begins with one of the prefixes between commas. INVALID_ARGUMENT where a
 * prefix fits none. */
int gb_notice_types_parse(const char *text, size_t len, uint64_t *ret_mask, struct gb_error *err);

#define GB_NOTICE_DETAIL_SIZE 128

/* What does not apply is "", -1 or 0. */
struct gb_notice {
    int64_t id;    /* rises strictly, never given twice; not without gaps */
    int64_t at_us; /* since the epoch */
    enum gb_notice_type type;
    int device; /* index; -1: none */
    struct gb_name session;
    struct gb_name pool;
    struct gb_name buffer;
    bool has_bytes;
    uint64_t bytes;
    uint64_t count;     /* things it tells of, where that is not one thing by name */
    int64_t generation; /* of a buffer */
    bool has_head;
    enum gb_head head; /* of a mirrored buffer */
    int64_t lease;     /* id */
    char detail[GB_NOTICE_DETAIL_SIZE];
};

/* Reasons of failures, a short list of them: labels and columns are bounded by it. */

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

/* The reason that the code stands for; `other` if it has no reason of its own. */
enum gb_failure gb_failure_of(enum gb_code code, enum gb_failed what);

/* How often it failed so. 0 where it cannot. */
uint64_t gb_counters_failed(const struct gb_counters *counters, enum gb_failed what, enum gb_failure why);

/* What an earlier version counted without a reason is given to `other`, so that the reasons come to the whole. */
void gb_counters_explain(struct gb_counters *counters);

#endif
