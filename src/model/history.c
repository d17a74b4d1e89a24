/* The daemon's past: notices, numbers over time, and reasons of failures. A query is answered with the step and the
 * level that keep its rows few. The core, the store and the API call it. */
#include "model/history.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/text.h"

/* --- history ------------------------------------------------------------------------------------------------------ */

#define US_PER_S 1000000LL

#define DAEMON (1u << GB_HISTORY_DAEMON)
#define DEVICE (1u << GB_HISTORY_DEVICE)
#define POOL (1u << GB_HISTORY_POOL)
#define SESSION (1u << GB_HISTORY_SESSION)

const struct gb_history_field gb_history_gauges[GB_HISTORY_GAUGES] = {
#define GB_GAUGE(name, type, scopes) {#name, scopes},
#include "model/history.def"
};
const struct gb_history_field gb_history_counters[GB_HISTORY_COUNTERS] = {
#define GB_COUNTER(name, type, scopes) {#name, scopes},
#include "model/history.def"
};

const char *gb_history_scope_name(enum gb_history_scope scope) {
    static const char *const names[] = {"daemon", "device", "pool", "session"};

    return (unsigned)scope < GB_HISTORY_SCOPES ? names[scope] : "unknown";
}

const char *gb_history_level_name(enum gb_history_level level) {
    static const char *const names[] = {"samples", "minutes", "hours"};

    return (unsigned)level < GB_HISTORY_LEVELS ? names[level] : "unknown";
}

void gb_history_sample_init(struct gb_history_sample *sample, enum gb_history_scope scope, int64_t at_us) {
    int i;

    memset(sample, 0, sizeof(*sample));
    sample->key.scope = scope;
    sample->device = -1;
    sample->at_us = at_us;
    for (i = 0; i < GB_HISTORY_GAUGES; i++)
        sample->gauge[i] = NAN;
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        sample->counter[i] = NAN;
}

int64_t gb_history_period_us(enum gb_history_level level) {
    static const int64_t periods[] = {1, 60 * US_PER_S, 3600 * US_PER_S};

    return periods[level];
}

int64_t gb_history_floor(int64_t at_us, int64_t span_us) {
    int64_t rest = at_us % span_us;

    return at_us - (rest < 0 ? rest + span_us : rest);
}

/* --- which rows answer -------------------------------------------------------------------------------------------- */

static uint64_t up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* Steps that people use. */
static uint64_t nice(uint64_t least_s) {
    static const uint64_t steps[] = {1,   2,   5,    10,   15,   20,   30,    60,    120,  300,
                                     600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200};
    size_t i;

    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i] >= least_s)
            return steps[i];
    }
    return up(least_s, 86400);
}

static uint64_t period_s(enum gb_history_level level, uint64_t interval_s) {
    if (level == GB_HISTORY_SAMPLES)
        return interval_s ? interval_s : 1;
    return (uint64_t)(gb_history_period_us(level) / US_PER_S);
}

/* The coarsest that is not coarser than the step; coarser where what is asked for is no longer kept so finely, or is
 * too much. */
static enum gb_history_level choose(uint64_t step_s, uint64_t range_s, uint64_t age_s,
                                    const struct gb_history_limits *limits, uint64_t interval_s) {
    enum gb_history_level level = GB_HISTORY_HOURS;

    while (level > GB_HISTORY_SAMPLES && period_s(level, interval_s) > step_s)
        level--;
    while (level < GB_HISTORY_HOURS &&
           (age_s > limits->keep_s[level] || range_s / period_s(level, interval_s) > GB_HISTORY_ROWS_MAX))
        level++;
    return level;
}

int gb_history_plan(const struct gb_history_query *query, const struct gb_history_limits *limits, int64_t now_us,
                    struct gb_history_plan *ret, struct gb_error *err) {
    uint64_t range_s = (uint64_t)(query->until_us - query->since_us + US_PER_S - 1) / US_PER_S;
    uint64_t age_s = now_us > query->since_us ? (uint64_t)(now_us - query->since_us) / US_PER_S : 0;
    uint64_t least_s = (range_s + GB_HISTORY_POINTS_MAX - 1) / GB_HISTORY_POINTS_MAX;
    uint64_t step_s = query->step_s;
    uint64_t interval_s = limits->interval_s;
    enum gb_history_level level;
    int64_t step_us;

    if (step_s > 0 && step_s < interval_s)
        step_s = interval_s;
    if (step_s > 0 && step_s < least_s)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "a step of %llu seconds would give more than %d points between since and until; the least is "
            "%llu",
            (unsigned long long)step_s, GB_HISTORY_POINTS_MAX, (unsigned long long)least_s);
    if (step_s == 0) {
        step_s = (range_s + GB_HISTORY_POINTS - 1) / GB_HISTORY_POINTS;
        /* One more may come of the rounding at both ends. */
        step_s = nice(step_s > interval_s ? step_s : interval_s);
        if (range_s / step_s + 1 > GB_HISTORY_POINTS)
            step_s = nice(step_s + 1);
        /* As many samples in each. */
        if (interval_s > 0)
            step_s = up(step_s, interval_s);
    }
    level = choose(step_s, range_s, age_s, limits, interval_s);
    if (level > GB_HISTORY_SAMPLES)
        step_s = up(step_s, period_s(level, interval_s));
    step_us = (int64_t)step_s * US_PER_S;
    *ret = (struct gb_history_plan){.level = level,
                                    .step_s = step_s,
                                    .since_us = gb_history_floor(query->since_us, step_us),
                                    .until_us = gb_history_floor(query->until_us - 1, step_us) + step_us};
    return 0;
}

/* --- notice ------------------------------------------------------------------------------------------------------- */

static const char *const words[] = {
#define GB_NOTICE(name, word) word,
#include "model/notices.def"
#undef GB_NOTICE
};

const char *gb_notice_word(enum gb_notice_type type) {
    return type < GB_NOTICE_TYPES ? words[type] : "unknown";
}

enum gb_notice_type gb_notice_type_of(const char *word) {
    int type;

    for (type = 0; type < GB_NOTICE_TYPES; type++) {
        if (strcmp(words[type], word) == 0)
            break;
    }
    return (enum gb_notice_type)type;
}

static uint64_t mask_of(const char *prefix, size_t len) {
    uint64_t mask = 0;
    int type;

    for (type = 0; type < GB_NOTICE_TYPES && len > 0; type++) {
        if (strncmp(words[type], prefix, len) == 0)
            mask |= 1ULL << type;
    }
    return mask;
}

int gb_notice_types_parse(const char *text, size_t len, uint64_t *ret_mask, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    uint64_t mask = 0;
    size_t at = 0;

    while (at <= len) {
        const char *comma = memchr(text + at, ',', len - at);
        size_t n = comma ? (size_t)(comma - (text + at)) : len - at;
        uint64_t more = mask_of(text + at, n);

        if (!more)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "no type of event begins with \"%s\"; types begin with session., pool., buffer., "
                                "memory., quota., lease., device., storage., daemon., checkpoint., fleet. or feed.",
                                gb_word_quote(text + at, n, quoted));
        mask |= more;
        at += n + 1;
    }
    *ret_mask = mask;
    return 0;
}

/* --- failure ------------------------------------------------------------------------------------------------------ */

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
